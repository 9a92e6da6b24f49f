"""Detectors from Hugging Face's transformers: DETR and similar models."""

from __future__ import annotations

import inspect
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saod_ray.config import DetectorSpec
from saod_ray.detect import uncertainty
from saod_ray.detect.backends import MAX_DETECTIONS, batches, check_labels, import_library
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError, join_truncated

NO_CLASS = "N/A"  # the name of labels that COCO does not use, in published models


class TransformersDetector:
    """A model from a folder with config.json, preprocessor_config.json and model.safetensors; nothing is downloaded.

    Labels are matched to classes by the names in the model's config. If these differ from the use case's classes, give
    `labels`, the model's label of each class.
    """

    def __init__(
        self,
        spec: DetectorSpec,
        checkpoint: Path,
        device: str = "cpu",
        batch_size: int = 2,
        *,
        threads: int | None = None,
        labels: Sequence[int] | None = None,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
        self.spec = spec
        self._model, self._processor = _load(checkpoint)
        names = {int(label): name for label, name in self._model.config.id2label.items()}
        model_labels = check_labels(spec.name, labels or _match_labels(spec, names), spec.classes)
        if max(model_labels) not in names:
            raise SaodError(
                f"'{spec.name}': the option `labels` has {max(model_labels)}, but the model has {len(names)} labels: fix it."
            )
        self._columns = torch.tensor(model_labels, device=device)
        self._model.eval().to(device)
        self._parameters = inspect.signature(self._model.forward).parameters
        self._device, self._batch_size = device, batch_size

    @torch.inference_mode()
    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB images, uint8: at most a hundred per image."""
        results: dict[int, Detections] = {}
        for indices in batches(images, self._batch_size):
            batch = [images[k] for k in indices]
            prepared = self._processor(images=batch, return_tensors="pt", input_data_format="channels_last")
            inputs = {key: value.to(self._device) for key, value in prepared.items() if key in self._parameters}
            output = self._model(**inputs)
            for k, logits, boxes in zip(indices, output.logits.float(), output.pred_boxes.float(), strict=True):
                results[k] = self._to_detections(logits, boxes, images[k].shape)
        return [results[k] for k in range(len(images))]

    def _to_detections(self, logits: Tensor, boxes: Tensor, shape: tuple[int, ...]) -> Detections:
        has_background = logits.shape[1] == self._model.config.num_labels + 1
        rows, labels, scores = (_best_queries if has_background else _best_pairs)(logits, self._columns)
        functions = uncertainty.SOFTMAX if has_background else uncertainty.SIGMOID
        row_logits = logits[rows] if has_background else logits[rows][:, self._columns]
        columns = {name: function(row_logits).cpu().numpy() for name, function in functions.items()}
        return Detections(
            label=labels.cpu().numpy().astype(np.int16),
            box=_corners(boxes[rows], shape).cpu().numpy(),
            score=scores.cpu().numpy(),
            **columns,
        )


def _best_queries(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With a softmax: each query's best class other than background. Returns rows, labels and scores."""
    scores, labels = logits.softmax(dim=-1)[:, columns].max(dim=-1)
    scores, rows = scores.topk(min(MAX_DETECTIONS, len(scores)))
    return rows, labels[rows], scores


def _best_pairs(logits: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """With sigmoids: the best pairs of query and class. Returns rows, labels and scores."""
    scores, cells = logits[:, columns].sigmoid().flatten().topk(min(MAX_DETECTIONS, len(logits) * len(columns)))
    return cells // len(columns), cells % len(columns), scores


def _corners(boxes: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Boxes (x1, y1, x2, y2) in pixels, clipped to the image, from centres and sizes relative to it."""
    centre, half = boxes[:, :2], boxes[:, 2:] / 2
    limit = boxes.new_tensor([shape[1], shape[0]] * 2)
    return torch.minimum((torch.cat([centre - half, centre + half], dim=1) * limit).clamp(min=0), limit)


def _match_labels(spec: DetectorSpec, names: dict[int, str]) -> list[int]:
    by_name = {name: label for label, name in names.items() if name != NO_CLASS}
    if set(by_name) != set(spec.classes):
        missing, extra = set(spec.classes) - set(by_name), set(by_name) - set(spec.classes)
        raise SaodError(
            f"'{spec.name}': the model's labels are not the use case's classes (missing {join_truncated(sorted(missing)) or 'none'}, extra "
            f"{join_truncated(sorted(extra)) or 'none'}): if only names differ, give the option `labels`, the "
            "model's label of each class."
        )
    return [by_name[name] for name in spec.classes]


def _load(folder: Path) -> tuple[Any, Any]:
    """The model and its image processor. SaodError unless the folder has every weight."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a config can name a backbone, which would be downloaded
    hub = import_library("transformers")
    hub.utils.logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise SaodError(f"{folder} is not a folder with config.json and model.safetensors: give one as `checkpoint`.")
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        processor = hub.AutoImageProcessor.from_pretrained(folder, backend="pil", **local)
        model, loaded = hub.AutoModelForObjectDetection.from_pretrained(
            folder, use_safetensors=True, output_loading_info=True, **local
        )
    except Exception as error:  # transformers raises many kinds of errors for a bad folder
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"{folder} cannot be read ({reason}): save the model and its image processor there.") from error
    if missing := sorted(map(str, [*loaded["missing_keys"], *loaded["mismatched_keys"]])):
        raise SaodError(
            f"{folder} does not have all weights ({join_truncated(missing, 3)}): save the model there again."
        )
    return model, processor
