"""Render what commands print as SVG pictures for the documentation: `python tools/terminal_pictures.py runs/shapes`.

Commands run as a user runs them, in a terminal of a fixed width. The pictures load nothing from the network: they use
the reader's own monospace font. The same output gives the same bytes.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.text import Text

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "images"
WEB_FONT = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)
FONTS = {
    "font-family: Fira Code, monospace;": "font-family: monospace;",
    "font-family: arial;": "font-family: sans-serif;",
}


@dataclass(frozen=True)
class TerminalPicture:
    """A picture's file name without suffix, the title of its window, the command's arguments and the terminal's width."""

    name: str
    title: str
    arguments: tuple[str, ...]
    columns: int = 100


def pictures(store: str, scratch: Path) -> list[TerminalPicture]:
    """The pictures of the documentation. Scoring writes its results to `scratch` and leaves the store's own results alone."""
    score = ("score", store, "--bootstrap", "200", "--out", str(scratch / "results.json"))
    return [
        TerminalPicture("closing-table", "saod-ray run", score),
        TerminalPicture("run-help", "saod-ray run --help", ("run", "--help")),
    ]


def printed_by(arguments: tuple[str, ...], columns: int) -> str:
    """What `saod-ray ARGUMENTS` prints on stdout in a terminal with this many columns, with colours as ANSI codes."""
    terminal = {"COLUMNS": str(columns), "TERMINAL_WIDTH": str(columns), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    inherited = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM")}
    command = [sys.executable, "-m", "saod_ray", *arguments]
    finished = subprocess.run(command, env=inherited | terminal, capture_output=True, text=True, check=False)
    if finished.returncode:
        raise SystemExit(f"`saod-ray {' '.join(arguments)}` failed, so there is no picture of it: {finished.stderr}")
    return finished.stdout


def to_svg(printed: str, title: str, columns: int, identifier: str) -> str:
    """Text with ANSI codes as an SVG of a terminal window; `identifier` prefixes the names of its styles.

    Raises SystemExit if the picture would load something from the network.
    """
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="256")
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    console.print(Text.from_ansi("\n".join(lines)), soft_wrap=True)
    svg = WEB_FONT.sub("", console.export_svg(title=title, unique_id=identifier))
    for web_font, font in FONTS.items():
        svg = svg.replace(web_font, font)
    if "url(http" in svg.replace('"', ""):
        raise SystemExit(
            "Rich's SVG export loads something else from the network: remove it in tools/terminal_pictures.py."
        )
    return "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"


def main() -> None:
    """Write all pictures and print their paths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="a store with complete detections, such as runs/shapes after `make demo`")
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder for the pictures (default: docs/images)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for picture in pictures(options.store, Path(scratch)):
            printed = printed_by(picture.arguments, picture.columns)
            path = options.out / f"{picture.name}.svg"
            path.write_text(to_svg(printed, picture.title, picture.columns, picture.name), encoding="utf-8")
            print(path)


if __name__ == "__main__":
    main()
