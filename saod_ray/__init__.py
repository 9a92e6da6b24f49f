"""saod-ray: benchmark self-aware object detectors.

`import saod_ray as saod` is quick: every name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from saod_ray.api import BenchmarkStore, leaderboard, open, report, run, score
    from saod_ray.detect.detections import Detections, Detector
    from saod_ray.errors import SaodError
    from saod_ray.predict.self_aware_detector import SelfAwareDetector as SelfAware
    from saod_ray.report.leaderboard import Leaderboard
    from saod_ray.score.metrics import metric
    from saod_ray.score.results import BenchmarkResult, DetectorResult

__all__ = [
    "BenchmarkResult",
    "BenchmarkStore",
    "Detections",
    "Detector",
    "DetectorResult",
    "Leaderboard",
    "SaodError",
    "SelfAware",
    "leaderboard",
    "metric",
    "open",
    "report",
    "run",
    "score",
]

_HOMES = {  # public name → its module, or module:name where the names differ
    **dict.fromkeys(("BenchmarkStore", "leaderboard", "open", "run"), "saod_ray.api"),
    **dict.fromkeys(("BenchmarkResult", "DetectorResult"), "saod_ray.score.results"),
    **dict.fromkeys(("Detections", "Detector"), "saod_ray.detect.detections"),
    "Leaderboard": "saod_ray.report.leaderboard",
    "SaodError": "saod_ray.errors",
    "SelfAware": "saod_ray.predict.self_aware_detector:SelfAwareDetector",
    "metric": "saod_ray.score.metrics",
}
_CALLABLE = ("report", "score")  # packages that can be called, as the functions of that name in `api`


def __getattr__(name: str) -> Any:
    if name in _CALLABLE:
        return import_module(f"saod_ray.{name}")
    if name in _HOMES:
        module, _, attribute = _HOMES[name].partition(":")
        return getattr(import_module(module), attribute or name)
    raise AttributeError(f"module 'saod_ray' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
