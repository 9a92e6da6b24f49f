"""A training on Ray, from settings to weights. A training that was killed resumes from its last checkpoint.

WEIGHTS/USE_CASE/NAME.json          the record: settings, and at the end losses, accuracy and packages
WEIGHTS/USE_CASE/NAME.checkpoints/  Ray Train's folder, until the training is done
WEIGHTS/USE_CASE/NAME.png           the losses over the epochs
WEIGHTS/USE_CASE/NAME.safetensors   the weights in half precision, where the registry looks for them
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saod_ray.config import UseCase
from saod_ray.data import sources
from saod_ray.data.manifest import Manifest, first_images
from saod_ray.data.source_files import Progress
from saod_ray.detect import registry
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.train.settings import TrainSettings, TrainStep, TrainWorkerConfig
from saod_ray.versions import package_versions

if TYPE_CHECKING:
    from ray.train.torch import TorchTrainer

PACKAGES = ("torch", "mmdet", "mmengine", "ray", "numpy", "opencv-python")
POLL = 0.2  # seconds between two reads of the progress
BASE_BATCH_SIZE = 16  # of the learning rate, where a config does not name one
MAX_FAILURES = 3  # of workers, which are replaced


class TrainResources(NamedTuple):
    """The cluster of a training and its workers' resources; a worker has one GPU by default if the cluster has any."""

    address: str | None = None
    cpus_per_worker: int = 1
    gpus_per_worker: float | None = None


def prepare_training(
    case: UseCase,
    detector: str,
    weights: Path,
    workers: int,
    overrides: dict[str, Any],
    progress: Progress | None = None,
) -> Training:
    """A training of a detector by its recipe.

    `overrides` may have the keys epochs, batch_size, learning_rate, seed, init and limit; None keeps the recipe's value.
    Raises SaodError for settings that cannot be trained.
    """
    from saod_ray.train.recipe import config_of

    name, config_name = name_and_config(case, detector)  # before reading, which takes time
    classes, manifests = sources.read_training(case, progress)
    if overrides.get("limit"):
        manifests["train"] = first_images(manifests["train"], overrides["limit"])
    config = config_of(config_name, len(classes.names))
    base = config.get("auto_scale_lr", {}).get("base_batch_size", BASE_BATCH_SIZE)
    batch = overrides.get("batch_size") or base
    if batch % workers:
        raise SaodError(
            f"A batch of {batch} images cannot be shared by {workers} workers: give a --batch-size that is a multiple of "
            f"{workers}."
        )
    settings = TrainSettings(
        detector=name,
        config=config_name,
        use_case=case.name,
        classes=classes.names,
        images=manifests["train"].images.height,
        data=_digest(
            *(table.write_csv().encode() for table in (manifests["train"].images, manifests["train"].objects))
        ),
        recipe=_digest(config.pretty_text.encode()),
        epochs=overrides.get("epochs") or config.train_cfg.max_epochs,
        batch_size=batch,
        learning_rate=overrides.get("learning_rate") or config.optim_wrapper.optimizer.lr * batch / base,
        seed=overrides.get("seed") or 0,
        workers=workers,
        init=_identify_file(overrides["init"]) if overrides.get("init") else None,
    )
    return Training(weights, settings, case, manifests, overrides.get("init"))


def _identify_file(init: Path) -> str:
    """A file's name and digest; its folder does not matter."""
    if not init.is_file():
        raise SaodError(f"There is no checkpoint {init}: give --init the path of the initial weights.")
    return f"{init.name} {_digest(init.read_bytes())}"


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def name_and_config(case: UseCase, detector: str) -> tuple[str, str]:
    """A detector's name and config: a file, the use case's own config, or else the paper's. SaodError if unknown."""
    if detector.endswith(".py"):
        return Path(detector).stem, str(Path(detector).resolve())
    if case.name not in registry.use_cases():
        return detector, f"paper/{detector}"
    entry, *more = registry.choose(case.name, detector, "--detector")
    if more or entry.backend != "mmdet":
        raise SaodError(f"'{detector}' is not one mmdet detector: train one at a time, by its name or its config.")
    return entry.name, entry.config


class Training:
    """One training in one folder."""

    def __init__(
        self,
        weights: Path,
        settings: TrainSettings,
        case: UseCase,
        manifests: dict[str, Manifest],
        init: Path | None = None,
    ) -> None:
        self.settings, self._case, self._manifests, self._init = settings, case, manifests, init
        self._path = weights.resolve() / settings.use_case
        self._folder = Folder(str(self._path))
        self._step: TrainStep | None = None

    def file(self, suffix: str) -> Path:
        """The path of one of its files, by suffix: safetensors, json, png, checkpoints."""
        return self._path / f"{self.settings.detector}.{suffix}"

    def begin(self) -> bool:
        """Claim the folder; returns False if this training is done already. Raises SaodError if another one is there."""
        with self._locked():
            record = self.record() if self.file("json").exists() else None
            if record is None and self.file("safetensors").exists():
                raise SaodError(
                    f"{self.file('safetensors')} exists without a record of its training: move it away, or give another "
                    "folder with --weights."
                )
            settings = json.loads(json.dumps(self.settings.as_dict()))
            different = [key for key, value in settings.items() if record and record["settings"].get(key) != value]
            if different:
                raise SaodError(
                    f"{self.file('json')} is the record of a training with other settings ({', '.join(different)}): give "
                    "another folder with --weights, or remove it and its weights."
                )
            if record and record["done"] and self.file("safetensors").exists():
                return False
            if record is None or record["done"]:  # checkpoints of another training must not be resumed
                shutil.rmtree(self.file("checkpoints"), ignore_errors=True)
                self._write({"settings": self.settings.as_dict(), "done": False})
            return True

    def _locked(self) -> AbstractContextManager[None]:
        refusal = f"{self.file('json')} is being trained: wait for it, or give another folder with --weights."
        return self._folder.lock(f"{self.settings.detector}.lock", refusal)

    def record(self) -> dict[str, Any]:
        """The record of the training, with its results when it is done."""
        return json.loads(self.file("json").read_text())

    @property
    def status(self) -> str:
        """The epoch and loss, to be appended to a progress title."""
        step = self._step
        return f", epoch {step.epoch} of {step.epochs}, loss {step.losses['loss']:.3f}" if step else ""

    def run(self, resources: TrainResources, progress: Progress) -> None:
        """Train, from the last checkpoint if there is one, and write weights, picture and record. Raises SaodError."""
        from saod_ray.engine.cluster import connected

        cpus = resources.cpus_per_worker * self.settings.workers
        with self._locked(), connected(resources.address, cpus=max(cpus, os.cpu_count() or 1)):
            self._run(resources, progress)

    def _run(self, resources: TrainResources, progress: Progress) -> None:
        import ray
        from ray.train import TrainingFailedError

        progress_actor = ray.remote(num_cpus=0)(ProgressActor).remote()
        trainer = self._trainer(resources, progress_actor)
        began = time.monotonic()
        interrupt = signal.getsignal(signal.SIGINT)  # Ray replaces it and does not restore it

        def on_step(step: TrainStep) -> None:
            self._step = step
            progress(step.iteration, step.iterations)

        with _follow(progress_actor, on_step):
            try:
                result = trainer.fit()
            except TrainingFailedError as error:
                raise SaodError(_explain(error)) from error
            except SystemExit:  # Ray's reaction to Ctrl-C
                raise KeyboardInterrupt from None
            finally:
                signal.signal(signal.SIGINT, interrupt)
        self._finish(result.checkpoint, time.monotonic() - began, progress)

    def _trainer(self, resources: TrainResources, progress_actor: Any) -> TorchTrainer:
        import ray
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        from saod_ray.train.dataset import records
        from saod_ray.train.loopback import LoopbackTorchConfig
        from saod_ray.train.worker import train_worker

        gpus = resources.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
        config = TrainWorkerConfig(
            settings=self.settings,
            records=records(self._manifests["train"]),
            root=self._case.root,
            threads=resources.cpus_per_worker,
            progress=progress_actor,
            init=str(self._init.resolve()) if self._init else None,
        )
        return TorchTrainer(
            train_worker,
            train_loop_config={"config": config},
            torch_config=LoopbackTorchConfig(),
            scaling_config=ScalingConfig(
                num_workers=self.settings.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": resources.cpus_per_worker, **({"GPU": gpus} if gpus else {})},
            ),
            run_config=RunConfig(
                name=self.file("checkpoints").name,
                storage_path=str(self._path),
                failure_config=FailureConfig(max_failures=MAX_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )

    def _finish(self, checkpoint: Any, seconds: float, progress: Progress) -> None:
        """Write weights, picture and record, then remove the checkpoints."""
        from saod_ray.train.accuracy import accuracy_of
        from saod_ray.train.picture import loss_curve
        from saod_ray.train.weights import encode_half, read_checkpoint

        with checkpoint.as_directory() as folder:
            state, losses = read_checkpoint(Path(folder))
        self._folder.put(self.file("safetensors").name, encode_half(state))
        self._folder.put(self.file("png").name, loss_curve(losses, self.settings))
        self._step = None
        weights, val = self.file("safetensors"), self._manifests["val"]
        accuracy = accuracy_of(self.settings, weights, val, self._case.root, progress)
        self._write(
            {
                "settings": self.settings.as_dict(),
                "done": True,
                "iterations": len(losses),
                "seconds_of_last_start": round(seconds, 1),
                "loss": _mean_losses(losses),
                "val": accuracy,
                "packages": package_versions(PACKAGES),
            }
        )
        shutil.rmtree(self.file("checkpoints"), ignore_errors=True)

    def _write(self, record: dict[str, Any]) -> None:
        self._folder.put(self.file("json").name, json.dumps(record, indent=1, sort_keys=True).encode())


def _explain(error: Exception) -> str:
    """One sentence on the first worker that failed."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [error]
    cause = getattr(failures[0], "cause", None) or failures[0]
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return (
        f"The training failed ({lines[-1]}): fix the cause and run the same command to resume from the last checkpoint."
    )


def _mean_losses(losses: list[dict[str, float]]) -> list[float]:
    """The mean total loss of each tenth of the training."""
    count = min(10, len(losses))
    cuts = [len(losses) * k // count for k in range(count + 1)]
    parts = [losses[a:b] for a, b in pairwise(cuts)]
    return [round(sum(step["loss"] for step in part) / len(part), 4) for part in parts]


class ProgressActor:
    """A Ray actor that holds the latest step: rank 0 writes it, the driver reads it."""

    def __init__(self) -> None:
        self._latest: TrainStep | None = None

    def update(self, step: TrainStep) -> None:
        """Set the latest step."""
        self._latest = step

    def latest(self) -> TrainStep | None:
        """The latest step."""
        return self._latest


@contextmanager
def _follow(progress_actor: Any, on_step: Callable[[TrainStep], None]) -> Iterator[None]:
    """Call `on_step` with the latest step a few times per second, from another thread."""
    import ray

    finished = threading.Event()

    def poll() -> None:
        while not finished.wait(POLL):
            try:
                step = ray.get(progress_actor.latest.remote())
            except ray.exceptions.RayError:
                return
            if step is not None:
                on_step(step)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()
