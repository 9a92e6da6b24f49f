"""The paper's experiments, one module each.

To add one, copy a module such as `components.py` and add its name to `NAMES`.
"""

from __future__ import annotations

from importlib import import_module

from saod_ray.errors import SaodError, did_you_mean
from saod_ray.experiment.experiment import Experiment

NAMES = (  # in the paper's order
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
    """An experiment by name.

    Raises:
        SaodError: There is no such experiment; the message suggests the closest name.
    """
    if name not in NAMES:
        raise SaodError(
            f"There is no experiment '{name}'{did_you_mean(name, NAMES)}: `saod-ray experiment list` lists them."
        )
    module = import_module(f"saod_ray.experiment.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


def all_experiments() -> list[Experiment]:
    """All experiments, in the paper's order."""
    return [find(name) for name in NAMES]
