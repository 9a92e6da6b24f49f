"""Scenes of the built-in use case `shapes`: procedural images with exact boxes, determined by seed, split and index."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from hashlib import blake2b

import cv2
import numpy as np

from saod_ray.data import backdrops
from saod_ray.data.backdrops import Texture, any_colour, between_colours, cloud, colour, to_rgb
from saod_ray.data.kinds import CLUTTER, OTHER_CLUTTER, STRANGERS, THINGS, Array, Kind, Rng, Shape, pick, rotate
from saod_ray.errors import SaodError

CLASSES: tuple[str, ...] = tuple(THINGS)
SPLITS: tuple[str, ...] = ("train", "val", "id", "ood-kinds", "ood-scenes", "ood-digits")

SIDE = (160, 320)  # least and greatest side of an image, in pixels
ASPECT = 1.8  # maximum ratio of the longer side to the shorter one
SIZE = (20.0, 160.0)  # longest side of an object in pixels, before occlusion
CLUTTER_SIZE = (22.0, 110.0)  # not smaller, as a tiny lump could be an object of any class
VISIBLE_SHARE = 0.5  # minimum visible share of an object's pixels
VISIBLE_AREA = 56  # minimum visible pixels of an object
TRIES = 8
SATURATION = (0.45, 0.95)  # of objects
CLASS_HUES = (0.0, 0.09, 0.2, 0.6, 0.8)  # the most frequent hue of each class


@dataclass(frozen=True)
class Thing:
    """An object: the tight box of its visible pixels (x, y, width, height), and their number."""

    label: int
    x: int
    y: int
    w: int
    h: int
    area: int


@dataclass(frozen=True)
class Scene:
    """An RGB image, (height, width, 3) uint8, and its objects from back to front; OOD scenes have none."""

    image: Array
    things: tuple[Thing, ...]


Span = tuple[float, float]
Window = tuple[slice, slice]


@dataclass(frozen=True)
class Style:
    """What differs between splits. A span is an interval that values are drawn from uniformly."""

    kinds: tuple[Kind, ...] = tuple(THINGS.values())
    grounds: tuple[Texture, ...] = backdrops.GROUNDS
    clutter: tuple[Kind, ...] = CLUTTER
    ground_saturation: Span = (0.05, 0.4)
    ground_value: Span = (0.4, 0.9)
    clutter_saturation: Span = (0.05, 0.35)
    loyalty: float = 0.85  # probability that an object has the hue of its class
    spread: float = 1.0  # how much the proportions of objects vary
    small: float = 1.0  # above 1 there are more small objects than with log-uniform sizes
    azimuth: Span = (-2.6, -0.5)  # of the light, in radians; -pi/2 is above
    elevation: Span = (0.7, 1.1)
    gradient: Span = (0.0, 0.2)
    vignette: Span = (0.0, 0.15)
    cast: float = 0.03
    blur: Span = (0.3, 0.7)
    noise: Span = (2.0, 6.0)
    empty: float = 0.02  # probability that there is no object
    borrows: bool = False  # whether objects take the hues of random classes


PLAIN = Style()
SHIFTED = Style(
    grounds=backdrops.OTHER_GROUNDS,
    clutter=OTHER_CLUTTER,
    ground_saturation=(0.1, 0.5),
    ground_value=(0.3, 0.8),
    clutter_saturation=(0.1, 0.5),
    loyalty=0.75,
    spread=1.2,
    small=1.35,
    azimuth=(-1.2, 0.6),
    elevation=(0.6, 1.0),
    gradient=(0.05, 0.3),
    vignette=(0.05, 0.3),
    cast=0.1,
    blur=(0.3, 0.8),
    noise=(3.0, 7.0),
    empty=0.0,
)
STRANGE = replace(PLAIN, kinds=STRANGERS, empty=0.0, borrows=True)
STYLES = {"train": PLAIN, "val": PLAIN, "id": SHIFTED, "ood-kinds": STRANGE}


@dataclass(frozen=True)
class Sprite:
    """A rendered object with a margin: its coverage of each pixel in 0..1, and its shaded colours."""

    cover: Array
    rgb: Array
    size: float


@dataclass
class Canvas:
    """An unfinished scene: its colours, the number of the object that owns each pixel (0: none), and the objects."""

    rgb: Array
    owner: Array
    labels: list[int] = field(default_factory=list)
    full: list[int] = field(default_factory=list)  # pixels of each object without occlusion
    visible: list[int] = field(default_factory=list)


def scene(seed: int, split: str, index: int) -> Scene:
    """A scene, which depends on the three arguments alone. SaodError if there is no such split."""
    image, canvas = compose(seed, split, index)
    if split.startswith("ood"):
        return Scene(image, ())
    return Scene(image, tuple(_thing(canvas, k) for k in range(len(canvas.labels))))


def _thing(canvas: Canvas, k: int) -> Thing:
    mask = (canvas.owner == k + 1).astype(np.uint8)
    x, y, w, h = cv2.boundingRect(mask)
    return Thing(canvas.labels[k], x, y, w, h, canvas.visible[k])


def compose(seed: int, split: str, index: int) -> tuple[Array, Canvas]:
    """The image and its canvas, whose `owner` has the mask of every object, OOD objects included."""
    if split not in SPLITS:
        raise SaodError(f"There is no split '{split}' in shapes: use one of {', '.join(SPLITS)}.")
    name = f"{seed}/{split}/{index}".encode()
    rng = np.random.default_rng(int.from_bytes(blake2b(name, digest_size=16).digest()))
    height, width = _random_size(rng)
    style = STYLES.get(split, PLAIN)
    if split in STYLES:
        canvas = _add_objects(rng, style, height, width)
    else:
        paint = pick(rng, backdrops.OTHER_SCENES) if split == "ood-scenes" else backdrops.digits
        canvas = _new_canvas(paint(rng, height, width))
    return _photograph(rng, style, canvas.rgb), canvas


def _random_size(rng: Rng) -> tuple[int, int]:
    while True:
        height, width = (int(side) for side in rng.integers(SIDE[0], SIDE[1], 2, endpoint=True))
        if max(height, width) <= ASPECT * min(height, width):
            return height, width


def _new_canvas(rgb: Array) -> Canvas:
    return Canvas(rgb.astype(np.float32), np.zeros(rgb.shape[:2], np.uint8))


def _add_objects(rng: Rng, style: Style, height: int, width: int) -> Canvas:
    """A background with clutter, and in front of it objects and more clutter in random order."""
    ground = any_colour(rng, style.ground_saturation, style.ground_value)
    second = ground * rng.uniform(0.4, 0.8) + rng.uniform(0, 40, 3).astype(np.float32)
    canvas = _new_canvas(between_colours(pick(rng, style.grounds)(rng, height, width), ground, second))
    light = _light(rng, style)
    count = 0 if rng.random() < style.empty else 1 + int(rng.binomial(6, 0.44))
    in_front = rng.permutation([True] * count + [False] * int(rng.integers(0, 3)))
    for is_thing in [False] * int(rng.integers(1, 6)) + in_front.tolist():
        label = int(rng.integers(len(style.kinds))) if is_thing else None
        kind = pick(rng, style.clutter) if label is None else style.kinds[label]
        low, high, bias = (*CLUTTER_SIZE, 1.0) if label is None else (*SIZE, style.small)
        size = low * (min(high, 0.7 * min(height, width)) / low) ** (rng.random() ** bias)
        paint = _paint(rng, style, label, ground)
        _place(rng, canvas, _render(rng, kind(rng, style.spread), size, light, paint), light, label)
    return canvas


def _light(rng: Rng, style: Style) -> Array:
    """The unit vector towards the light: x to the right, y down, z towards the viewer."""
    around, up = rng.uniform(*style.azimuth), rng.uniform(*style.elevation)
    return np.array([np.cos(around) * np.cos(up), np.sin(around) * np.cos(up), np.sin(up)], np.float32)


def _paint(rng: Rng, style: Style, label: int | None, ground: Array) -> tuple[Array, Array]:
    """A base colour that contrasts with the background, and an accent colour. Clutter is paler than objects."""
    home = pick(rng, CLASS_HUES) if label is None or style.borrows else CLASS_HUES[label]
    loyalty, saturation = (0.0, style.clutter_saturation) if label is None else (style.loyalty, SATURATION)
    for _ in range(6):
        hue = home + rng.normal(0, 0.03) if rng.random() < loyalty else rng.random()
        base = colour(hue, rng.uniform(*saturation), rng.uniform(0.45, 1.0))
        if np.abs(base - ground).sum() > 120:
            break
    accent = colour(rng.random(), rng.choice([0.05, 0.8]), rng.choice([0.25, 0.95]))
    return base, accent


def _render(rng: Rng, shape: Shape, size: float, light: Array, paint: tuple[Array, Array]) -> Sprite:
    """Draw a shape, rotated at random, painted and lit, with a bounding box of `size` pixels."""
    angle = rng.uniform(-shape.tilt, shape.tilt)
    outline = [rotate(contour, angle) for contour in shape.outline]
    low, high = outline[0].min(0), outline[0].max(0)
    scale, margin = size / (high - low).max(), 3 + int(size / 8)
    columns, rows = np.ceil((high - low) * scale).astype(int) + 2 * margin

    def pixels(contour: Array) -> Array:
        return np.rint(((contour - low) * scale + margin) * 16).astype(np.int32)

    mask = np.zeros((rows, columns), np.uint8)
    cv2.fillPoly(mask, [pixels(contour) for contour in outline], 255, cv2.LINE_AA, 4)
    flat = np.empty((rows, columns, 3), np.uint8)
    flat[:] = paint[0]
    for mark in shape.marks:
        tint = np.clip(paint[int(mark.accent)] * mark.tone, 0, 255)
        cv2.fillPoly(flat, [pixels(rotate(mark.points, angle))], tint.tolist(), cv2.LINE_AA, 4)
    grain = 0.9 + 0.2 * cloud(rng, rows, columns, max(2.0, size / rng.uniform(3, 20)))
    lit, glint = _shading(mask, light, shape.relief, 0.7 + size / 50)
    rgb = flat * to_rgb(lit * grain) + to_rgb(glint * np.float32(rng.uniform(0, 150)))
    return Sprite(mask.astype(np.float32) / 255, rgb, size)


def _shading(mask: Array, light: Array, relief: float, smooth: float) -> tuple[Array, Array]:
    """Diffuse light and highlight on a dome over the mask: a disc becomes a sphere, an annulus a torus."""
    depth = cv2.distanceTransform((mask >= 128).astype(np.uint8), cv2.DIST_L2, cv2.DIST_MASK_PRECISE)
    depth = np.sqrt(np.rint(depth * depth))  # OpenCV's last bit varies between calls; the square is an integer
    top = max(float(depth.max()), 1.0)
    dome = cv2.GaussianBlur(top * np.sqrt(1 - (1 - depth / top) ** 2), (0, 0), smooth)
    dx = cv2.Sobel(dome, cv2.CV_32F, 1, 0, scale=-relief / 8)
    dy = cv2.Sobel(dome, cv2.CV_32F, 0, 1, scale=-relief / 8)
    slope = 1 / np.sqrt(1 + dx * dx + dy * dy)
    lit = 0.4 + 0.75 * np.maximum((dx * light[0] + dy * light[1] + light[2]) * slope, 0)
    half = (light + np.array([0, 0, 1], np.float32)) / np.sqrt(2 + 2 * light[2])
    glint = np.maximum((dx * half[0] + dy * half[1] + half[2]) * slope, 0)
    for _ in range(5):  # the 32nd power
        glint = glint * glint
    return lit, glint


def _place(rng: Rng, canvas: Canvas, sprite: Sprite, light: Array, label: int | None) -> None:
    """Try several positions; the sprite is left out if all of them hide it or another object too much."""
    solid = sprite.cover >= 0.5
    middle = np.array(solid.shape) / 2
    for attempt in range(TRIES):  # the last try is the centre, so that the first object is always placed
        is_last = attempt == TRIES - 1
        centre = np.array(canvas.owner.shape) / 2 if is_last else _position(rng, canvas, sprite.size)
        y, x = (int(v) for v in np.rint(centre - middle))
        inside, window = _windows(y, x, solid.shape, canvas.owner.shape)
        if _claim(canvas, window, solid[inside], int(solid.sum()), label):
            shade = -light[:2] / light[2] * (0.06 * sprite.size + 1)
            _cast_shadow(canvas.rgb, sprite, y + round(float(shade[1])), x + round(float(shade[0])))
            canvas.rgb[window] += to_rgb(sprite.cover[inside]) * (sprite.rgb[inside] - canvas.rgb[window])
            return


def _position(rng: Rng, canvas: Canvas, size: float) -> Array:
    """A random position, often so close to an object that one covers the other."""
    if not canvas.labels or rng.random() < 0.7:
        return rng.uniform((0, 0), canvas.owner.shape)
    neighbour = int(rng.integers(len(canvas.labels))) + 1
    x, y, w, h = cv2.boundingRect((canvas.owner == neighbour).astype(np.uint8))
    reach = (np.array([h, w]) + size) / 2
    return np.array([y + h / 2, x + w / 2]) + reach * rng.uniform(-1, 1, 2)


def _windows(y: int, x: int, shape: tuple[int, ...], within: tuple[int, ...]) -> tuple[Window, Window]:
    """Where a patch at (y, x) overlaps the canvas, as slices of the patch and of the canvas; possibly empty."""
    top, left = max(y, 0), max(x, 0)
    bottom, right = max(min(y + shape[0], within[0]), top), max(min(x + shape[1], within[1]), left)
    return np.s_[top - y : bottom - y, left - x : right - x], np.s_[top:bottom, left:right]


def _claim(canvas: Canvas, window: Window, solid: Array, full: int, label: int | None) -> bool:
    """Assign pixels to a new object (clutter owns none). False if too little of it or of another would be visible."""
    owner = canvas.owner[window]
    visible = int(solid.sum())
    remaining = np.array(canvas.visible, int) - np.bincount(owner[solid], minlength=len(canvas.visible) + 1)[1:]
    hides_others = (remaining < _min_visible(np.array(canvas.full))).any()
    if hides_others or (label is not None and visible < _min_visible(np.array(full))):
        return False
    canvas.visible[:] = remaining.tolist()
    if label is not None:
        canvas.labels.append(label)
        canvas.full.append(full)
        canvas.visible.append(visible)
    owner[solid] = 0 if label is None else len(canvas.labels)
    return True


def _min_visible(full: Array) -> Array:
    return np.maximum(VISIBLE_SHARE * full, VISIBLE_AREA)


def _cast_shadow(rgb: Array, sprite: Sprite, y: int, x: int) -> None:
    inside, window = _windows(y, x, sprite.cover.shape, rgb.shape)
    soft = cv2.GaussianBlur(sprite.cover, (0, 0), 1 + sprite.size / 30)
    rgb[window] *= to_rgb(1 - 0.5 * soft[inside])


def _photograph(rng: Rng, style: Style, rgb: Array) -> Array:
    """The final image, with uneven light, a colour cast, lens blur and sensor noise; uint8."""
    height, width = rgb.shape[:2]
    y, x = np.linspace(-1, 1, height, dtype=np.float32)[:, None], np.linspace(-1, 1, width, dtype=np.float32)[None]
    turn, slope = rng.uniform(0, 2 * np.pi), rng.uniform(*style.gradient)
    light = 1 + np.float32(slope * np.cos(turn)) * x + np.float32(slope * np.sin(turn)) * y
    light = light * (1 - np.float32(rng.uniform(*style.vignette)) * (x * x + y * y))
    cast = rng.uniform(1 - style.cast, 1 + style.cast, 3).astype(np.float32)
    soft = cv2.GaussianBlur(rgb * cv2.merge([light * c for c in cast]), (0, 0), rng.uniform(*style.blur))
    noise = rng.standard_normal((height, width), np.float32)
    strength = (rng.uniform(*style.noise) * rng.uniform(0.6, 1.2, 3)).astype(np.float32)
    return np.clip(np.rint(soft + cv2.merge([noise * c for c in strength])), 0, 255).astype(np.uint8)
