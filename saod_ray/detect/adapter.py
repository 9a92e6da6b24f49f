"""mmdet models behind the detector protocol."""

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
from saod_ray.detect.carrying import carry
from saod_ray.detect.checkpoints import load
from saod_ray.detect.detections import Detections
from saod_ray.detect.mmdetection import quiet
from saod_ray.errors import SaodError

from mmcv.image import imresize, rescale_size  # isort: skip
from mmcv.transforms import Compose  # isort: skip
from mmdet.datasets.transforms import Resize  # isort: skip
from mmdet.registry import MODELS, TRANSFORMS  # isort: skip
from mmdet.utils import get_test_pipeline_cfg  # isort: skip

BATCH = 2  # as published
COLUMNS = {"labels": "label", "bboxes": "box", "scores": "score", "logits": "logits", "variance": "variance"}


class MmdetDetector:
    """A model from a config, with a checkpoint's weights or (for trying it out) random ones.

    `threads` is how many CPU threads PyTorch and OpenCV may use in this process; None leaves them as they are. `half`
    computes the features in 16 bits: scores and uncertainties then differ from those in float32, which is what figures
    are published in.
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
        self.model = self._built(deepcopy(config), checkpoint)  # building a Deformable DETR changes it
        if half:
            self.model.extract_feat = _in_half(self.model.extract_feat, self._device)
        self._prepare = Compose([{"type": "mmdet.LoadImageFromNDArray"}, *_steps(config)])
        self.batch_size = batch_size

    def _built(self, config: Config, checkpoint: Path | None) -> Any:
        config.model.data_preprocessor.non_blocking = True  # what is sent is pinned
        with quiet():
            model = MODELS.build(config.model)
            if checkpoint is None:
                model.init_weights()
        if checkpoint is not None:
            load(model, checkpoint)
        carry(model)
        if self._device.type == "cpu":  # convolutions take 4 to 40 % less time there
            model.to(memory_format=torch.channels_last)
        return model.eval().to(self._device)

    def detect(self, images: list[np.ndarray]) -> list[Detections]:
        """The detections of RGB or grey images; those of one size share a batch, so that none is padded."""
        _refuse_other(images)
        found: dict[int, Detections] = {}
        for numbers in batches(images, self.batch_size):
            found.update(zip(numbers, self._detect([images[k] for k in numbers]), strict=True))
        return [found[k] for k in range(len(images))]

    def _detect(self, images: list[np.ndarray]) -> list[Detections]:
        # a config that resizes nothing leaves the factor out, and mmdet asks for it
        items = [self._prepare({"img": _bgr(image), "img_id": 0, "scale_factor": (1.0, 1.0)}) for image in images]
        inputs = [item["inputs"] for item in items]
        if self._device.type == "cuda":
            inputs = [each.pin_memory() for each in inputs]
        with torch.inference_mode(), _same_everywhere():
            samples = self.model.test_step({"inputs": inputs, "data_samples": [item["data_samples"] for item in items]})
        return self._converted([sample.pred_instances for sample in samples])

    @torch.inference_mode()
    def _converted(self, found: list[Any]) -> list[Detections]:
        columns = self._columns(found)
        # one table, so that a GPU is waited for once a batch; float32 keeps every label
        table = torch.cat([column.float() for column in columns.values()], dim=1).cpu().numpy()
        right = np.cumsum([column.shape[1] for column in columns.values()])
        below = np.cumsum([len(each) for each in found])
        rows = np.split(table, below[:-1])
        return [_detections(dict(zip(columns, np.hsplit(some, right[:-1]), strict=True))) for some in rows]

    def _columns(self, found: list[Any]) -> dict[str, Tensor]:
        """What detections have, by its name in `Detections`: matrices with the images one below the other."""
        names = {name: ours for name, ours in COLUMNS.items() if name in found[0]}
        columns = {ours: torch.cat([each[name] for each in found]) for name, ours in names.items()}
        logits = columns.pop("logits", None)
        if logits is not None:
            is_sigmoid = logits.shape[1] == len(self.spec.classes)  # a softmax has background too
            kinds = uncertainty.SIGMOID if is_sigmoid else uncertainty.SOFTMAX
            columns |= {name: kind(logits.float()) for name, kind in kinds.items()}
        return {name: column if column.dim() == 2 else column[:, None] for name, column in columns.items()}


@TRANSFORMS.register_module()
class ResizeToPixels(Resize):
    """mmdet's Resize, but a side that rounds to nothing (of 1 by 4000 pixels, say) becomes one pixel."""

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


def _steps(config: Config) -> list[Any]:
    """How a config prepares an image once it is read."""
    steps = [step for step in get_test_pipeline_cfg(config) if step["type"] != "LoadAnnotations"]
    return [{**step, "type": "ResizeToPixels"} if step["type"] == "Resize" else step for step in steps[1:]]


def _refuse_other(images: list[np.ndarray]) -> None:
    for k, image in enumerate(images):
        if not isinstance(image, np.ndarray):
            given = f"a {type(image).__name__}"
        elif image.dtype != np.uint8 or image.size == 0 or image.shape[2:] not in ((), (1,), (3,)) or image.ndim < 2:
            given = f"{image.dtype} of shape {image.shape}"
        else:
            continue
        raise SaodError(
            f"A detector takes RGB or grey images, uint8 arrays of shape (height, width, 3) or (height, width), but "
            f"number {k} of {len(images)} is {given}: convert it, as PIL's `image.convert('RGB')` does."
        )


def _bgr(image: np.ndarray) -> np.ndarray:
    """As mmdet reads images; its preprocessor turns them into what the model wants."""
    return cv2.cvtColor(image, cv2.COLOR_RGB2BGR if image.shape[2:] == (3,) else cv2.COLOR_GRAY2BGR)


@contextmanager
def _same_everywhere() -> Iterator[None]:
    """Convolutions of a GPU with all bits of float32, by an algorithm that gives the same result every time."""
    with torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False):
        yield


def _in_half(features: Callable[..., Iterable[Tensor]], device: torch.device) -> Callable[..., tuple[Tensor, ...]]:
    """The heads stay in float32: mmdet would round anchors and boxes to whole pixels."""

    def computed(*args: Any) -> tuple[Tensor, ...]:
        with torch.autocast(device.type):
            found = features(*args)
        return tuple(level.float() for level in found)

    return computed


def _detections(columns: dict[str, np.ndarray]) -> Detections:
    # copies: a part of the table would keep all of it in memory
    matrices = {name: columns.pop(name).copy() for name in ("box", "variance") if name in columns}
    label = columns.pop("label")[:, 0].astype(np.int16)
    return Detections(label=label, **matrices, **{name: column[:, 0].copy() for name, column in columns.items()})
