"""The documentation's pages as tests see them: fenced blocks with their markers, links, headings.

`<!-- runnable -->` right before a block of sh or python has it run; `<!-- file NAME -->` has it saved under that name.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"\s*```(?P<language>[^`]*)$")
MARKER = re.compile(r"<!--\s*(runnable|file \S+)\s*-->")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]+`")
SHELL = ("", "sh", "bash", "console")


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, what its marker says ("" where there is none), and its text."""

    line: int
    language: str
    marker: str
    text: str


def pages() -> list[Path]:
    """README.md and everything below docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page in their order. A marker that stands before nothing is an error."""
    found: list[Block] = []
    marker, begin, language = "", 0, ""
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if begin and fence and not fence["language"]:
            found.append(Block(begin, language, marker, "\n".join(inside) + "\n"))
            marker, begin, inside = "", 0, []
        elif begin:
            inside.append(line)
        elif fence:
            begin, language = number, fence["language"].strip()
        elif said := MARKER.fullmatch(line.strip()):
            marker = said[1]
        else:
            assert not marker, f"line {number}: <!-- {marker} --> is not right before a block"
    return found


def run(text: str, folder: Path, name: str) -> None:
    """Do what the markers of a page say, in its order, in one folder; a block that fails is named."""
    for block in blocks(text):
        if block.marker.startswith("file "):
            (folder / block.marker.removeprefix("file ")).write_text(block.text)
        elif block.marker:
            done = _executed(block, folder)
            assert done.returncode == 0, f"{name}, line {block.line}: {block.text}{done.stdout}{done.stderr}"


def _executed(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    command = {"sh": ["bash", "-euo", "pipefail", "-c"], "python": [sys.executable, "-c"]}[block.language]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*command, block.text],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    kept, is_inside = [], False
    for line in text.splitlines():
        if FENCE.fullmatch(line):
            is_inside = not is_inside
        elif not is_inside:
            kept.append(line)
    return "\n".join(kept)


def commands(text: str) -> Iterator[str]:
    """Every `saod-ray …` of the shell blocks, on one line each."""
    for block in blocks(text):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                typed = line.strip().removeprefix("$ ")
                if typed.startswith("saod-ray "):
                    yield typed


def mentions(text: str) -> list[str]:
    """Every `saod-ray …` that stands in a sentence."""
    spans = (span.strip("`") for span in CODE.findall(prose(text)))
    return [span for span in spans if span.startswith("saod-ray ")]


def links(text: str) -> list[str]:
    """Where a page leads to in the repository: no addresses of the web."""
    found: Iterable[str] = LINK.findall(CODE.sub("", prose(text)))
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """The names of a page's headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}
