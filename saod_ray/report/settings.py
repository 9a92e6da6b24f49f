"""The settings of results as text."""

from __future__ import annotations

import msgspec

from saod_ray.config import ScoreSettings
from saod_ray.score.results import BenchmarkResult


def option_text(value: object) -> str:
    """A setting as the command line takes it.

    >>> option_text([1.0, 2.5, 1.0]), option_text("linear")
    ('1,2.5,1', 'linear')
    """
    return ",".join(f"{part:g}" for part in value) if isinstance(value, list) else str(value)


def setting_texts(results: BenchmarkResult) -> dict[str, str]:
    """Every setting of the results by name, in alphabetical order."""
    settings = msgspec.structs.asdict(results.settings)
    return {name: option_text(settings[name]) for name in sorted(settings)}


def unusual_settings(results: BenchmarkResult) -> str:
    """The settings other than conventions that are not the defaults: `calibrator isotonic, tau 0.3`."""
    defaults = ScoreSettings().model_dump(mode="json")
    values = setting_texts(results)
    names = [name for name in defaults if name != "conventions" and values[name] != option_text(defaults[name])]
    return ", ".join(f"{name.replace('_', ' ')} {values[name]}" for name in names)
