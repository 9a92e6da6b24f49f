"""Detectors from mmdet models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor

from saod_ray.config import DetectorSpec
from saod_ray.detect import uncertainty
from saod_ray.detect.backends import batches
from saod_ray.detect.checkpoints import load
from saod_ray.detect.detections import Detections
from saod_ray.detect.logit_tracking import track_logits
from saod_ray.detect.mmdet_config import test_pipeline
from saod_ray.detect.mmdetection import quiet
from saod_ray.errors import SaodError

from mmcv.image import imresize, rescale_size  # isort: skip
from mmcv.transforms import Compose  # isort: skip
from mmdet.datasets.transforms import Resize  # isort: skip
from mmdet.registry import MODELS, TRANSFORMS  # isort: skip

BATCH = 2  # as in the paper
# mmdet's name of a field → its name in `Detections`, except logits, which become uncertainties
COLUMNS = {"labels": "label", "bboxes": "box", "scores": "score", "logits": "logits", "variance": "variance"}


class MmdetDetector:
    """A model from a config, with the weights of a checkpoint, or random ones if it is None.

    `threads` is the number of CPU threads of PyTorch and OpenCV in this process; None does not change it. `half` computes
    features in 16 bits: scores and uncertainties then differ from those in float32, which published results use.
    """

    def __init__(
        self,
        spec: DetectorSpec,
        config: Config,
        checkpoint: Path | None,
        device: str = "cpu",
        batch_size: int = BATCH,
        *,
        threads: int | None = None,
        half: bool = False,
    ) -> None:
        if threads is not None:
            torch.set_num_threads(threads)
            cv2.setNumThreads(threads)
        self.spec = spec
        self._device = torch.device(device)
        self.model = self._build_model(deepcopy(config), checkpoint)  # building a Deformable DETR changes its config
        if half:
            self.model.extract_feat = _autocast(self.model.extract_feat, self._device)
        self._prepare = Compose([{"type": "mmdet.LoadImageFromNDArray"}, *_preparation_steps(config)])
        self.batch_size = batch_size

    def _build_model(self, config: Config, checkpoint: Path | None) -> Any:
        config.model.data_preprocessor.non_blocking = True  # as inputs are in pinned memory
        with quiet():
            model = MODELS.build(config.model)
            if checkpoint is None:
                model.init_weights()
        if checkpoint is not None:
            load(model, checkpoint)
        track_logits(model)
        if self._device.type == "cpu":  # where it makes convolutions 4 to 40 % faster
            model.to(memory_format=torch.channels_last)
        return model.eval().to(self._device)

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB or grey images, uint8, in their order.

        Only images of the same size share a batch, so that none is padded. SaodError for arrays that are not images.
        """
        _check_images(images)
        results: dict[int, Detections] = {}
        for indices in batches(images, self.batch_size):
            results.update(zip(indices, self._detect_batch([images[k] for k in indices]), strict=True))
        return [results[k] for k in range(len(images))]

    def _detect_batch(self, images: list[np.ndarray]) -> list[Detections]:
        # mmdet needs a scale factor even if the config does not resize
        items = [self._prepare({"img": _bgr(image), "img_id": 0, "scale_factor": (1.0, 1.0)}) for image in images]
        inputs = [item["inputs"] for item in items]
        if self._device.type == "cuda":
            inputs = [tensor.pin_memory() for tensor in inputs]
        with torch.inference_mode(), _deterministic_convolutions():
            samples = self.model.test_step({"inputs": inputs, "data_samples": [item["data_samples"] for item in items]})
        return self._to_detections([sample.pred_instances for sample in samples])

    @torch.inference_mode()
    def _to_detections(self, instances: list[Any]) -> list[Detections]:
        columns = self._columns(instances)
        # one table, so that each batch waits for the GPU once; float32 represents every label exactly
        table = torch.cat([column.float() for column in columns.values()], dim=1).cpu().numpy()
        right = np.cumsum([column.shape[1] for column in columns.values()])
        bottom = np.cumsum([len(image) for image in instances])
        tables = np.split(table, bottom[:-1])
        return [_detections(dict(zip(columns, np.hsplit(rows, right[:-1]), strict=True))) for rows in tables]

    def _columns(self, instances: list[Any]) -> dict[str, Tensor]:
        """The fields of `Detections` as matrices, with one row per detection of the whole batch."""
        names = {name: column for name, column in COLUMNS.items() if name in instances[0]}
        columns = {column: torch.cat([image[name] for image in instances]) for name, column in names.items()}
        logits = columns.pop("logits", None)
        if logits is not None:
            is_sigmoid = logits.shape[1] == len(self.spec.classes)  # a softmax has a background column too
            functions = uncertainty.SIGMOID if is_sigmoid else uncertainty.SOFTMAX
            columns |= {name: function(logits.float()) for name, function in functions.items()}
        return {name: column if column.dim() == 2 else column[:, None] for name, column in columns.items()}


@TRANSFORMS.register_module()
class ResizeToPixels(Resize):
    """mmdet's Resize, except that a side that rounds to 0 (as for 1 by 4000 pixels) becomes one pixel."""

    def _resize_img(self, results: dict[str, Any]) -> None:
        if self.keep_ratio:
            width, height = rescale_size(results["img"].shape[1::-1], results["scale"])
            size = max(width, 1), max(height, 1)
        else:
            size = results["scale"]
        image, *factors = imresize(
            results["img"], size, return_scale=True, interpolation=self.interpolation, backend=self.backend
        )
        results |= {"img": image, "img_shape": image.shape[:2], "scale_factor": tuple(factors)}
        results["keep_ratio"] = self.keep_ratio


def _preparation_steps(config: Config) -> list[Any]:
    """The steps of a config's test pipeline after reading the image."""
    steps = [step for step in test_pipeline(config) if step["type"] != "LoadAnnotations"]
    return [{**step, "type": "ResizeToPixels"} if step["type"] == "Resize" else step for step in steps[1:]]


def _check_images(images: list[np.ndarray]) -> None:
    for k, image in enumerate(images):
        if not isinstance(image, np.ndarray):
            actual = f"a {type(image).__name__}"
        elif image.dtype != np.uint8 or image.size == 0 or image.shape[2:] not in ((), (1,), (3,)) or image.ndim < 2:
            actual = f"{image.dtype} of shape {image.shape}"
        else:
            continue
        raise SaodError(
            f"A detector takes RGB or grey images, uint8 arrays of shape (height, width, 3) or (height, width), but "
            f"number {k} of {len(images)} is {actual}: convert it, as PIL's `image.convert('RGB')` does."
        )


def _bgr(image: np.ndarray) -> np.ndarray:
    """BGR, as mmdet reads images; its preprocessor converts them to what the model expects."""
    return cv2.cvtColor(image, cv2.COLOR_RGB2BGR if image.shape[2:] == (3,) else cv2.COLOR_GRAY2BGR)


@contextmanager
def _deterministic_convolutions() -> Iterator[None]:
    """On a GPU, compute convolutions in full float32 precision and with a deterministic algorithm."""
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def _autocast(extract: Callable[..., Iterable[Tensor]], device: torch.device) -> Callable[..., tuple[Tensor, ...]]:
    """Extract features in 16 bits. Heads stay in float32, as mmdet would round anchors and boxes to whole pixels."""

    def extract_in_half(*args: Any) -> tuple[Tensor, ...]:
        with torch.autocast(device.type):
            features = extract(*args)
        return tuple(level.float() for level in features)

    return extract_in_half


def _detections(columns: dict[str, np.ndarray]) -> Detections:
    # copies, as a view would keep the whole table in memory
    matrices = {name: columns.pop(name).copy() for name in ("box", "variance") if name in columns}
    label = columns.pop("label")[:, 0].astype(np.int16)
    return Detections(label=label, **matrices, **{name: column[:, 0].copy() for name, column in columns.items()})
