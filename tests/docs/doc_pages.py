"""Parse the documentation for tests: fenced blocks with their markers, links, headings.

A block of sh or python right after `<!-- runnable -->` is run. A block right after `<!-- file NAME -->` is saved as NAME.
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
    """A fenced block: its first line, its language, its marker ("" without one), and its text."""

    line: int
    language: str
    marker: str
    text: str


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md, CHANGELOG.md, and all pages in docs/ and jobs/."""
    top = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "jobs" / "README.md"]
    return [*top, *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page: Path) -> str:
    """A page's path in the repository."""
    return page.relative_to(ROOT).as_posix()


def blocks(text: str) -> list[Block]:
    """The fenced blocks of a page, in order. A marker that is not right before a block is an error."""
    parsed: list[Block] = []
    marker, begin, language = "", 0, ""
    inside: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.fullmatch(line)
        if begin and fence and not fence["language"]:
            parsed.append(Block(begin, language, marker, "\n".join(inside) + "\n"))
            marker, begin, inside = "", 0, []
        elif begin:
            inside.append(line)
        elif fence:
            begin, language = number, fence["language"].strip()
        elif comment := MARKER.fullmatch(line.strip()):
            marker = comment[1]
        else:
            assert not marker, f"line {number}: <!-- {marker} --> is not right before a block"
            assert not line.startswith("<!--"), f"line {number}: {line} is neither `runnable` nor `file NAME`"
    assert not marker, f"<!-- {marker} --> is not right before a block"
    return parsed


def run(text: str, folder: Path, name: str) -> None:
    """Save and run the marked blocks of a page, in order, in one folder. Raises AssertionError if a block fails."""
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
    lines, is_inside = [], False
    for line in text.splitlines():
        if FENCE.fullmatch(line):
            is_inside = not is_inside
        elif not is_inside:
            lines.append(line)
    return "\n".join(lines)


def commands(text: str) -> Iterator[str]:
    """The `saod-ray` commands in shell blocks, one line each."""
    for block in blocks(text):
        if block.language in SHELL:
            for line in block.text.replace("\\\n", " ").splitlines():
                command = line.strip().removeprefix("$ ")
                if command.startswith("saod-ray "):
                    yield command


def mentions(text: str) -> list[str]:
    """The `saod-ray` commands that are quoted in the text."""
    spans = (span.strip("`") for span in CODE.findall(prose(text)))
    return [span for span in spans if span.startswith("saod-ray ")]


def links(text: str) -> list[str]:
    """A page's links to files of the repository, without web addresses."""
    targets: Iterable[str] = LINK.findall(CODE.sub("", prose(text)))
    return [link for link in targets if not re.match(r"[a-z]+:", link)]


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub and the site build them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}
