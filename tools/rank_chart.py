"""Draw a store's detectors ranked by AP and by DAQ, the first picture of README.md: `python tools/rank_chart.py runs/shapes`.

The picture is a plain SVG with the reader's own fonts. The same results give the same bytes.
"""

from __future__ import annotations

import argparse
from html import escape
from pathlib import Path

import saod_ray
from saod_ray.score.results import BenchmarkResult, DetectorResult, Intervals

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "images" / "ap-and-daq.svg"
WIDTH, TOP, ROW, BOTTOM = 780, 86, 32, 30  # pixels
LEFT, RIGHT = 210, 450  # x of the two columns of points
INK, PALE, BEST_BY_AP, BEST_BY_DAQ = "#24292f", "#8a8f98", "#d55e00", "#0072b2"


def ranking(values: dict[str, float]) -> list[str]:
    """Names by falling value; equal values keep their order."""
    return sorted(values, key=lambda name: -values[name])


def draw(results: BenchmarkResult) -> str:
    """The SVG: AP on val at the left, DAQ with its interval at the right, and one line per detector."""
    detectors = results.detectors
    by_ap = ranking({name: result.accuracy["val"].ap or 0.0 for name, result in detectors.items()})
    by_daq = ranking({name: result.daq or 0.0 for name, result in detectors.items()})
    parts = [
        _text(LEFT, 34, "rank by AP", anchor="end", weight="bold"),
        _text(LEFT, 54, "the raw detector on val", anchor="end", colour=PALE, size=12),
        _text(RIGHT, 34, "rank by DAQ", weight="bold"),
        _text(RIGHT, 54, "the self-aware detector on ID, corrupted and OOD images", colour=PALE, size=12),
    ]
    for name in reversed(by_ap):  # the best ones are drawn last, on top
        colour = {by_daq[0]: BEST_BY_DAQ, by_ap[0]: BEST_BY_AP}.get(name, PALE)
        parts += _line(detectors[name], name, by_ap.index(name), by_daq.index(name), colour)
    height = TOP + ROW * len(detectors) + BOTTOM
    parts.append(_text(WIDTH / 2, height - 18, _caption(results), anchor="middle", colour=PALE, size=12))
    label = f"Detectors ranked by AP: {', '.join(by_ap)}. Ranked by DAQ: {', '.join(by_daq)}."
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-label="{escape(label)}" font-family="system-ui, sans-serif">',
            f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
            *parts,
            "</svg>\n",
        ]
    )


def _line(result: DetectorResult, name: str, ap_rank: int, daq_rank: int, colour: str) -> list[str]:
    """A detector's two labels, its two points and the line between them; ranks are from 0."""
    left, right = TOP + ROW * ap_rank, TOP + ROW * daq_rank
    is_best = colour != PALE
    weight, ink = ("bold", colour) if is_best else ("normal", INK)
    return [
        f'<path d="M{LEFT + 16} {left}L{RIGHT - 16} {right}" stroke="{colour}" stroke-width="{3.5 if is_best else 2}"/>',
        f'<circle cx="{LEFT + 16}" cy="{left}" r="5" fill="{colour}"/>',
        f'<circle cx="{RIGHT - 16}" cy="{right}" r="5" fill="{colour}"/>',
        _text(
            LEFT, left + 5, f"{name}  {_percent(result.accuracy['val'].ap)}", anchor="end", weight=weight, colour=ink
        ),
        _text(RIGHT, right + 5, f"{_percent(result.daq)}{_interval(result)}  {name}", weight=weight, colour=ink),
    ]


def _interval(result: DetectorResult) -> str:
    ends = result.intervals.daq if isinstance(result.intervals, Intervals) else None
    return "" if ends is None else f" [{100 * ends[0]:.1f}, {100 * ends[1]:.1f}]"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def _caption(results: BenchmarkResult) -> str:
    resampling = results.resampling
    intervals = "" if resampling is None else f"; brackets: {100 * resampling.level:.0f} % intervals"
    return f"{results.use_case}, {results.conventions} conventions, in %{intervals}"


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", weight: str = "normal", colour: str = INK, size: int = 14
) -> str:
    style = f'text-anchor="{anchor}" font-weight="{weight}" font-size="{size}" fill="{colour}"'
    return f'<text x="{x:g}" y="{y:g}" {style} xml:space="preserve">{escape(text)}</text>'


def main() -> None:
    """Write the picture and print its path."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", help="a scored store, such as runs/shapes after `make demo`")
    parser.add_argument("--out", type=Path, default=PICTURE, help="SVG file (default: docs/images/ap-and-daq.svg)")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(draw(saod_ray.open(options.store).results()), encoding="utf-8")
    print(options.out)


if __name__ == "__main__":
    main()
