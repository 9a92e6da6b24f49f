"""imagecorruptions 1.1.2 on current packages, and what it draws from numpy's global generator.

Three stand-ins make it run, none of which outlives a call but the one inside its own module.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from saod_ray.corrupt import textures, weather
from saod_ray.corrupt.elastic import ElasticDraw
from saod_ray.corrupt.noise import KEPT, NOISES, PEPPER, SALT
from saod_ray.corrupt.weather import FOG, SNOW, FrostDraw, SnowDraw

Array = np.ndarray


@functools.cache
def corruptions() -> Any:
    """The library's module; setuptools no longer has the `pkg_resources` that it imports."""
    spec = importlib.util.find_spec("imagecorruptions")
    assert spec is not None and spec.origin is not None
    folder = Path(spec.origin).parent
    stand_in: Any = types.ModuleType("pkg_resources")
    stand_in.resource_filename = lambda name, path: str(folder / path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = sys.modules.get("pkg_resources")
        sys.modules["pkg_resources"] = stand_in
        try:
            module: Any = importlib.import_module("imagecorruptions.corruptions")
        finally:
            del sys.modules["pkg_resources"]
            if before is not None:
                sys.modules["pkg_resources"] = before
    module.gaussian = functools.partial(_gaussian, module.gaussian)
    return module


def _gaussian(current: Any, image: Array, sigma: Any, multichannel: bool = False, **options: Any) -> Array:
    """scikit-image now says `channel_axis` for what was `multichannel`."""
    return current(image, sigma, channel_axis=-1 if multichannel else None, **options)


@contextmanager
def global_seed(seed: int) -> Iterator[None]:
    """Seed numpy's global generator, and put back what it was."""
    state = np.random.get_state()
    np.random.seed(seed)
    try:
        yield
    finally:
        np.random.set_state(state)


def corrupted(image: Array, name: str, severity: int, seed: int = 0) -> Array:
    """What the library makes of an image."""
    module = corruptions()
    package: Any = sys.modules["imagecorruptions"]
    with ExitStack() as stack:
        stack.enter_context(global_seed(seed))
        stack.enter_context(patch.object(np, "float_", np.float64, create=True))
        # scikit-image's noise no longer listens to the global generator: hand it a seed.
        seeded = functools.partial(module.sk.util.random_noise, rng=seed)
        stack.enter_context(patch.object(module.sk.util, "random_noise", seeded))
        return np.asarray(package.corrupt(image, severity, name))


def draws(name: str, height: int, width: int, severity: int, seed: int = 0) -> Any:
    """What the library draws for an image of this size, in the form that our `apply` takes."""
    with global_seed(seed):
        if name == "motion_blur":
            return np.random.uniform(-45, 45)
        if name == "snow":
            return _snow(height, width, severity)
        if name == "frost":
            texture = int(np.random.randint(5))
            rows, columns = textures.size_for(texture, height, width)
            return FrostDraw(texture, np.random.randint(0, rows - height), np.random.randint(0, columns - width))
        if name == "fog":
            return _fog(weather.plasma_side(height, width), FOG[severity - 1][1])
        if name == "elastic_transform":
            far = height * 0.005
            fields = (np.random.uniform(-far, far, size=(height, width)) for _ in range(2))
            return ElasticDraw(*((field / far).astype(np.float32) for field in fields))
        return None


def _snow(height: int, width: int, severity: int) -> SnowDraw:
    c = SNOW[severity - 1]
    noise = np.random.normal(size=(height, width), loc=c.mean, scale=c.deviation)
    rows, columns = math.ceil(height / c.zoom), math.ceil(width / c.zoom)
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = noise[top : top + rows, left : left + columns]
    return SnowDraw((middle - c.mean) / c.deviation, np.random.uniform(-135, -45))


def _fog(side: int, decay: float) -> Array:
    levels, wibble, points = [], 100.0, 1
    while points < side:
        levels.append(np.random.uniform(-wibble, wibble, 3 * points * points) / wibble)
        wibble /= decay
        points *= 2
    return np.clip(np.round(np.concatenate(levels) * 32768 - 0.5), -32768, 32767).astype(np.int16)


def noise_draws(name: str, image: Array, severity: int, seed: int = 0) -> Array:
    """What the library draws for every byte of an image, in the form that a noise's `level` takes."""
    c = NOISES[name].strengths[severity - 1]
    if name == "impulse_noise":
        rng = np.random.default_rng(seed)
        flipped = rng.random(image.shape) <= c
        salted = rng.random(image.shape) <= 0.5
        return np.where(flipped, np.where(salted, SALT, PEPPER), KEPT)
    with global_seed(seed):
        if name == "shot_noise":
            return np.random.poisson(image / 255.0 * c)
        return np.random.normal(size=image.shape, scale=c)
