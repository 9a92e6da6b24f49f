"""Scoring: matching, reducers, metrics, calibrators, thresholds, resamples.

The package is also a function: `saod_ray.score(store)` calls `saod_ray.api.score(store)`.
"""

from saod_ray.callable_package import make_callable

make_callable(__name__)
