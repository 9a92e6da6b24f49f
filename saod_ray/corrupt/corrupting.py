"""One image in, one corrupted image out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from saod_ray.corrupt import blur, digital, elastic, noise, weather
from saod_ray.corrupt.draw import CORRUPTIONS, generator, known_severity
from saod_ray.corrupt.images import as_rgb
from saod_ray.errors import SaodError, did_you_mean

Array = np.ndarray


class Corruption(NamedTuple):
    """All that is random, from a generator, a height, a width and a severity; and what it does to an image."""

    draws: Callable[[np.random.Generator, int, int, int], Any]
    apply: Callable[[Array, Any, int], Array]


def _nothing(rng: np.random.Generator, height: int, width: int, severity: int) -> None:
    return None


STEPS: dict[str, Corruption] = {
    **{name: Corruption(noise.key_draw, partial(noise.sampled, name)) for name in noise.NOISES},
    "defocus_blur": Corruption(_nothing, blur.defocus_blur),
    "motion_blur": Corruption(blur.motion_draw, blur.motion_blur),
    "gaussian_blur": Corruption(_nothing, blur.gaussian_blur),
    "snow": Corruption(weather.snow_draw, weather.snow),
    "frost": Corruption(weather.frost_draw, weather.frost),
    "fog": Corruption(weather.fog_draw, weather.fog),
    "brightness": Corruption(_nothing, weather.brightness),
    "contrast": Corruption(_nothing, digital.contrast),
    "elastic_transform": Corruption(elastic.elastic_draw, elastic.elastic_transform),
    "pixelate": Corruption(_nothing, digital.pixelate),
    "jpeg_compression": Corruption(_nothing, digital.jpeg_compression),
}


def corrupt(image: Array, corruption: str, severity: int, seed: int, image_id: int) -> Array:
    """A new RGB image of the same size, whose pixels depend on these five arguments and on nothing else."""
    if not isinstance(corruption, str) or corruption not in STEPS:
        hint = did_you_mean(str(corruption), CORRUPTIONS)
        raise SaodError(f"There is no corruption '{corruption}'{hint}; the fifteen are {', '.join(CORRUPTIONS)}.")
    severity = known_severity(severity)
    rgb = as_rgb(image)
    rng = generator(seed, image_id, corruption, severity)
    steps = STEPS[corruption]
    return steps.apply(rgb, steps.draws(rng, rgb.shape[0], rgb.shape[1], severity), severity)
