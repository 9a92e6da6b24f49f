"""Applies a corruption to an image. To add one, add its steps to `STEPS` and its name to `draw.CORRUPTIONS`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from saod_ray.corrupt import blur, digital, elastic, noise, weather
from saod_ray.corrupt.draw import CORRUPTIONS, check_severity, generator
from saod_ray.corrupt.images import as_rgb
from saod_ray.errors import SaodError, did_you_mean

Array = np.ndarray


class Corruption(NamedTuple):
    """The two steps of a corruption.

    `draws(rng, height, width, severity)` makes all random choices; `apply(image, draws, severity)` is deterministic.
    """

    draws: Callable[[np.random.Generator, int, int, int], Any]
    apply: Callable[[Array, Any, int], Array]


def _no_draws(rng: np.random.Generator, height: int, width: int, severity: int) -> None:
    return None


STEPS: dict[str, Corruption] = {
    **{name: Corruption(noise.key_draw, partial(noise.apply_noise, name)) for name in noise.NOISES},
    "defocus_blur": Corruption(_no_draws, blur.defocus_blur),
    "motion_blur": Corruption(blur.motion_draw, blur.motion_blur),
    "gaussian_blur": Corruption(_no_draws, blur.gaussian_blur),
    "snow": Corruption(weather.snow_draw, weather.snow),
    "frost": Corruption(weather.frost_draw, weather.frost),
    "fog": Corruption(weather.fog_draw, weather.fog),
    "brightness": Corruption(_no_draws, weather.brightness),
    "contrast": Corruption(_no_draws, digital.contrast),
    "elastic_transform": Corruption(elastic.elastic_draw, elastic.elastic_transform),
    "pixelate": Corruption(_no_draws, digital.pixelate),
    "jpeg_compression": Corruption(_no_draws, digital.jpeg_compression),
}


def corrupt(image: Array, corruption: str, severity: int, seed: int, image_id: int) -> Array:
    """Corrupt an image; the result is a new (height, width, 3) uint8 array.

    It depends on these five arguments alone. SaodError for an unknown corruption or severity, or an array that is not an
    image.
    """
    if not isinstance(corruption, str) or corruption not in STEPS:
        hint = did_you_mean(str(corruption), CORRUPTIONS)
        raise SaodError(f"There is no corruption '{corruption}'{hint}: use one of {', '.join(CORRUPTIONS)}.")
    severity = check_severity(severity)
    rgb = as_rgb(image)
    rng = generator(seed, image_id, corruption, severity)
    steps = STEPS[corruption]
    return steps.apply(rgb, steps.draws(rng, rgb.shape[0], rgb.shape[1], severity), severity)
