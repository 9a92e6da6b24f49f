"""The paper's experiments, one module each.

To add one, copy a module such as `components.py` and add its name to `NAMES`.
"""

from __future__ import annotations

from importlib import import_module
from shlex import quote

from saod_ray.errors import SaodError, did_you_mean
from saod_ray.experiment.experiment import Experiment
from saod_ray.store.nearby import is_store, nearby_stores

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
        if is_store(name):
            raise SaodError(
                f"'{name}' is a store, not an experiment: give the experiment first, for instance "
                f"`saod-ray experiment components {quote(name)}`; `saod-ray experiment list` lists them."
            )
        raise SaodError(
            f"There is no experiment '{name}'{did_you_mean(name, NAMES)}: `saod-ray experiment list` lists them."
        )
    module = import_module(f"saod_ray.experiment.{name.replace('-', '_')}")
    experiment: Experiment = module.EXPERIMENT
    return experiment


def select(name: str, store: str | None) -> list[Experiment]:
    """The experiments that the arguments of `saod-ray experiment NAME STORE` select; `all` selects every one.

    Raises:
        SaodError: The arguments are swapped, the store is missing, or there is no such experiment. The message has the
            right command.
    """
    if store in (*NAMES, "all") and name not in (*NAMES, "all"):
        raise SaodError(f"The arguments are swapped: run `saod-ray experiment {store} {quote(name)}`.")
    selected = all_experiments() if name == "all" else [find(name)]
    if store is None:
        stores = nearby_stores()
        place = quote(stores[0]) if stores else "STORE"
        raise SaodError(f"'{name}' needs a store: run `saod-ray experiment {name} {place}`.")
    return selected


def all_experiments() -> list[Experiment]:
    """All experiments, in the paper's order."""
    return [find(name) for name in NAMES]
