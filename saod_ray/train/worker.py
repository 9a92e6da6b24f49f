"""The workers of a training: mmengine's runner, resumed from the last checkpoint."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.hooks import Hook
from mmengine.runner import Runner

from saod_ray.detect.checkpoints import read
from saod_ray.detect.mmdetection import quiet
from saod_ray.errors import SaodError
from saod_ray.train.recipe import config_of, dataset_of, runner_settings
from saod_ray.train.settings import TrainSettings, TrainStep, TrainWorkerConfig

STATE, LOSSES = "state.pt", "losses.json"


def train_worker(arguments: dict[str, TrainWorkerConfig]) -> None:
    """Train with the configuration under the key `config`; Ray Train calls this on every worker."""
    import ray.train
    import ray.train.torch

    worker = arguments["config"]
    settings = worker.settings
    cv2.setNumThreads(1)
    torch.set_num_threads(worker.threads)
    if torch.cuda.is_available():
        torch.cuda.set_device(ray.train.torch.get_device())
    config = config_of(settings.config, len(settings.classes))
    dataset = dataset_of(config, worker.records, worker.root, settings.classes)
    with tempfile.TemporaryDirectory() as work_dir, quiet():
        runner = Runner(**runner_settings(settings, config, dataset, work_dir))
        runner.register_hook(CheckpointHook(settings, worker.progress, worker.init), priority="VERY_LOW")
        runner.train()


class CheckpointHook(Hook):
    """Resumes from the last checkpoint, publishes every step, and reports a checkpoint to Ray after every epoch.

    The random numbers of an epoch depend on seed, epoch and rank alone, so that a resumed training ends with the weights
    of an undisturbed one.
    """

    def __init__(self, settings: TrainSettings, progress: Any, init: str | None) -> None:
        self._settings, self._progress, self._init = settings, progress, init
        self._losses: list[dict[str, float]] = []

    def before_train(self, runner: Runner) -> None:
        """Load the last checkpoint, or the initial weights."""
        import ray.train

        model = _unwrap(runner.model)
        if not torch.cuda.is_available():
            model.to(memory_format=torch.channels_last)
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                self._restore(runner, Path(folder))
        elif self._init is not None:
            _load_initial_weights(model, Path(self._init))

    def _restore(self, runner: Runner, folder: Path) -> None:
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        self._losses = json.loads((folder / LOSSES).read_text())
        _unwrap(runner.model).load_state_dict(state["model"])
        runner.optim_wrapper.load_state_dict(state["optimiser"])
        for scheduler, scheduler_state in zip(runner.param_schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(scheduler_state)
        runner.train_loop._epoch, runner.train_loop._iter = state["epoch"], state["iteration"]

    def before_train_epoch(self, runner: Runner) -> None:
        """Seed the random generators for the epoch."""
        seed = (self._settings.seed * 1_000_003 + runner.epoch) * 1009 + runner.rank
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Record and publish the losses. Raises FloatingPointError for a loss that is not finite."""
        losses = {name: float(value) for name, value in outputs.items() if "loss" in name}
        if not np.isfinite(losses["loss"]):
            raise FloatingPointError(f"the loss is {losses['loss']} in iteration {runner.iter + 1}")
        self._losses.append(losses)
        if runner.rank == 0:
            step = TrainStep(runner.iter + 1, runner.max_iters, runner.epoch + 1, runner.max_epochs, losses)
            self._progress.update.remote(step)

    def after_train_epoch(self, runner: Runner) -> None:
        """Report a checkpoint to Ray, which stores it in the training's folder."""
        import ray.train

        metrics = {"epoch": runner.epoch + 1, "loss": self._losses[-1]["loss"]}
        if runner.rank:
            ray.train.report(metrics)
            return
        with tempfile.TemporaryDirectory() as folder:
            self._save(runner, Path(folder))
            ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))

    def _save(self, runner: Runner, folder: Path) -> None:
        state = {
            "model": _unwrap(runner.model).state_dict(),
            "optimiser": runner.optim_wrapper.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers],
            "epoch": runner.epoch + 1,
            "iteration": runner.iter,
        }
        torch.save(state, folder / STATE)
        (folder / LOSSES).write_text(json.dumps(self._losses))


def _unwrap(model: Any) -> Any:
    """The model inside the wrapper for distributed training, if there is one."""
    return getattr(model, "module", model)


def _load_initial_weights(model: torch.nn.Module, path: Path) -> None:
    """Load the weights whose names and shapes fit: a detector's, or a backbone's with or without the prefix `backbone.`.

    Raises SaodError if none fits.
    """
    expected, checkpoint = model.state_dict(), read(path)
    candidates = {**{f"backbone.{key}": value for key, value in checkpoint.items()}, **checkpoint}
    fitting = {
        key: value for key, value in candidates.items() if key in expected and expected[key].shape == value.shape
    }
    if not fitting:
        raise SaodError(f"No weight in {path} fits the detector by name and shape: give --init another checkpoint.")
    model.load_state_dict(fitting, strict=False)
