"""What runs on every worker of a training: mmengine's runner, resumed where the last checkpoint ends."""

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
from saod_ray.train.settings import Settings, Step

STATE, LOSSES = "state.pt", "losses.json"


def train_worker(given: dict[str, Any]) -> None:
    """Train; `given` has the settings, the images' records and root, and the board that rank 0 tells its steps."""
    import ray.train
    import ray.train.torch

    settings: Settings = given["settings"]
    cv2.setNumThreads(1)
    torch.set_num_threads(given["threads"])
    if torch.cuda.is_available():
        torch.cuda.set_device(ray.train.torch.get_device())
    config = config_of(settings.config, len(settings.classes))
    dataset = dataset_of(config, given["records"], given["root"], settings.classes)
    with tempfile.TemporaryDirectory() as work_dir, quiet():
        runner = Runner(**runner_settings(settings, config, dataset, work_dir))
        runner.register_hook(Keeping(settings, given["board"], given["init"]), priority="VERY_LOW")
        runner.train()


class Keeping(Hook):
    """Begins where the last checkpoint ends, tells every step, and reports a checkpoint to Ray after every epoch.

    What is drawn in an epoch depends on seed, epoch and rank alone, so that a resumed training ends with the weights of
    an undisturbed one.
    """

    def __init__(self, settings: Settings, board: Any, init: str | None) -> None:
        self._settings, self._board, self._init = settings, board, init
        self._losses: list[dict[str, float]] = []

    def before_train(self, runner: Runner) -> None:
        """Weights: of the last checkpoint, or those to begin with."""
        import ray.train

        model = _bare(runner.model)
        if not torch.cuda.is_available():
            model.to(memory_format=torch.channels_last)
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                self._restore(runner, Path(folder))
        elif self._init is not None:
            _begin_with(model, Path(self._init))

    def _restore(self, runner: Runner, folder: Path) -> None:
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
        self._losses = json.loads((folder / LOSSES).read_text())
        _bare(runner.model).load_state_dict(state["model"])
        runner.optim_wrapper.load_state_dict(state["optimiser"])
        for scheduler, each in zip(runner.param_schedulers, state["schedulers"], strict=True):
            scheduler.load_state_dict(each)
        runner.train_loop._epoch, runner.train_loop._iter = state["epoch"], state["iteration"]

    def before_train_epoch(self, runner: Runner) -> None:
        """Draw anew."""
        seed = (self._settings.seed * 1_000_003 + runner.epoch) * 1009 + runner.rank
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.manual_seed(seed)

    def after_train_iter(self, runner: Runner, batch_idx: int, data_batch: Any = None, outputs: Any = None) -> None:
        """Keep and tell the losses; a loss that is no number ends the training."""
        losses = {name: float(value) for name, value in outputs.items() if "loss" in name}
        if not np.isfinite(losses["loss"]):
            raise FloatingPointError(f"the loss is {losses['loss']} in iteration {runner.iter + 1}")
        self._losses.append(losses)
        if runner.rank == 0:
            step = Step(runner.iter + 1, runner.max_iters, runner.epoch + 1, runner.max_epochs, losses)
            self._board.tell.remote(step)

    def after_train_epoch(self, runner: Runner) -> None:
        """Report to Ray, which keeps the checkpoint where the training's folder is."""
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
            "model": _bare(runner.model).state_dict(),
            "optimiser": runner.optim_wrapper.state_dict(),
            "schedulers": [scheduler.state_dict() for scheduler in runner.param_schedulers],
            "epoch": runner.epoch + 1,
            "iteration": runner.iter,
        }
        torch.save(state, folder / STATE)
        (folder / LOSSES).write_text(json.dumps(self._losses))


def _bare(model: Any) -> Any:
    return getattr(model, "module", model)


def _begin_with(model: torch.nn.Module, path: Path) -> None:
    """The weights whose names and shapes are the model's: a detector's, or those of a backbone, with or without its name."""
    own, found = model.state_dict(), read(path)
    named = {**{f"backbone.{key}": value for key, value in found.items()}, **found}
    fitting = {key: value for key, value in named.items() if key in own and own[key].shape == value.shape}
    if not fitting:
        raise SaodError(f"Nothing in {path} fits the detector by name and shape: give --init another checkpoint.")
    model.load_state_dict(fitting, strict=False)
