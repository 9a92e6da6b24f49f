"""What `ray job submit` runs: a command of saod-ray, on the cluster that the job was submitted to."""

from __future__ import annotations

import sys

from saod_ray import cli


def main(command: str) -> None:
    """Run a command of saod-ray with this job's arguments, and end with its exit code."""
    arguments = sys.argv[1:]
    takes = {option for parameter in cli.cli.commands[command].params for option in parameter.opts}
    if "--address" in takes:
        arguments = ["--address", "auto", *arguments]  # the last one counts, so a user's own stands
    cli.main([command, *arguments])
