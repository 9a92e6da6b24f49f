"""What a user types, one module a group of commands."""

from saod_ray.cli.commands import cli, main

__all__ = ["cli", "main"]
