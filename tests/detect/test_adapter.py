from __future__ import annotations

import models
import numpy as np
import pytest
import torch
from mmengine.config import Config

from saod_ray.config import DetectorSpec
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.detect.configs import DETECTORS, paper

CLASSES = tuple(f"c{k}" for k in range(5))
SIGMOID = {"entropy", "ds", "avg_entropy", "max_class_entropy"}
EXPECTED = {
    "rs": SIGMOID,
    "atss": SIGMOID,
    "ddetr": SIGMOID,
    "faster": {"entropy", "ds"},
    "nll": {"entropy", "ds", "variance"},
}


def small(name: str, batch_size: int = 2) -> MmdetDetector:
    """A reduced model that resizes to 160 by 96 pixels."""
    config = paper({"faster": "f-rcnn", "ddetr": "d-detr"}.get(name, "atss"), 5)
    config.model = models.MODELS[name]()
    config.model.data_preprocessor.pad_size_divisor = 1
    if "score_thr" in config.model.test_cfg:
        config.model.test_cfg.score_thr = 0.0  # untrained, ATSS is sure of nothing
    for step in config.test_dataloader.dataset.pipeline:
        if step.type == "Resize":
            step.scale = (160, 96)
    torch.manual_seed(2)
    spec = DetectorSpec(name=name, classes=CLASSES, fingerprint="")
    return MmdetDetector(spec, Config(config._cfg_dict), None, batch_size=batch_size)


def photographs(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [rng.integers(0, 256, (*shape, 3), np.uint8) for shape in shapes]


@pytest.mark.parametrize("name", models.MODELS)
def test_what_a_detector_returns(name) -> None:
    images = photographs((60, 90), (1, 1), (200, 40), (60, 90))
    found = small(name).detect(images)
    assert len(found) == 4
    for image, each in zip(images, found, strict=True):
        count = len(each.score)
        assert count <= 100
        assert (each.label.dtype, each.box.dtype, each.score.dtype) == (np.int16, np.float32, np.float32)
        assert each.box.shape == (count, 4)
        assert (np.diff(each.score) <= 0).all()
        assert ((each.label >= 0) & (each.label < 5)).all()
        height, width = image.shape[:2]
        assert each.box.min(initial=0) >= 0
        assert (each.box <= np.array([width, height] * 2) + 1e-3).all()
        present = {key for key in (*SIGMOID, "variance") if getattr(each, key) is not None}
        assert present == EXPECTED[name]
        assert all(len(getattr(each, key)) == count for key in present)
    assert any(len(each.score) for each in found)


def test_an_empty_batch() -> None:
    assert small("atss").detect([]) == []


@pytest.mark.parametrize("name", ["faster", "atss"])
def test_company_does_not_matter(name) -> None:
    images = photographs((60, 90), (120, 50), (60, 90), (50, 50))
    together = small(name, batch_size=4).detect(images)
    alone = small(name, batch_size=1)
    for image, each in zip(images, together, strict=True):
        (single,) = alone.detect([image])
        assert len(single.score) == len(each.score)
        np.testing.assert_allclose(single.score, each.score, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("use_case", "detector"), [*(("gen", name) for name in DETECTORS), ("av", "f-rcnn"), ("av", "atss")]
)
def test_every_detector_of_the_paper_runs_at_its_size(use_case, detector) -> None:
    classes = tuple(str(k) for k in range(80 if use_case == "gen" else 3))
    config = paper(detector, len(classes))
    torch.manual_seed(0)
    model = MmdetDetector(DetectorSpec(name=detector, classes=classes, fingerprint=""), config, None)
    (found,) = model.detect(photographs((20, 400)))
    assert len(found.score) <= 100
    assert sum(weight.numel() for weight in model.model.parameters()) > 30e6
    assert found.entropy is not None
