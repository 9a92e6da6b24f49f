"""The command line, one module per group of commands."""

from saod_ray.cli.commands import cli, main

__all__ = ["cli", "main"]
