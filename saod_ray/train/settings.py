"""What a training is asked for, and how far it is."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Settings:
    """Everything that a training's weights depend on but the data, and where it runs."""

    detector: str
    config: str  # one of ours, or the path of an mmdet config
    use_case: str
    classes: tuple[str, ...]
    images: int
    data: str  # digest of their names, sizes and objects
    recipe: str  # digest of the config
    epochs: int
    batch_size: int  # over all workers
    learning_rate: float
    seed: int
    workers: int
    init: str | None  # weights that it begins with, where keys and shapes fit: their file's name and digest

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Step(NamedTuple):
    """One iteration: where it is in the training, and its losses by name (the sum is `loss`)."""

    iteration: int
    iterations: int
    epoch: int
    epochs: int
    losses: dict[str, float]
