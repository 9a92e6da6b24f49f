"""The settings of a training, the configuration of its workers, and its progress."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class TrainSettings:
    """Everything that a training's weights depend on."""

    detector: str
    config: str  # name of a built-in config, or path of an mmdet config
    use_case: str
    classes: tuple[str, ...]
    images: int
    data: str  # digest of the images' names, sizes and objects
    recipe: str  # digest of the config
    epochs: int
    batch_size: int  # over all workers
    learning_rate: float
    seed: int
    workers: int
    init: str | None  # file name and digest of the initial weights

    def as_dict(self) -> dict[str, Any]:
        """The settings as a JSON value, apart from tuples."""
        return asdict(self)


@dataclass(frozen=True)
class TrainWorkerConfig:
    """What a worker of a training needs to know."""

    settings: TrainSettings
    records: list[dict[str, Any]]  # one per image, see `dataset.records`
    root: str  # folder or URI of the images
    threads: int
    progress: Any  # handle of the ProgressActor
    init: str | None  # path of the initial weights


class TrainStep(NamedTuple):
    """One iteration: its position in the training, and its losses by name (their sum is `loss`)."""

    iteration: int
    iterations: int
    epoch: int
    epochs: int
    losses: dict[str, float]
