"""Run a command of saod-ray as a Ray job, on the cluster to which the job was submitted."""

from __future__ import annotations

import sys

from saod_ray import cli


def main(command: str) -> None:
    """Run a command of saod-ray with the arguments of this job, and exit with its code."""
    arguments = sys.argv[1:]
    options = {option for parameter in cli.find_command(command)[0].params for option in parameter.opts}
    if "--address" in options:
        arguments = ["--address", "auto", *arguments]  # the last one counts, so a user's own takes precedence
    cli.main([command, *arguments])
