"""The lock file has a digest for every pinned package."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def pinned(text: str) -> dict[str, str]:
    """Versions by name, as pip compares names."""
    pairs = re.findall(r"^([\w.-]+)==([\w.!]+)", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in pairs}


def test_the_lock_file_has_what_is_pinned() -> None:
    locked = (ROOT / "constraints.hashes.txt").read_text()
    constraints = pinned((ROOT / "constraints.txt").read_text())
    absent = pinned(locked.partition("Left out")[2].partition(": ")[2].partition("+")[0])
    assert absent == {"torch": "2.13.0"}
    assert pinned(locked) | absent == constraints, "run `make hashes`"
    lines = [line for line in locked.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"\S+==\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
