"""A training from its settings to weights: on Ray, resumed when it was killed, with a record of what happened.

WEIGHTS/USE_CASE/NAME.json          settings, written first; with losses, accuracy and packages when it is done
WEIGHTS/USE_CASE/NAME.checkpoints/  Ray Train's folder while the training runs
WEIGHTS/USE_CASE/NAME.png           the losses over the epochs
WEIGHTS/USE_CASE/NAME.safetensors   the weights in half precision, where detectors are looked for
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
from typing import Any, NamedTuple

from saod_ray.config import UseCase
from saod_ray.data import sources
from saod_ray.data.manifest import Manifest, first_images
from saod_ray.data.source_files import Progress
from saod_ray.detect import registry
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.train.settings import Settings, Step
from saod_ray.versions import package_versions

PACKAGES = ("torch", "mmdet", "mmengine", "ray", "numpy", "opencv-python")
POLL = 0.2  # seconds between two looks at the board
USUAL_BATCH = 16  # where a config does not say for how many images its learning rate is
TRIES = 3  # a worker that dies is replaced so often


class Machine(NamedTuple):
    """Where a training runs; without a number of GPUs a worker has one where the cluster has any."""

    address: str | None = None
    cpus_per_worker: int = 1
    gpus_per_worker: float | None = None


def prepare(
    case: UseCase,
    detector: str,
    weights: Path,
    workers: int,
    wishes: dict[str, Any],
    progress: Progress | None = None,
) -> Training:
    """A training of a detector, its recipe with a user's wishes: epochs, batch_size, learning_rate, seed, init, limit."""
    from saod_ray.train.recipe import config_of

    classes, manifests = sources.read_training(case, progress)
    if wishes.get("limit"):
        manifests["train"] = first_images(manifests["train"], wishes["limit"])
    name, config_name = _which(case, detector)
    config = config_of(config_name, len(classes.names))
    base = config.get("auto_scale_lr", {}).get("base_batch_size", USUAL_BATCH)
    batch = wishes.get("batch_size") or base
    if batch % workers:
        raise SaodError(
            f"A batch of {batch} images cannot be shared by {workers} workers: give a --batch-size that can."
        )
    settings = Settings(
        detector=name,
        config=config_name,
        use_case=case.name,
        classes=classes.names,
        images=manifests["train"].images.height,
        data=_digest(
            *(table.write_csv().encode() for table in (manifests["train"].images, manifests["train"].objects))
        ),
        recipe=_digest(config.pretty_text.encode()),
        epochs=wishes.get("epochs") or config.train_cfg.max_epochs,
        batch_size=batch,
        learning_rate=wishes.get("learning_rate") or config.optim_wrapper.optimizer.lr * batch / base,
        seed=wishes.get("seed") or 0,
        workers=workers,
        init=_known(wishes["init"]) if wishes.get("init") else None,
    )
    return Training(weights, settings, case, manifests, wishes.get("init"))


def _known(init: Path) -> str:
    """A file by its name and bytes: where it lies does not matter."""
    if not init.is_file():
        raise SaodError(f"There is no checkpoint {init}: give --init the weights to begin with.")
    return f"{init.name} {_digest(init.read_bytes())}"


def _digest(*parts: bytes) -> str:
    return hashlib.blake2b(b"".join(parts), digest_size=8).hexdigest()


def _which(case: UseCase, detector: str) -> tuple[str, str]:
    """A detector's name and config: the use case's own, else the paper's; or a file."""
    if detector.endswith(".py"):
        return Path(detector).stem, str(Path(detector).resolve())
    if case.name not in registry.use_cases():
        return detector, f"paper/{detector}"
    entry, *more = registry.choose(case.name, detector)
    if more or entry.backend != "mmdet":
        raise SaodError(f"'{detector}' is not one mmdet detector: train one at a time, by its name or its config.")
    return entry.name, entry.config


class Training:
    """One training in one folder."""

    def __init__(
        self,
        weights: Path,
        settings: Settings,
        case: UseCase,
        manifests: dict[str, Manifest],
        init: Path | None = None,
    ) -> None:
        self.settings, self._case, self._manifests, self._init = settings, case, manifests, init
        self._path = weights.resolve() / settings.use_case
        self._folder = Folder(str(self._path))
        self._step: Step | None = None

    def file(self, suffix: str) -> Path:
        """One of its files: safetensors, json, png, checkpoints."""
        return self._path / f"{self.settings.detector}.{suffix}"

    def begin(self) -> bool:
        """Claim the folder; False where this very training is done already, and refused where another is."""
        with self._locked():
            known = self.record() if self.file("json").exists() else None
            if known is None and self.file("safetensors").exists():
                raise SaodError(
                    f"{self.file('safetensors')} is there, and no record of its training: move it away, or say --weights "
                    "ANOTHER."
                )
            asked = json.loads(json.dumps(self.settings.as_dict()))
            other = [key for key, value in asked.items() if known and known["settings"].get(key) != value]
            if other:
                raise SaodError(
                    f"{self.file('json')} is of a training with other settings ({', '.join(other)}): "
                    "say --weights ANOTHER, or remove it and its weights."
                )
            if known and known["done"] and self.file("safetensors").exists():
                return False
            if known is None or known["done"]:  # what another training left must not be resumed
                shutil.rmtree(self.file("checkpoints"), ignore_errors=True)
                self._write({"settings": self.settings.as_dict(), "done": False})
            return True

    def _locked(self) -> AbstractContextManager[None]:
        refusal = f"{self.file('json')} is being trained: wait for it, or say --weights ANOTHER."
        return self._folder.lock(f"{self.settings.detector}.lock", refusal)

    def record(self) -> dict[str, Any]:
        """What was written when it was done."""
        return json.loads(self.file("json").read_text())

    @property
    def now(self) -> str:
        """How far it is, in words."""
        step = self._step
        return f", epoch {step.epoch} of {step.epochs}, loss {step.losses['loss']:.3f}" if step else ""

    def run(self, machine: Machine, progress: Progress) -> None:
        """Train, from the last checkpoint where there is one, and keep what came out."""
        from saod_ray.engine.cluster import connected

        cpus = machine.cpus_per_worker * self.settings.workers
        with self._locked(), connected(machine.address, cpus=max(cpus, os.cpu_count() or 1)):
            self._run(machine, progress)

    def _run(self, machine: Machine, progress: Progress) -> None:
        import ray
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig, TrainingFailedError
        from ray.train.torch import TorchTrainer

        from saod_ray.train.dataset import records
        from saod_ray.train.loopback import LoopbackTorchConfig
        from saod_ray.train.worker import train_worker

        gpus = machine.gpus_per_worker
        if gpus is None:
            gpus = 1.0 if ray.cluster_resources().get("GPU") else 0.0
        board = ray.remote(num_cpus=0)(Board).remote()
        given = {
            "settings": self.settings,
            "records": records(self._manifests["train"]),
            "root": self._case.root,
            "threads": machine.cpus_per_worker,
            "board": board,
            "init": str(self._init.resolve()) if self._init else None,
        }
        trainer = TorchTrainer(
            train_worker,
            train_loop_config=given,
            torch_config=LoopbackTorchConfig(),
            scaling_config=ScalingConfig(
                num_workers=self.settings.workers,
                use_gpu=gpus > 0,
                resources_per_worker={"CPU": machine.cpus_per_worker, **({"GPU": gpus} if gpus else {})},
            ),
            run_config=RunConfig(
                name=self.file("checkpoints").name,
                storage_path=str(self._path),
                failure_config=FailureConfig(max_failures=TRIES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        began = time.monotonic()
        interrupt = signal.getsignal(signal.SIGINT)  # Ray takes it and does not give it back

        def told(step: Step) -> None:
            self._step = step
            progress(step.iteration, step.iterations)

        with _following(board, told):
            try:
                result = trainer.fit()
            except TrainingFailedError as error:
                raise SaodError(_why(error)) from None
            except SystemExit:  # Ray's own answer to Ctrl-C
                raise KeyboardInterrupt from None
            finally:
                signal.signal(signal.SIGINT, interrupt)
        self._finish(result.checkpoint, time.monotonic() - began, progress)

    def _finish(self, checkpoint: Any, seconds: float, progress: Progress) -> None:
        """Weights, picture and record; the checkpoints go when all three are there."""
        from saod_ray.train.accuracy import accuracy_of
        from saod_ray.train.picture import curve
        from saod_ray.train.weights import half, trained

        with checkpoint.as_directory() as folder:
            state, losses = trained(Path(folder))
        self._folder.put(self.file("safetensors").name, half(state))
        self._folder.put(self.file("png").name, curve(losses, self.settings))
        self._step = None
        val = (self._manifests["val"], self._case.root)
        found = accuracy_of(self.settings, self.file("safetensors"), *val, progress)
        self._write(
            {
                "settings": self.settings.as_dict(),
                "done": True,
                "iterations": len(losses),
                "seconds_of_last_start": round(seconds, 1),
                "loss": _tenths(losses),
                "val": found,
                "packages": package_versions(PACKAGES),
            }
        )
        shutil.rmtree(self.file("checkpoints"), ignore_errors=True)

    def _write(self, record: dict[str, Any]) -> None:
        self._folder.put(self.file("json").name, json.dumps(record, indent=1, sort_keys=True).encode())


def _why(error: Exception) -> str:
    """What went wrong on the first worker that failed."""
    failures = list(getattr(error, "worker_failures", {}).values()) or [error]
    cause = getattr(failures[0], "cause", None) or failures[0]
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    return (
        f"The training failed ({lines[-1]}): mend that and run the same command; it goes on from the last checkpoint."
    )


def _tenths(losses: list[dict[str, float]]) -> list[float]:
    """The mean loss of each tenth of the training."""
    count = min(10, len(losses))
    cuts = [len(losses) * k // count for k in range(count + 1)]
    parts = [losses[a:b] for a, b in pairwise(cuts)]
    return [round(sum(each["loss"] for each in part) / len(part), 4) for part in parts]


class Board:
    """Where rank 0 tells its steps and the driver reads the last of them: a Ray actor."""

    def __init__(self) -> None:
        self._last: Step | None = None

    def tell(self, step: Step) -> None:
        """A step is done."""
        self._last = step

    def last(self) -> Step | None:
        """The latest step."""
        return self._last


@contextmanager
def _following(board: Any, told: Callable[[Step], None]) -> Iterator[None]:
    """Call `told` with the latest step a few times a second, from another thread."""
    import ray

    over = threading.Event()

    def follow() -> None:
        while not over.wait(POLL):
            try:
                step = ray.get(board.last.remote())
            except ray.exceptions.RayError:
                return
            if step is not None:
                told(step)

    follower = threading.Thread(target=follow, daemon=True)
    follower.start()
    try:
        yield
    finally:
        over.set()
        follower.join()
