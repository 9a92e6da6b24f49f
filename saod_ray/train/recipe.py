"""From a detector's config to what mmengine's runner is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from mmengine.config import Config

from saod_ray.detect.configs import build_config
from saod_ray.detect.registry import class_counts
from saod_ray.errors import SaodError
from saod_ray.train import augment  # noqa: F401  (registers)
from saod_ray.train.dataset import ManifestDataset, ReadImage  # noqa: F401  (registers)
from saod_ray.train.settings import Settings


def config_of(config: str, classes: int) -> Config:
    """One of our configs by its name, or an mmdet config from a file."""
    if not config.endswith(".py"):
        return build_config(config, classes)
    if not Path(config).is_file():
        raise SaodError(f"There is no config {config}: give the path of an mmdet config, or a detector's name.")
    try:
        found = Config.fromfile(config)
        found.model, found.train_dataloader.dataset.pipeline, found.optim_wrapper, found.train_cfg.max_epochs  # noqa: B018
    except Exception as error:  # the file is a program, which may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"{config} is not an mmdet 3 config that can be trained ({reason}): mend it.") from None
    if counts := set(class_counts(found.model)) - {classes}:
        raise SaodError(f"{config} is for {min(counts)} classes, not {classes}: set `num_classes` of its bbox_head.")
    return found


def dataset_of(config: Config, records: list[dict[str, Any]], root: str, classes: tuple[str, ...]) -> ManifestDataset:
    """The images with the config's own augmentation and its own opinion of which to leave out."""
    asked = config.train_dataloader.dataset
    pipeline = [{"type": "ReadImage"}, *(step for step in asked.pipeline if step.type != "LoadImageFromFile")]
    return ManifestDataset(
        records,
        root,
        metainfo={"classes": classes},
        filter_cfg=asked.get("filter_cfg"),
        pipeline=pipeline,
        lazy_init=False,
    )


def runner_settings(settings: Settings, config: Config, dataset: ManifestDataset, work_dir: str) -> dict[str, Any]:
    """Keyword arguments of mmengine's Runner: no files of its own, no talk; hooks of ours keep what matters."""
    model = config.model.copy()
    if config.get("batch_augments"):
        model.data_preprocessor.batch_augments = config.batch_augments
    loader = config.train_dataloader
    return {
        "model": model,
        "work_dir": work_dir,
        "train_dataloader": {
            "batch_size": settings.batch_size // settings.workers,
            "num_workers": 0 if not torch.cuda.is_available() else loader.num_workers,
            "sampler": {"type": "DefaultSampler", "shuffle": True},
            "batch_sampler": loader.get("batch_sampler"),
            "dataset": dataset,
            "collate_fn": {"type": "pseudo_collate"},
        },
        "train_cfg": {"type": "EpochBasedTrainLoop", "max_epochs": settings.epochs},
        "optim_wrapper": {
            **config.optim_wrapper,
            "optimizer": {**config.optim_wrapper.optimizer, "lr": settings.learning_rate},
        },
        "param_scheduler": stretched(config, settings.epochs),
        "default_hooks": {"logger": None, "checkpoint": None},
        # alone, without the wrapper: it changes how gradients are rounded in the first iteration after a resume
        "launcher": "pytorch" if settings.workers > 1 else "none",
        "env_cfg": {"dist_cfg": {"backend": "nccl" if torch.cuda.is_available() else "gloo"}},
        "randomness": {"seed": settings.seed},
        "log_level": "ERROR",
        "default_scope": "mmdet",
        "cfg": {"model_wrapper_cfg": _wrapper()} if settings.workers > 1 else {},
    }


def stretched(config: Config, epochs: int) -> list[dict[str, Any]]:
    """The learning rate's course, for another number of epochs than the recipe's."""
    factor = epochs / config.train_cfg.max_epochs
    course = []
    for each in config.param_scheduler:
        changed = dict(each)
        if changed.get("by_epoch", True):
            for key in ("begin", "end", "T_max"):
                if key in changed:
                    changed[key] = round(changed[key] * factor)
            if "milestones" in changed:
                changed["milestones"] = [max(1, round(at * factor)) for at in changed["milestones"]]
        course.append(changed)
    return course


def _wrapper() -> dict[str, Any]:
    """Distributed data parallel on the device that Ray gave this worker."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else None
    return {"type": "MMDistributedDataParallel", "device_ids": devices, "broadcast_buffers": False}
