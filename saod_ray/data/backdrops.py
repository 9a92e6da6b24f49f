"""Backgrounds of the scenes of `shapes`: textures behind objects, and complete OOD scenes without objects."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import cv2
import numpy as np

from saod_ray.data.kinds import Array, Rng, points

Texture = Callable[[Rng, int, int], Array]


def colour(hue: float, saturation: float, value: float) -> Array:
    """RGB in 0..255, (3,) float32, from hue (in turns), saturation and value in 0..1."""
    wheel = np.abs((hue + np.array([0.0, 2 / 3, 1 / 3])) % 1 * 6 - 3) - 1
    return (255 * value * (1 - saturation + saturation * np.clip(wheel, 0, 1))).astype(np.float32)


def any_colour(rng: Rng, saturation: tuple[float, float], value: tuple[float, float]) -> Array:
    """A colour of any hue."""
    return colour(rng.random(), rng.uniform(*saturation), rng.uniform(*value))


def cloud(rng: Rng, height: int, width: int, tall: float, wide: float | None = None) -> Array:
    """Smooth noise in about 0..1, (height, width) float32, with features of `tall` by `wide` pixels."""
    rows, columns = int(height / tall) + 2, int(width / (wide or tall)) + 2
    return cv2.resize(rng.random((rows, columns), np.float32), (width, height), interpolation=cv2.INTER_CUBIC)


def fractal(rng: Rng, height: int, width: int, cell: float) -> Array:
    """Noise of three octaves."""
    coarse, middle, fine = (cloud(rng, height, width, cell / k) for k in (1, 2, 4))
    return 0.5 * coarse + 0.3 * middle + 0.2 * fine


def axes(rng: Rng, height: int, width: int) -> tuple[Array, Array]:
    """Pixel coordinates along and across a random direction."""
    turn = rng.uniform(0, np.pi)
    y, x = np.arange(height, dtype=np.float32)[:, None], np.arange(width, dtype=np.float32)[None]
    cos, sin = np.float32(np.cos(turn)), np.float32(np.sin(turn))
    return x * cos + y * sin, y * cos - x * sin


def between_colours(t: Array, first: Array, second: Array) -> Array:
    """Interpolate between two colours: a map `t` of 0..1 becomes an image (height, width, 3) float32."""
    t = t.astype(np.float32, copy=False)
    return cv2.merge([a + t * (b - a) for a, b in zip(first, second, strict=True)])


def to_rgb(values: Array) -> Array:
    """A map (height, width) as an image of three equal channels; much faster than broadcasting."""
    return cv2.merge([values] * 3) if values.size else np.empty((*values.shape, 3), values.dtype)


def lines(shape: tuple[int, int], strokes: list[Array], thickness: float) -> Array:
    """Anti-aliased polylines as a map of 0..1; `strokes` are arrays (n, 2) of x and y in pixels."""
    canvas = np.zeros(shape, np.uint8)
    fixed = [np.rint(s * 16).astype(np.int32) for s in strokes]
    cv2.polylines(canvas, fixed, False, 255, max(1, round(thickness)), cv2.LINE_AA, 4)
    return canvas.astype(np.float32) / 255


# Textures of train, val and ood-kinds: maps of about 0..1, later interpolated between two colours.


def plaster(rng: Rng, height: int, width: int) -> Array:
    """Cloudy plaster."""
    return fractal(rng, height, width, rng.uniform(24, 70))


def planks(rng: Rng, height: int, width: int) -> Array:
    """Boards with a long grain and dark joints."""
    board = rng.uniform(22, 50)
    rows = np.arange(height) / board + rng.random()
    tone = rng.random(int(rows[-1]) + 1, np.float32)[rows.astype(int)][:, None]
    joint = (rows % 1 < 2 / board)[:, None]
    t = 0.4 * tone + 0.5 * cloud(rng, height, width, 3, 50) + 0.15 * cloud(rng, height, width, 2, 12)
    return _rotate_at_random(rng, np.where(joint, 1.3, t), height, width)


def _rotate_at_random(rng: Rng, t: Array, height: int, width: int) -> Array:
    """Half of the time rotated by 90 degrees and resized to the original size."""
    if rng.random() < 0.5:
        return t.astype(np.float32)
    return cv2.resize(t.T.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR)


def bricks(rng: Rng, height: int, width: int) -> Array:
    """Courses of bricks, every other one shifted by half a brick."""
    course = rng.uniform(12, 24)
    y = np.arange(height, dtype=np.float32)[:, None] / course + rng.random(dtype=np.float32)
    x = np.arange(width, dtype=np.float32)[None] / (course * 2.2) + np.floor(y) % 2 / 2
    tone = rng.random((64, 64), np.float32)[y.astype(int) % 64, x.astype(int) % 64]
    mortar = (y % 1 < 2 / course) | (x % 1 < 1 / course)
    return np.where(mortar, 1.2, 0.45 * tone).astype(np.float32) + 0.3 * fractal(rng, height, width, 14)


def meadow(rng: Rng, height: int, width: int) -> Array:
    """Short grass: fine upright streaks on broad patches."""
    return (
        0.5 * cloud(rng, height, width, 8, 2.2)
        + 0.25 * cloud(rng, height, width, 4, 1.5)
        + 0.3 * cloud(rng, height, width, 45)
    )


def fabric(rng: Rng, height: int, width: int) -> Array:
    """Striped cloth."""
    along, across = axes(rng, height, width)
    stripe = np.sin(along * np.float32(2 * np.pi / rng.uniform(10, 40)) + 2 * cloud(rng, height, width, 60))
    thread = np.sin(across * np.float32(2 * np.pi / 3.1))
    return 0.5 + 0.3 * np.clip(3 * stripe, -1, 1) + 0.08 * thread + 0.15 * cloud(rng, height, width, 4)


def concrete(rng: Rng, height: int, width: int) -> Array:
    """Speckled slabs with a few cracks."""
    t = 0.5 * fractal(rng, height, width, 40) + 0.4 * cloud(rng, height, width, 1.6)
    cracks = [np.cumsum(rng.normal(rng.uniform(-8, 8, 2), 7, (12, 2)), 0) + rng.uniform(0, width, 2) for _ in range(3)]
    return t - 0.4 * lines((height, width), cracks, 1)


# Textures of id.


def marble(rng: Rng, height: int, width: int) -> Array:
    """Veined stone."""
    along, _ = axes(rng, height, width)
    phase = along * np.float32(2 * np.pi / rng.uniform(50, 110)) + 9 * fractal(rng, height, width, 60)
    return 1 - np.abs(np.sin(phase)) ** 0.5 + 0.1 * cloud(rng, height, width, 3)


def weave(rng: Rng, height: int, width: int) -> Array:
    """Wickerwork: strands that pass over and under each other."""
    along, across = axes(rng, height, width)
    pitch = np.float32(np.pi / rng.uniform(6, 11))
    over = np.sin(along * pitch) * np.sin(across * pitch) > 0
    strand = np.where(over, np.abs(np.sin(along * pitch)), np.abs(np.sin(across * pitch)))
    return 0.7 * strand + 0.4 * fractal(rng, height, width, 50)


def ripples(rng: Rng, height: int, width: int) -> Array:
    """Wind-blown sand."""
    along, _ = axes(rng, height, width)
    phase = along * np.float32(2 * np.pi / rng.uniform(9, 22)) + 8 * cloud(rng, height, width, 55)
    return 0.5 + 0.35 * np.sin(phase) + 0.25 * cloud(rng, height, width, 1.7)


def gravel(rng: Rng, height: int, width: int) -> Array:
    """Small stones of several sizes, all much smaller than any object."""
    t = cloud(rng, height, width, rng.uniform(4, 7)) + 0.5 * cloud(rng, height, width, 2)
    return 0.8 * np.clip(2.5 * (t - 0.45), 0, 1) + 0.25 * cloud(rng, height, width, 40)


def paving(rng: Rng, height: int, width: int) -> Array:
    """Crazy paving."""
    stone, seam = voronoi(rng, height, width, rng.uniform(18, 34))
    return 0.6 * rng.random(stone.max() + 1, np.float32)[stone] + 0.4 * fractal(rng, height, width, 12) - 0.5 * seam


def voronoi(rng: Rng, height: int, width: int, cell: float) -> tuple[Array, Array]:
    """The number of each pixel's cell, and a map of the seams between cells."""
    free = np.full((height, width), 255, np.uint8)
    seeds = max(2, int(height * width / cell**2))
    free[rng.integers(0, height, seeds), rng.integers(0, width, seeds)] = 0
    _, stone = cv2.distanceTransformWithLabels(free, cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL)
    seam = np.zeros((height, width), np.float32)
    seam[:, 1:] = stone[:, 1:] != stone[:, :-1]
    seam[1:] = np.maximum(seam[1:], stone[1:] != stone[:-1])
    return stone, cv2.GaussianBlur(seam, (3, 3), 0) * 1.5


GROUNDS: tuple[Texture, ...] = (plaster, planks, bricks, meadow, fabric, concrete)
OTHER_GROUNDS: tuple[Texture, ...] = (marble, weave, ripples, gravel, paving)


# Complete scenes without objects of any class: RGB images.


def maze(rng: Rng, height: int, width: int) -> Array:
    """Walls and corridors: every cell opens to the north or to the west."""
    step = rng.uniform(5, 11)
    rows, columns = int(height / step / 2) + 1, int(width / step / 2) + 1
    wall = np.ones((2 * rows, 2 * columns), np.float32)
    wall[1::2, 1::2] = 0
    north = rng.random((rows, columns)) < 0.5
    wall[::2, 1::2][north] = 0
    wall[1::2, ::2][~north] = 0
    t = cv2.resize(wall, (width, height), interpolation=cv2.INTER_NEAREST)
    t = cv2.GaussianBlur(t, (3, 3), 0) + 0.3 * (fractal(rng, height, width, 40) - 0.5)
    return between_colours(t, any_colour(rng, (0, 0.5), (0.6, 1)), any_colour(rng, (0.2, 0.8), (0.1, 0.5)))


def tissue(rng: Rng, height: int, width: int) -> Array:
    """Adjacent cells of one hue, as under a microscope."""
    cell, seam = voronoi(rng, height, width, rng.uniform(11, 26))
    hue, tone = rng.random(), rng.random(cell.max() + 1, np.float32)[cell]
    inside = between_colours(tone, colour(hue, 0.25, 0.95), colour(hue + rng.uniform(0.05, 0.2), 0.5, 0.75))
    shade = 1 - 0.6 * np.clip(seam, 0, 1) + 0.2 * (cloud(rng, height, width, 4) - 0.5)
    return inside * to_rgb(shade)


def fields(rng: Rng, height: int, width: int) -> Array:
    """Farmland from the air, ploughed in several directions."""
    plot, seam = voronoi(rng, height, width, rng.uniform(50, 90))
    count = plot.max() + 1
    turn = rng.uniform(0, np.pi, count)
    pitch = np.stack([np.cos(turn), np.sin(turn)]) * 2 * np.pi / rng.uniform(4, 9, count)
    y, x = np.arange(height)[:, None], np.arange(width)[None]
    row = np.sin(x * pitch[0, plot] + y * pitch[1, plot])
    crops = np.stack([colour(h, s, v) for h, s, v in rng.uniform((0.08, 0.3, 0.35), (0.35, 0.7, 0.8), (count, 3))])
    shade = 1 + 0.15 * row + 0.3 * (fractal(rng, height, width, 30) - 0.5) - 0.4 * seam
    return crops[plot] * to_rgb(shade)


def hills(rng: Rng, height: int, width: int) -> Array:
    """Ridges behind ridges under a cloudy sky, paler with distance."""
    hue = rng.random()
    sky = between_colours(fractal(rng, height, width, 60), colour(rng.uniform(0.5, 0.65), 0.5, 0.9), colour(0, 0, 1))
    count = int(rng.integers(3, 7))
    y = np.arange(height, dtype=np.float32)[:, None]
    for k in range(count):
        top = height * (0.25 + 0.7 * k / count) - (fractal(rng, 2, width, 50)[:1] - 0.5) * height * 0.35
        cover = to_rgb(np.clip(y - top, 0, 1))
        near = (k + 1) / count
        ground = colour(hue, 0.15 + 0.5 * near, 0.85 - 0.5 * near) * to_rgb(0.8 + 0.4 * cloud(rng, height, width, 5))
        sky = sky + cover * (ground - sky)
    return sky


def page(rng: Rng, height: int, width: int) -> Array:
    """A printed page, slightly rotated and so blurred that its words are grey bars."""
    ink = np.zeros((height, width), np.uint8)
    pitch, margin = int(rng.integers(7, 14)), int(rng.integers(8, 30))
    for top in range(pitch, height - pitch, pitch):
        end = (width - margin) * (rng.random() if rng.random() < 0.2 else 1)  # some lines end a paragraph
        edges = margin + np.cumsum(rng.integers(9, 34, 40))
        for start, stop in pairwise(edges[edges < end].tolist()):
            ink[top : top + pitch // 2, start : stop - 4] = rng.integers(120, 255)
    turn = cv2.getRotationMatrix2D((width / 2, height / 2), rng.uniform(-8, 8), 1.05)
    t = cv2.warpAffine(ink, turn, (width, height), flags=cv2.INTER_LINEAR).astype(np.float32) / 255
    t = t * (0.4 + cloud(rng, height, width, 2)) * 0.9
    return between_colours(t, any_colour(rng, (0, 0.15), (0.8, 1)), any_colour(rng, (0, 0.6), (0.1, 0.35)))


def streets(rng: Rng, height: int, width: int) -> Array:
    """A town map: parks and water, and roads of two widths."""
    land = any_colour(rng, (0, 0.15), (0.8, 0.95))
    image = np.broadcast_to(land, (height, width, 3))
    patches = fractal(rng, height, width, 70)
    for level, tint in ((0.62, colour(0.3, 0.35, 0.85)), (0.38, colour(0.57, 0.4, 0.9))):
        cover = np.clip((patches - level) * (40 if level > 0.5 else -40), 0, 1)
        image = image + to_rgb(cover) * (tint - image)
    turn, reach = rng.uniform(0, np.pi), height + width
    for spacing, thickness, tint in ((24, 3, colour(0, 0, 1)), (90, 6, colour(rng.uniform(0, 0.15), 0.5, 0.95))):
        roads = [_road(rng, turn + k % 2 * np.pi / 2, reach) for k in range(reach // spacing)]
        for extra, shade in ((2, tint * 0.7), (0, tint)):
            cover = to_rgb(lines((height, width), roads, thickness + extra))
            image = image + cover * (shade - image)
    return image


def _road(rng: Rng, turn: float, reach: int) -> Array:
    along = np.array([np.cos(turn), np.sin(turn)])
    bend = np.cumsum(rng.normal(0, 4, 9))
    step = np.linspace(-1, 1, 9) * reach
    return rng.uniform(0, reach / 2, 2) + step[:, None] * along + bend[:, None] * along[::-1] * [-1, 1]


def contours(rng: Rng, height: int, width: int) -> Array:
    """A relief map: tinted height levels with contour lines."""
    relief = fractal(rng, height, width, rng.uniform(50, 90)) * rng.uniform(8, 18)
    step = np.floor(relief)
    line = np.clip(1 - (relief - step) * 5, 0, 1)
    low, high = any_colour(rng, (0.2, 0.6), (0.5, 0.8)), any_colour(rng, (0.05, 0.4), (0.8, 1))
    return between_colours(step / step.max(), low, high) * to_rgb(1 - 0.5 * line)


OTHER_SCENES: tuple[Texture, ...] = (maze, tissue, fields, hills, page, streets, contours)


# Seven-segment digits as strokes in a box of 1 by 1.6, y down. Nothing in them is round, so that none is a ring.

DIGITS: tuple[list[Array], ...] = (
    [points((0, 0), (1, 0), (1, 1.6), (0, 1.6), (0, 0))],
    [points((1, 0), (1, 1.6))],
    [points((0, 0), (1, 0), (1, 0.8), (0, 0.8), (0, 1.6), (1, 1.6))],
    [points((0, 0), (1, 0), (1, 1.6), (0, 1.6)), points((0, 0.8), (1, 0.8))],
    [points((0, 0), (0, 0.8), (1, 0.8)), points((1, 0), (1, 1.6))],
    [points((1, 0), (0, 0), (0, 0.8), (1, 0.8), (1, 1.6), (0, 1.6))],
    [points((1, 0), (0, 0), (0, 1.6), (1, 1.6), (1, 0.8), (0, 0.8))],
    [points((0, 0), (1, 0), (1, 1.6))],
    [points((0, 0), (1, 0), (1, 1.6), (0, 1.6), (0, 0)), points((0, 0.8), (1, 0.8))],
    [points((1, 0.8), (0, 0.8), (0, 0), (1, 0), (1, 1.6), (0, 1.6))],
)


def digits(rng: Rng, height: int, width: int) -> Array:
    """A house number of one to four digits, faint, flat and blurred, or only a wall."""
    wall = any_colour(rng, (0, 0.3), (0.2, 0.95))
    image = between_colours(fractal(rng, height, width, 80), wall, wall * rng.uniform(0.6, 1.1))
    image = image * to_rgb(0.9 + 0.2 * cloud(rng, height, width, rng.uniform(1.5, 12), rng.uniform(1.5, 60)))
    count = int(rng.choice(5, p=[0.3, 0.1, 0.25, 0.25, 0.1]))
    if count == 0:
        return image
    tall = min(height * rng.uniform(0.35, 0.85), 1.1 * width / count)
    pitch = tall / 1.6 * 1.35
    left, top = (width - pitch * count) * rng.random() + pitch * 0.13, (height - tall) * rng.random()
    lean, climb = rng.uniform(-0.25, 0.25), rng.uniform(-0.1, 0.1)
    selected = rng.integers(0, 10, count)
    strokes = [
        (s + s[:, ::-1] * [lean, climb]) * tall / 1.6 + [left + k * pitch, top]
        for k, digit in enumerate(selected)
        for s in DIGITS[digit]
    ]
    cover = to_rgb(lines((height, width), strokes, tall * rng.uniform(0.06, 0.12)))
    paint = wall + (np.float32(0 if wall.mean() > 120 else 255) - wall) * np.float32(rng.uniform(0.25, 0.6))
    return cv2.GaussianBlur(image + cover * (paint - image), (0, 0), rng.uniform(1, 3))
