"""Scoring: matching, reducers, metrics, calibrators, thresholds, resamples.

The package is also a function: `saod_ray.score(store)` is `saod_ray.api.score(store)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package that can be called, because the public function has its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Compute every metric of a store's detectors: see `saod_ray.api.score`."""
        from saod_ray.api import score

        return score(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
