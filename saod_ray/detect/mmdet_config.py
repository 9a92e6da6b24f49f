"""The mmdet config of a detector. Only a user's own config, which may need it, imports mmdet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from saod_ray.detect.backend_class import import_for
from saod_ray.detect.entries import Entry
from saod_ray.errors import SaodError


def load_config(entry: Entry, classes: int) -> Any:
    """The config of a detector with backend mmdet, for so many classes.

    SaodError if a user's config cannot be read, or is for another number of classes.
    """
    if not entry.config.endswith(".py") or entry.folder is None:
        return import_for(entry, "saod_ray.detect.configs").build_config(entry.config, classes)
    path = entry.folder / Path(entry.config).expanduser()
    import_for(entry, "saod_ray.detect.mmdetection")
    try:
        config = import_for(entry, "mmengine.config").Config.fromfile(path)
        inference_settings(config)
    except Exception as error:  # the file is a program, which can raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"'{entry.name}': {path} is not a config for mmdet 3 ({reason}): fix it.") from error
    counts = set(class_counts(config.model)) - {classes}
    if counts:
        raise SaodError(
            f"'{entry.name}': {path} is for {min(counts)} classes, not {classes}: set `num_classes` of its bbox_head."
        )
    return config


def inference_settings(config: Any) -> dict[str, Any]:
    """The parts of a config that detections depend on: the model without its training, and the test pipeline."""
    model = {key: value for key, value in config.to_dict()["model"].items() if key != "train_cfg"}
    return {"model": model, "pipeline": list(test_pipeline(config))}


def test_pipeline(config: Any) -> Any:
    """The image preparation of a config's test data, below whatever wraps the dataset."""
    dataset = config.test_dataloader.dataset
    while "pipeline" not in dataset:
        dataset = dataset.dataset if "dataset" in dataset else dataset.datasets[0]
    return dataset.pipeline


def class_counts(model: Any, in_head: bool = False) -> list[int]:
    """Every `num_classes` at or below a `bbox_head` of a model's config."""
    if isinstance(model, dict):
        parts = [class_counts(value, in_head or key == "bbox_head") for key, value in model.items()]
        own = [model["num_classes"]] if in_head and "num_classes" in model else []
        return own + [count for part in parts for count in part]
    return [count for item in model for count in class_counts(item, in_head)] if isinstance(model, list) else []
