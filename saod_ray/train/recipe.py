"""From a detector's config to the arguments of mmengine's runner."""

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
from saod_ray.train.settings import TrainSettings


def config_of(config: str, classes: int) -> Config:
    """A built-in config by its name, or an mmdet config from a file. Raises SaodError for a file that cannot be used."""
    if not config.endswith(".py"):
        return build_config(config, classes)
    if not Path(config).is_file():
        raise SaodError(f"There is no config {config}: give the path of an mmdet config, or a detector's name.")
    try:
        loaded = Config.fromfile(config)
        loaded.model, loaded.train_dataloader.dataset.pipeline, loaded.optim_wrapper, loaded.train_cfg.max_epochs  # noqa: B018
    except Exception as error:  # the file is a program, which may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"{config} is not an mmdet 3 config that can be trained ({reason}): fix the file.") from error
    if counts := set(class_counts(loaded.model)) - {classes}:
        raise SaodError(f"{config} is for {min(counts)} classes, not {classes}: set `num_classes` of its bbox_head.")
    return loaded


def dataset_of(config: Config, records: list[dict[str, Any]], root: str, classes: tuple[str, ...]) -> ManifestDataset:
    """The images, with the config's augmentations and its filter of images."""
    template = config.train_dataloader.dataset
    pipeline = [{"type": "ReadImage"}, *(step for step in template.pipeline if step.type != "LoadImageFromFile")]
    return ManifestDataset(
        records,
        root,
        metainfo={"classes": classes},
        filter_cfg=template.get("filter_cfg"),
        pipeline=pipeline,
        lazy_init=False,
    )


def runner_settings(settings: TrainSettings, config: Config, dataset: ManifestDataset, work_dir: str) -> dict[str, Any]:
    """Keyword arguments of mmengine's Runner. It writes no files and logs nothing: `CheckpointHook` does both."""
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
        "param_scheduler": stretch_schedule(config, settings.epochs),
        "default_hooks": {"logger": None, "checkpoint": None},
        # a single worker has no wrapper, which rounds gradients differently in the first iteration after a resume
        "launcher": "pytorch" if settings.workers > 1 else "none",
        "env_cfg": {"dist_cfg": {"backend": "nccl" if torch.cuda.is_available() else "gloo"}},
        "randomness": {"seed": settings.seed},
        "log_level": "ERROR",
        "default_scope": "mmdet",
        "cfg": {"model_wrapper_cfg": _wrapper()} if settings.workers > 1 else {},
    }


def stretch_schedule(config: Config, epochs: int) -> list[dict[str, Any]]:
    """The config's learning rate schedule, stretched to a number of epochs."""
    factor = epochs / config.train_cfg.max_epochs
    schedule = []
    for scheduler in config.param_scheduler:
        changed = dict(scheduler)
        if changed.get("by_epoch", True):
            for key in ("begin", "end", "T_max"):
                if key in changed:
                    changed[key] = round(changed[key] * factor)
            if "milestones" in changed:
                changed["milestones"] = [max(1, round(epoch * factor)) for epoch in changed["milestones"]]
        schedule.append(changed)
    return schedule


def _wrapper() -> dict[str, Any]:
    """The wrapper for distributed training, on the device that Ray assigned to this worker."""
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else None
    return {"type": "MMDistributedDataParallel", "device_ids": devices, "broadcast_buffers": False}
