"""CPU time of the fifteen corruptions compared with imagecorruptions: python -m benchmarks.corruptions."""

from __future__ import annotations

import argparse
import io
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from saod_ray.corrupt import CORRUPTIONS, corrupt
from saod_ray.corrupt.noise import NOISES
from saod_ray.corrupt.pipeline import STEPS
from saod_ray.corrupt.warm import warm
from tests.corrupt import library, pictures

Array = np.ndarray
SEED = 3


class Row(NamedTuple):
    """CPU milliseconds per image, and the largest difference in levels for the same draws."""

    library: float
    ours: float
    difference: int


def main() -> None:
    options = _options()
    warm()
    rows: dict[tuple[str, int, int], list[Row]] = {}
    for width, height in options.sizes:
        image = pictures.photograph(height, width)
        print(f"\n{width}×{height}, decoding it from a JPEG takes {_decoding(image, options.repeats):.1f} ms")
        print(f"{'':20} severity  library ms   ours ms     ratio  difference")
        for name in CORRUPTIONS:
            for severity in options.severities:
                row = _row(image, name, severity, options)
                rows.setdefault((name, width, height), []).append(row)
                print(
                    f"{name:20} {severity:8} {row.library:11.1f} {row.ours:9.2f} {row.library / row.ours:9.1f} {row.difference:11}"
                )
        _summary(
            f"{width}×{height}", [row for key, group in rows.items() if key[1:] == (width, height) for row in group]
        )
    _summary("all", [row for group in rows.values() for row in group])


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=_size, nargs="+", default=[(640, 480), (1280, 720)], metavar="WxH")
    parser.add_argument("--severities", type=int, nargs="+", default=[1, 3, 5])
    parser.add_argument("--repeats", type=int, default=7, help="repeats per measurement; the smallest time counts")
    return parser.parse_args()


def _size(text: str) -> tuple[int, int]:
    width, height = text.lower().split("x")
    return int(width), int(height)


def _row(image: Array, name: str, severity: int, options: Any) -> Row:
    """Measure both on the same image in the same process, each with its own random draws."""
    theirs = _smallest_ms(lambda: library.corrupted(image, name, severity, SEED), options.repeats)
    ours = _smallest_ms(lambda: corrupt(image, name, severity, SEED, 1), options.repeats)
    return Row(theirs, ours, _difference(image, name, severity))


def _smallest_ms(work: Callable[[], object], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return 1e3 * min(times)


def _difference(image: Array, name: str, severity: int) -> int:
    """The largest difference from the library's pixels, for the library's draws. Noises are compared by their formula."""
    expected = library.corrupted(image, name, severity, SEED)
    if name in NOISES:
        noise, draws = NOISES[name], library.noise_draws(name, image, severity, SEED)
        got = noise.level(image, draws, noise.strengths[severity - 1])
    else:
        draws = library.draws(name, image.shape[0], image.shape[1], severity, SEED)
        got = STEPS[name].apply(image, draws, severity)
    return int(np.abs(got.astype(int) - expected).max())


def _decoding(image: Array, repeats: int) -> float:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=90)
    return _smallest_ms(lambda: np.asarray(Image.open(io.BytesIO(buffer.getvalue()))), repeats)


def _summary(title: str, rows: list[Row]) -> None:
    theirs, ours = np.mean([row.library for row in rows]), np.mean([row.ours for row in rows])
    ratios = [row.library / row.ours for row in rows]
    print(
        f"{title}: the mean of the fifteen {theirs:.1f} ms and {ours:.2f} ms, {theirs / ours:.1f} times; the mean of the ratios {np.mean(ratios):.1f}"
    )


if __name__ == "__main__":
    main()
