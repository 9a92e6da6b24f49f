"""Throughput of our detectors compared with mmdet's inference_detector, and the cost of uncertainties: python -m benchmarks.detect.

Both use the same random weights, the same images and one thread. For each detector, a score threshold is chosen that lets
about a hundred detections per image pass; 100 is the maximum, and trained detectors have fewer. The smallest CPU time of
alternating rounds counts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, NamedTuple
from unittest.mock import patch

import cv2
import numpy as np
import torch
from mmengine.config import Config

from saod_ray.config import DetectorSpec
from saod_ray.detect import adapter
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.detect.configs import build_config
from saod_ray.detect.detections import Detections
from saod_ray.detect.logit_tracking import LogitTrackingBoxHead
from saod_ray.detect.mmdetection import quiet
from tests.corrupt import pictures

from mmcv.transforms import Compose  # isort: skip
from mmdet.apis import inference_detector  # isort: skip
from mmdet.registry import MODELS  # isort: skip
from mmdet.utils import get_test_pipeline_cfg  # isort: skip

DETECTORS = ("f-rcnn", "rs-rcnn", "atss", "d-detr", "nll-rcnn", "es-rcnn")
ENOUGH = 95  # detections per image, of at most 100
Images = list[np.ndarray]


class Setting(NamedTuple):
    """A family of models, and the images they run on."""

    family: str
    classes: int
    images: Images
    batches: Sequence[int]
    rounds: int


def main() -> None:
    options = _options()
    warnings.simplefilter("ignore")  # mmdet warns about its own calls
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    settings = [Setting("small", 5, _photographs(8, 256, 256), (1, 2, 8), options.rounds)]
    if options.paper:
        settings.append(Setting("paper", 80, _photographs(2, 480, 640), (1, 2), 2))
    print(
        f"{'images per second':18} batch       mmdet        ours     ratio  with uncertainties  detections  difference"
    )
    for setting in settings:
        for name in options.detectors if setting.family == "small" else ("f-rcnn", "atss"):
            _compare(f"{setting.family}/{name}", setting)


def _options() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=DETECTORS)
    parser.add_argument("--rounds", type=int, default=8, help="rounds per measurement; the smallest time counts")
    parser.add_argument("--paper", action="store_true", help="also F-RCNN and ATSS at the paper's size (takes minutes)")
    return parser.parse_args()


def _photographs(count: int, height: int, width: int) -> Images:
    return [pictures.photograph(height, width, seed) for seed in range(count)]


def _compare(name: str, setting: Setting) -> None:
    config, images = _config(name, setting), setting.images
    ours, bare = _ours(name, config, setting), _ours(name, config, setting, carries=False)
    theirs = _theirs(config, ours)
    _choose_threshold(ours, [ours.model, bare.model, theirs], images[: len(images) // 2])
    steps = get_test_pipeline_cfg(config)
    # built once; inference_detector would build it at every call
    prepare = Compose([{"type": "mmdet.LoadImageFromNDArray"}, *steps[1:]])
    bgr = [cv2.cvtColor(image, cv2.COLOR_RGB2BGR) for image in images]
    actual, expected = ours.detect(images), inference_detector(theirs, bgr, prepare)
    for batch in setting.batches:
        ours.batch_size = bare.batch_size = batch
        work = [
            lambda: inference_detector(theirs, bgr, prepare),
            lambda: bare.detect(images),
            lambda: ours.detect(images),
        ]
        peer, without, cost = (len(images) / seconds for seconds in _smallest_times(work, setting.rounds))
        # a head of ours carries its logits by nature: there is none without
        added = (
            ""
            if isinstance(getattr(_stage(bare.model), "bbox_head", None), LogitTrackingBoxHead)
            else f"{without / cost - 1:+.1%}"
        )
        print(
            f"{name:18} {batch:5} {peer:11.2f} {cost:11.2f} {cost / peer:9.2f} {added:>19} "
            f"{np.mean([len(detections.score) for detections in actual]):11.0f} {_difference(actual, expected):11.1e}",
            flush=True,
        )


def _config(name: str, setting: Setting) -> Config:
    config = build_config(name, setting.classes)
    steps = config.test_dataloader.dataset.pipeline
    if not any(step.type == "Resize" for step in steps):  # mmdet asks for the factor that it writes
        steps.insert(1, {"type": "Resize", "scale": setting.images[0].shape[1::-1], "keep_ratio": True})
    return config


def _ours(name: str, config: Config, setting: Setting, carries: bool = True) -> MmdetDetector:
    torch.manual_seed(0)
    spec = DetectorSpec(name=name, classes=tuple(str(k) for k in range(setting.classes)), fingerprint="")
    if carries:
        return MmdetDetector(spec, config, None)
    with patch.object(adapter, "track_logits"):
        return MmdetDetector(spec, config, None)


def _theirs(config: Config, ours: MmdetDetector) -> Any:
    with quiet():
        model = MODELS.build(deepcopy(config.model)).eval()
    model.load_state_dict(ours.model.state_dict())
    model.cfg = config
    return model


def _stage(model: Any) -> Any:
    """The part of a model that post-processes detections."""
    return model.roi_head if hasattr(model, "roi_head") else model.bbox_head


def _choose_threshold(detector: MmdetDetector, models: list[Any], images: Images) -> None:
    """Set the highest threshold, to 0.1 %, that lets enough detections pass. A DETR has none and returns its best queries."""
    settings = [_stage(model).test_cfg for model in models]
    if "score_thr" not in settings[0]:
        return
    low, high = 1e-6, 1.0
    while high / low > 1.001:
        middle = (low * high) ** 0.5
        for test_config in settings:
            test_config.score_thr = middle
        enough = np.mean([len(detections.score) for detections in detector.detect(images)]) >= ENOUGH
        low, high = (middle, high) if enough else (low, middle)
    for test_config in settings:
        test_config.score_thr = low


def _smallest_times(work: list[Callable[[], object]], rounds: int) -> list[float]:
    """The smallest CPU-seconds of each function, called in turns."""
    times: list[list[float]] = [[] for _ in work]
    for _ in range(rounds):
        for function, seconds in zip(work, times, strict=True):
            began = time.process_time()
            function()
            seconds.append(time.process_time() - began)
    return [min(seconds) for seconds in times]


def _difference(actual: list[Detections], expected: list[Any]) -> float:
    """The largest difference between scores."""
    pairs = zip(actual, expected, strict=True)
    return max(float(np.abs(ours.score - theirs.pred_instances.scores.numpy()).max()) for ours, theirs in pairs)


if __name__ == "__main__":
    main()
