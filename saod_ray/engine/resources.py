"""How a run is spread over a cluster: groups of detectors, actors, and their shares of CPUs and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from saod_ray.engine.plan import UNIT_IMAGES
from saod_ray.errors import SaodError

ACTOR_CPUS, PREPARE_CPUS = 0.75, 0.25  # of a core: one actor and one preparing task share a core


class ResourceOptions(NamedTuple):
    """What a user may choose; None depends on the cluster's resources when the run begins.

    A cluster that autoscales from zero nodes needs `actors` and `gpus`.
    """

    actors: tuple[int, int] | None = None  # at least, at most
    group: int | None = None  # detectors per pipeline; all by default
    gpus: float | None = None  # per actor
    batch_size: int = 1  # in larger batches the last bits of a detection depend on the images beside it
    unit_images: int = UNIT_IMAGES

    def groups(self, detectors: Sequence[str]) -> list[list[str]]:
        """The detectors that share a pipeline.

        >>> ResourceOptions(group=2).groups(["a", "b", "c"]), ResourceOptions().groups(["a", "b", "c"])
        ([['a', 'b'], ['c']], [['a', 'b', 'c']])
        """
        size = self.group or max(1, len(detectors))
        return [list(detectors[start : start + size]) for start in range(0, len(detectors), size)]


class Resources(NamedTuple):
    """What a pipeline requests from Ray."""

    actors: tuple[int, int]
    actor_cpus: float
    actor_gpus: float

    @property
    def device(self) -> str:
        """The torch device of the detectors."""
        return "cuda" if self.actor_gpus else "cpu"

    @classmethod
    def from_cluster(cls, options: ResourceOptions, cpus: float, gpus: float) -> Resources:
        """Fill in what the user left open: one actor per GPU, or per core without GPUs.

        >>> Resources.from_cluster(ResourceOptions(), cpus=2, gpus=0)
        Resources(actors=(2, 2), actor_cpus=0.75, actor_gpus=0.0)
        >>> Resources.from_cluster(ResourceOptions(gpus=0.5), cpus=2, gpus=2).actors
        (4, 4)
        """
        share = options.gpus if options.gpus is not None else float(gpus > 0)
        slots = gpus // share if share else cpus
        actors = options.actors or (max(1, int(slots)),) * 2
        return cls(actors, _actor_cpus(cpus, min(actors[1], slots) if share else 0), share)

    def fit(self, nodes: Sequence[Mapping[str, float]]) -> Resources:
        """Limit the actors to those that fit on `nodes`, for a cluster that does not grow. Raises SaodError if none fits.

        >>> Resources((4, 8), 0.75, 0.0).fit([{"CPU": 2.0}]).actors
        (2, 2)
        """
        room = sum(self._room(node) for node in nodes)
        if not room:
            totals = "; ".join(f"{node.get('CPU', 0):g} CPUs and {node.get('GPU', 0):g} GPUs" for node in nodes)
            raise SaodError(
                f"An actor needs {self.actor_cpus:g} CPUs and {self.actor_gpus:g} GPUs on one node, and the cluster has "
                f"{totals}: give a smaller --gpus-per-actor, or the --address of a cluster that has them."
            )
        low, high = self.actors
        return self._replace(actors=(min(low, room), min(high, room)))

    def _room(self, node: Mapping[str, float]) -> int:
        """How many actors fit on a node."""
        by_cpus = int(node.get("CPU", 0) / self.actor_cpus + 1e-9)
        return min(by_cpus, int(node.get("GPU", 0) / self.actor_gpus + 1e-9)) if self.actor_gpus else by_cpus


def _actor_cpus(cpus: float, gpu_actors: float) -> float:
    """CPUs per actor; less than usual if the GPU actors would leave no core to prepare images on.

    >>> _actor_cpus(8, 4), _actor_cpus(2, 4), _actor_cpus(2, 0)
    (0.75, 0.375, 0.75)
    """
    return min(ACTOR_CPUS, ACTOR_CPUS * cpus / gpu_actors) if gpu_actors else ACTOR_CPUS
