"""The kinds of object in the scenes of `shapes`: functions that draw outlines and marks, in arbitrary units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Array = np.ndarray
Rng = np.random.Generator
T = TypeVar("T")


@dataclass(frozen=True)
class Mark:
    """A polygon painted on an object, in its base or accent colour; `tone` multiplies the brightness."""

    points: Array
    tone: float = 1.0
    accent: bool = False


@dataclass(frozen=True)
class Shape:
    """Contours filled by the even-odd rule, the marks on them, and how far they bulge.

    A contour is (n, 2) float64: x to the right and y down, at any scale.
    """

    outline: list[Array]
    marks: list[Mark]
    relief: float
    tilt: float = np.pi  # radians by which it may be rotated from upright


Kind = Callable[[Rng, float], Shape]


def between(rng: Rng, low: float, high: float, spread: float = 1.0) -> float:
    """A uniform sample from an interval that `spread` stretches about its centre."""
    half = (high - low) / 2
    return (low + high) / 2 + half * spread * rng.uniform(-1, 1)


def pick(rng: Rng, choices: Sequence[T]) -> T:
    """One of the choices, all equally likely."""
    return choices[int(rng.integers(len(choices)))]


def points(*pairs: tuple[float, float]) -> Array:
    """The corners of a polygon."""
    return np.array(pairs, np.float64)


def rotate(contour: Array, angle: float) -> Array:
    """Rotate a contour clockwise about the origin, in radians; without BLAS, whose sums differ between machines."""
    x, y = contour[:, 0], contour[:, 1]
    return np.stack([x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)], axis=1)


def arc(start: float, stop: float, count: int, rx: float = 0.5, ry: float = 0.5) -> Array:
    """Points along an ellipse about the origin, from one angle to another."""
    t = np.linspace(start, stop, count)
    return np.stack([rx * np.cos(t), ry * np.sin(t)], axis=1)


def circle(rx: float = 0.5, ry: float = 0.5) -> Array:
    """An ellipse about the origin."""
    return arc(0, 2 * np.pi, 49, rx, ry)[:-1]


def ribbon(spine: Array, width: Array | float) -> Array:
    """The outline of a band along a line; `width` is a number, or one per point of the line."""
    along = np.gradient(spine, axis=0)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1) / np.hypot(along[:, 0], along[:, 1])[:, None]
    half = across * np.broadcast_to(np.asarray(width) / 2, len(spine))[:, None]
    return np.concatenate([spine + half, (spine - half)[::-1]])


def ball(rng: Rng, spread: float) -> Shape:
    """A sphere, plain or with a bent band or a cap in the accent colour."""
    marks = []
    look = rng.random()
    bulge = between(rng, 0.1, 0.25, spread)
    if look < 0.4:
        band = np.concatenate([arc(0, np.pi, 17, 0.5, bulge), arc(np.pi, 0, 17, 0.5, bulge - 0.22)])
        marks = [Mark(band, accent=True)]
    elif look < 0.7:
        marks = [
            Mark(np.concatenate([arc(np.pi, 2 * np.pi, 17, 0.52, 0.52), arc(0, np.pi, 17, 0.5, bulge)]), accent=True)
        ]
    return Shape([circle()], marks, relief=1.0)


def crate(rng: Rng, spread: float) -> Shape:
    """A box seen from a corner: a framed front of planks, a lighter top and a darker side."""
    w, h = 1.0, between(rng, 0.65, 1.0, spread)
    dx, dy = between(rng, 0.12, 0.3, spread) * rng.choice([-1, 1]), -between(rng, 0.12, 0.3, spread)
    right = w if dx > 0 else 0.0
    front = points((0, 0), (w, 0), (w, h), (0, h))
    top = points((0, 0), (w, 0), (w + dx, dy), (dx, dy))
    side = points((right, 0), (right, h), (right + dx, h + dy), (right + dx, dy))
    t = between(rng, 0.1, 0.15)
    inner = points((t, t), (w - t, t), (w - t, h - t), (t, h - t))
    brace = points((t, t), (2 * t, t), (w - t, h - t), (w - 2 * t, h - t))
    marks = [Mark(top, 1.2), Mark(side, 0.6), Mark(front, 1.0), Mark(inner, 0.72), Mark(brace, 1.0)]
    if rng.random() < 0.4:
        marks.append(Mark(brace * [-1, 1] + [w, 0], 1.0))
    far = points((right + dx, h + dy), (right + dx, dy), (w - right + dx, dy))
    outline = np.concatenate([points((w - right, 0), (w - right, h), (right, h)), far])
    return Shape([outline], marks, relief=0.15)


def cone(rng: Rng, spread: float) -> Shape:
    """A road cone on its slab, with one or two bands."""
    foot, slab = between(rng, 0.24, 0.32, spread), between(rng, 0.34, 0.42, spread)
    tip, step = between(rng, 0.03, 0.07), 0.38
    half = points((tip, -0.5), (foot, step), (slab, step), (slab, 0.5))
    marks = []
    for at in ([-0.2, 0.1], [-0.05], [])[rng.choice(3, p=[0.4, 0.4, 0.2])]:
        low, high = (tip + (foot - tip) * (y + 0.5) / (step + 0.5) for y in (at, at + 0.15))
        marks.append(Mark(points((-low, at), (low, at), (high, at + 0.15), (-high, at + 0.15)), accent=True))
    marks.append(Mark(points((-slab, step), (slab, step), (slab, 0.5), (-slab, 0.5)), 0.75))
    return Shape([np.concatenate([half, (half * [-1, 1])[::-1]])], marks, relief=0.9, tilt=0.5 * spread)


def ring(rng: Rng, spread: float) -> Shape:
    """A torus seen from above or at an angle, plain or with the bands of a life buoy."""
    squash = between(rng, 0.65, 1.0, spread) if spread == 1 else between(rng, 0.55, 1.0)
    hole = between(rng, 0.26, 0.34, spread)
    marks = []
    if rng.random() < 0.5:
        for k in range(4):
            wedge = arc(k * np.pi / 2 - 0.3, k * np.pi / 2 + 0.3, 5, 0.6, 0.6 * squash)
            marks.append(Mark(np.concatenate([points((0, 0)), wedge]), accent=True))
    return Shape([circle(0.5, 0.5 * squash), circle(hole, hole * squash)], marks, relief=1.0)


def star(rng: Rng, spread: float) -> Shape:
    """A five-pointed star whose points have a light and a dark half; some have a smaller star on them."""
    turn = -np.pi / 2 + np.arange(10) * np.pi / 5
    radius = np.where(np.arange(10) % 2 == 0, 0.5, 0.5 * between(rng, 0.42, 0.52, spread))
    corners = np.stack([np.cos(turn), np.sin(turn)], axis=1) * radius[:, None]
    marks = [Mark(np.stack([corners[k], corners[k + 1], [0, 0]]), 0.75) for k in range(0, 10, 2)]
    if rng.random() < 0.3:
        marks = [Mark(corners * 0.6, accent=True)]
    return Shape([corners], marks, relief=0.5)


def cross(rng: Rng, spread: float) -> Shape:
    """Two crossed bars of the same width."""
    t = between(rng, 0.12, 0.17, spread)
    arm = points((-t, -t), (-t, -0.5), (t, -0.5), (t, -t))
    arms = [rotate(arm, quarter * np.pi / 2) for quarter in range(4)]
    centre = Mark(points((-t, -t), (t, -t), (t, t), (-t, t)), 0.75, accent=bool(rng.random() < 0.5))
    return Shape([np.concatenate(arms)], [centre], relief=0.5)


def crescent(rng: Rng, spread: float) -> Shape:
    """A moon in its first quarter."""
    depth = between(rng, 0.02, 0.2, spread)
    inner = arc(np.pi / 2, -np.pi / 2, 21, depth, 0.5)
    return Shape([np.concatenate([arc(-np.pi / 2, np.pi / 2, 25), inner])], [], relief=0.9)


def heart(rng: Rng, spread: float) -> Shape:
    """A heart, some with a band across."""
    t = np.linspace(0, 2 * np.pi, 49)[:-1]
    x = 16 * np.sin(t) ** 3
    y = -(13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t))
    band = Mark(points((-20, -4), (20, -8), (20, -2), (-20, 2)), accent=True)
    stretch = between(rng, 0.9, 1.1, spread)
    return Shape([np.stack([x, y * stretch], axis=1)], [band] if rng.random() < 0.4 else [], relief=0.8)


def gear(rng: Rng, spread: float) -> Shape:
    """A cog wheel with a square hub instead of a hole, so that it is not a ring."""
    teeth = int(rng.integers(7, 11))
    turn = np.arange(4 * teeth) * np.pi / (2 * teeth)
    radius = np.where(np.arange(4 * teeth) % 4 < 2, 0.5, between(rng, 0.36, 0.4, spread))
    hub = points((-0.1, -0.1), (0.1, -0.1), (0.1, 0.1), (-0.1, 0.1))
    return Shape([np.stack([np.cos(turn), np.sin(turn)], axis=1) * radius[:, None]], [Mark(hub, 0.4)], relief=0.3)


def bottle(rng: Rng, spread: float) -> Shape:
    """A bottle with a cap and a label."""
    body, neck = between(rng, 0.15, 0.22, spread), between(rng, 0.05, 0.07)
    half = points((neck, -0.5), (neck, -0.25), (body, -0.08), (body, 0.47), (body - 0.04, 0.5))
    label = Mark(points((-1, 0.08), (1, 0.08), (1, 0.34), (-1, 0.34)), accent=True)
    cap = Mark(points((-1, -0.6), (1, -0.6), (1, -0.4), (-1, -0.4)), 0.6)
    return Shape([np.concatenate([half, (half * [-1, 1])[::-1]])], [label, cap], relief=0.9, tilt=0.8)


def arrow(rng: Rng, spread: float) -> Shape:
    """A broad arrow with a notched tail."""
    shaft, head = between(rng, 0.08, 0.13, spread), between(rng, 0.26, 0.34, spread)
    half = points((0.5, 0), (0.05, head), (0.1, shaft), (-0.5, shaft))
    outline = np.concatenate([half, points((-0.4, 0)), (half * [1, -1])[:0:-1]])
    return Shape([outline], [Mark(points((-0.4, -1), (-0.3, -1), (-0.3, 1), (-0.4, 1)), accent=True)], relief=0.4)


def leaf(rng: Rng, spread: float) -> Shape:
    """A pointed leaf with its veins and a stalk."""
    t = np.linspace(0, 1, 21)
    spine = np.stack([t - 0.5, between(rng, -0.15, 0.15, spread) * np.sin(np.pi * t)], axis=1)
    width = np.maximum(between(rng, 0.35, 0.5, spread) * np.sin(np.pi * np.clip(t / 0.85, 0, 1)) ** 0.8, 0.035)
    veins = [Mark(ribbon(spine, 0.03), 0.6)]
    for k in (5, 8, 11):
        for side in (-1, 1):
            veins.append(Mark(ribbon(np.stack([spine[k], spine[k] + [-0.12, side * 0.2]]), 0.02), 0.7))
    return Shape([ribbon(spine, width)], veins, relief=0.4)


def blob(rng: Rng, spread: float) -> Shape:
    """A lump, elongated and lobed so that it does not look like a ball."""
    t = np.linspace(0, 2 * np.pi, 41)[:-1]
    radius = 1 + 0.22 * np.sin(2 * t + rng.uniform(0, 6)) + 0.2 * np.sin(3 * t + rng.uniform(0, 6))
    radius += 0.1 * np.sin(5 * t + rng.uniform(0, 6))
    flat = between(rng, 0.35, 0.55, spread)
    return Shape([np.stack([radius * np.cos(t), flat * radius * np.sin(t)], axis=1)], [], relief=0.6)


def splinter(rng: Rng, spread: float) -> Shape:
    """A thin straight lath."""
    ends = np.stack([np.linspace(-0.5, 0.5, 4), np.zeros(4)], axis=1)
    return Shape([ribbon(ends, between(rng, 0.04, 0.1, spread) * np.array([0.6, 1, 1, 0.8]))], [], relief=0.5)


def squiggle(rng: Rng, spread: float) -> Shape:
    """A wavy piece of cable."""
    t = np.linspace(0, 1, 41)
    wave = between(rng, 0.06, 0.16, spread) * np.sin(between(rng, 5, 14) * t + rng.uniform(0, 6))
    return Shape([ribbon(np.stack([t, wave], axis=1), between(rng, 0.04, 0.07))], [], relief=1.0)


def blade(rng: Rng, spread: float) -> Shape:
    """A bent blade of grass."""
    t = np.linspace(0, 1, 21)
    spine = np.stack([t, between(rng, 0.1, 0.4, spread) * t**2], axis=1)
    return Shape([ribbon(spine, between(rng, 0.05, 0.1) * (1.05 - t))], [], relief=0.5)


def fork(rng: Rng, spread: float) -> Shape:
    """A forked twig."""
    a, b, t = between(rng, 0.2, 0.4, spread), between(rng, -0.4, -0.1, spread), between(rng, 0.025, 0.04)
    corners = [(-0.5, -t), (0.05, -t), (0.5, b - t), (0.5, b + t), (0.12, 0), (0.45, a - t), (0.42, a + t), (0, t)]
    return Shape([points(*corners, (-0.5, t))], [], relief=0.7)


def comb(rng: Rng, spread: float) -> Shape:
    """A bar with teeth on one side."""
    teeth = int(rng.integers(4, 8))
    depth = between(rng, 0.12, 0.3, spread)
    x = np.repeat(np.linspace(-0.5, 0.5, 2 * teeth), 2)
    y = np.tile([0, depth, depth, 0], teeth)
    return Shape([np.concatenate([np.stack([x, y], axis=1), points((0.5, -0.08), (-0.5, -0.08))])], [], relief=0.4)


THINGS: dict[str, Kind] = {"ball": ball, "crate": crate, "cone": cone, "ring": ring, "star": star}
STRANGERS: tuple[Kind, ...] = (cross, crescent, heart, gear, bottle, arrow, leaf)
CLUTTER: tuple[Kind, ...] = (blob, splinter, squiggle, blade)
OTHER_CLUTTER: tuple[Kind, ...] = (blob, squiggle, fork, comb)
