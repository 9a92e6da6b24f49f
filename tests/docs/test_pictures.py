"""The pictures in docs/images: small, without anything from the network, and rendered by the scripts in tools/."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from doc_pages import ROOT

import saod_ray

IMAGES = ROOT / "docs" / "images"
LOADED = re.compile(r"""(?:url\(\s*["']?|@import\s+["']?|href\s*=\s*["'])(?!#)[^)"']*""")
MAX_BYTES = 150_000


@pytest.mark.parametrize("path", sorted(IMAGES.glob("*.svg")), ids=lambda path: path.name)
def test_pictures_are_small_and_load_nothing(path: Path) -> None:
    assert path.stat().st_size < MAX_BYTES
    assert_loads_nothing(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "loading", ['url("https://fonts.org/a.woff")', "@import 'a.css'", 'href="https://a.org/b.png"']
)
def test_a_picture_that_loads_something_is_noticed(loading: str) -> None:
    with pytest.raises(AssertionError):
        assert_loads_nothing(f"<svg><style>{loading}</style></svg>")


def assert_loads_nothing(svg: str) -> None:
    assert LOADED.findall(svg) == []


def render(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tools" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_terminal_pictures_show_what_the_commands_print(golden_store, tmp_path) -> None:
    rendered = render("terminal_pictures.py", golden_store.uri, "--out", str(tmp_path))
    assert rendered.returncode == 0, rendered.stderr
    assert visible_text(tmp_path / "closing-table.svg") >= {"detector", *golden_store.detectors()}
    assert visible_text(tmp_path / "run-help.svg") >= {"--use-case", "--dry-run"}
    for path in tmp_path.glob("*.svg"):
        assert_loads_nothing(path.read_text(encoding="utf-8"))
        assert "@font-face" not in path.read_text(encoding="utf-8")


def test_a_command_that_fails_gives_no_picture(tmp_path) -> None:
    rendered = render("terminal_pictures.py", str(tmp_path / "nowhere"), "--out", str(tmp_path))
    assert rendered.returncode != 0 and "no picture" in rendered.stderr
    assert list(tmp_path.glob("*.svg")) == []


def visible_text(path: Path) -> set[str]:
    """The words in a terminal picture. A word can consist of several adjacent elements with different styles."""
    lines: dict[str, str] = {}
    ends: dict[str, float] = {}
    for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text"):
        y, x, length = element.attrib["y"], float(element.attrib["x"]), float(element.get("textLength", 0))
        gap = " " if x > ends.get(y, 0.0) + 1 else ""
        lines[y], ends[y] = lines.get(y, "") + gap + (element.text or ""), x + length
    return {word for line in lines.values() for word in line.split()}


def test_the_rank_chart_orders_detectors_by_ap_and_by_daq(golden_store) -> None:
    results = saod_ray.open(golden_store.uri).score()
    (accurate,) = results.detectors.values()
    less_ap = {**accurate.accuracy, "val": msgspec.structs.replace(accurate.accuracy["val"], ap=0.01)}
    cautious = msgspec.structs.replace(accurate, daq=0.9, accuracy=less_ap)
    both = msgspec.structs.replace(results, detectors={"cautious": cautious, "accurate": accurate})
    svg = ElementTree.fromstring(rank_chart().draw(both))
    assert svg.get("aria-label") == "Detectors ranked by AP: accurate, cautious. Ranked by DAQ: cautious, accurate."
    heights = {text.text: float(text.get("y", "nan")) for text in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert heights["cautious  1.00"] > heights[f"accurate  {100 * accurate.accuracy['val'].ap:.2f}"]
    assert heights["90.00  cautious"] < heights[f"{100 * accurate.daq:.2f}  accurate"]


def rank_chart():
    """The module tools/rank_chart.py."""
    spec = importlib.util.spec_from_file_location("rank_chart", ROOT / "tools" / "rank_chart.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
