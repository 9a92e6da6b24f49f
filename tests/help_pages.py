"""The help of every command as text. `python tests/help_pages.py` writes the snapshots again."""

from __future__ import annotations

import sys
from pathlib import Path

from typer.core import TyperGroup
from typer.testing import CliRunner

from saod_ray.cli import app, find_command
from saod_ray.cli.commands import COMMANDS

WIDTHS = (80, 120)
SNAPSHOTS = Path(__file__).parent / "snapshots"


def commands() -> list[tuple[str, ...]]:
    """The words of every command, and none for the command line itself."""
    words: list[tuple[str, ...]] = [()]
    for name in COMMANDS:
        command, _ = find_command(name)
        words.append((name,))
        words += [(name, below) for below in command.commands] if isinstance(command, TyperGroup) else []
    return words


def help_page(words: tuple[str, ...], width: int) -> str:
    """What `--help` prints in a terminal of this width."""
    environment = {"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1", "TERMINAL_WIDTH": str(width)}
    result = CliRunner().invoke(app, [*words, "--help"], prog_name="saod-ray", env=environment)
    assert result.exit_code == 0, result.output
    return "".join(f"{line.rstrip()}\n" for line in result.output.splitlines())


def snapshot(words: tuple[str, ...], width: int) -> Path:
    """The file with the expected help."""
    return SNAPSHOTS / f"help-{'-'.join(('saod-ray', *words))}-{width}.txt"


if __name__ == "__main__":
    SNAPSHOTS.mkdir(exist_ok=True)
    for entry in commands():
        for columns in WIDTHS:
            snapshot(entry, columns).write_text(help_page(entry, columns), encoding="utf-8")
    sys.stdout.write(f"{SNAPSHOTS}: {len(list(SNAPSHOTS.iterdir()))} files\n")
