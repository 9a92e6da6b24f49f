"""The paper's experiments, one small module each, in the paper's order."""

from __future__ import annotations

from importlib import import_module

from saod_ray.errors import SaodError, did_you_mean
from saod_ray.experiment.experiment import Experiment

NAMES = (
    "accuracy",
    "aggregation",
    "uncertainty",
    "sigmoid-entropy",
    "combined",
    "ood-subsets",
    "reliability",
    "image-threshold",
    "calibrators",
    "top-k",
    "detection-threshold",
    "tau",
    "thresholds",
    "ablation",
    "improvements",
    "oracle",
    "components",
)


def find(name: str) -> Experiment:
    """An experiment by its name; an unknown one is refused with the nearest that there is."""
    if name not in NAMES:
        raise SaodError(
            f"There is no experiment '{name}'{did_you_mean(name, NAMES)}: `saod-ray experiment list` names them."
        )
    module = import_module(f"saod_ray.experiment.{name.replace('-', '_')}")
    found: Experiment = module.EXPERIMENT
    return found


def every() -> list[Experiment]:
    """All experiments in the paper's order."""
    return [find(name) for name in NAMES]
