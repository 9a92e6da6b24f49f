"""The command line, one module per group of commands."""

from saod_ray.cli.commands import app, cli, find_command, main

__all__ = ["app", "cli", "find_command", "main"]
