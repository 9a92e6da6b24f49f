from __future__ import annotations

import cv2
import models
import numpy as np
import pytest
import torch
from mmengine.config import Config

from saod_ray.config import DetectorSpec
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.detect.configs import NAMES, build_config
from saod_ray.detect.mmdetection import quiet
from saod_ray.errors import SaodError

from mmdet.apis import inference_detector  # isort: skip
from mmdet.registry import MODELS  # isort: skip

PAPER = [name for name in NAMES if name.startswith("paper/")]
CLASSES = tuple(f"c{k}" for k in range(5))
SIGMOID = {"entropy", "ds", "avg_entropy", "max_class_entropy"}
EXPECTED = {
    "rs": SIGMOID,
    "atss": SIGMOID,
    "ddetr": SIGMOID,
    "faster": {"entropy", "ds"},
    "nll": {"entropy", "ds", "variance"},
}


def config_of(name: str, scale: tuple[int, int] = (160, 96)) -> Config:
    """A reduced model that resizes to 160 by 96 pixels."""
    config = build_config({"faster": "paper/f-rcnn", "ddetr": "paper/d-detr"}.get(name, "paper/atss"), 5)
    config.model = models.MODELS[name]()
    config.model.data_preprocessor.pad_size_divisor = 1
    if "score_thr" in config.model.test_cfg:
        config.model.test_cfg.score_thr = 0.0  # untrained, ATSS is sure of nothing
    for step in config.test_dataloader.dataset.pipeline:
        if step.type == "Resize":
            step.scale = scale
    return Config(config._cfg_dict)


def small(name: str, batch_size: int = 2, **options) -> MmdetDetector:
    torch.manual_seed(2)
    spec = DetectorSpec(name=name, classes=CLASSES, fingerprint="")
    return MmdetDetector(spec, config_of(name), None, batch_size=batch_size, **options)


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


@pytest.mark.parametrize("name", models.MODELS)
def test_a_detector_finds_what_mmdet_finds(name) -> None:
    """Every bit, where mmdet has the same model; nearly, where its weights lie in memory as mmdet leaves them."""
    config, images = config_of(name), photographs((60, 90), (200, 40), (33, 50))
    detector = small(name, batch_size=1)
    with quiet():
        plain = MODELS.build(config.model).eval()
    plain.load_state_dict(detector.model.state_dict())
    for model, tolerance in ((detector.model, 0), (plain, 1e-5)):
        model.cfg = config
        theirs = inference_detector(model, [cv2.cvtColor(image, cv2.COLOR_RGB2BGR) for image in images])
        for ours, sample in zip(detector.detect(images), theirs, strict=True):
            expected = sample.pred_instances
            assert len(expected) > 10
            np.testing.assert_allclose(ours.score, expected.scores.numpy(), rtol=0, atol=tolerance)
            np.testing.assert_array_equal(ours.label, expected.labels.numpy())
            np.testing.assert_allclose(ours.box, expected.bboxes.numpy(), rtol=tolerance, atol=10 * tolerance)


def test_a_config_that_resizes_nothing() -> None:
    config = config_of("faster")
    steps = config.test_dataloader.dataset.pipeline
    config.test_dataloader.dataset.pipeline = [step for step in steps if step.type != "Resize"]
    (image,) = photographs((96, 160))
    torch.manual_seed(2)
    spec = DetectorSpec(name="faster", classes=CLASSES, fingerprint="")
    (found,) = MmdetDetector(spec, config, None).detect([image])
    (expected,) = small("faster").detect([image])  # which resizes to the size it has
    np.testing.assert_array_equal(found.box, expected.box)
    np.testing.assert_array_equal(found.score, expected.score)


def test_a_checkpoint_brings_the_same_detections_back(tmp_path) -> None:
    images = photographs((60, 90))
    trained = small("faster")
    torch.save(trained.model.state_dict(), tmp_path / "w.pth")
    torch.manual_seed(3)
    spec = trained.spec
    (found,) = MmdetDetector(spec, config_of("faster"), tmp_path / "w.pth").detect(images)
    (expected,) = trained.detect(images)
    np.testing.assert_array_equal(found.score, expected.score)
    with pytest.raises(SaodError, match=r"w\.pth does not fit the model: .* keys are missing"):
        MmdetDetector(spec, config_of("atss"), tmp_path / "w.pth")


def test_one_config_makes_two_detectors() -> None:
    config, spec = config_of("ddetr"), DetectorSpec(name="ddetr", classes=CLASSES, fingerprint="")
    before = config.pretty_text
    for _ in range(2):
        assert len(MmdetDetector(spec, config, None).detect(photographs((20, 30)))) == 1
    assert config.pretty_text == before


def test_half_changes_little_and_is_off_unless_asked_for() -> None:
    images = photographs((60, 90), (96, 160))
    full, half = small("atss").detect(images), small("atss", half=True).detect(images)
    for one, other in zip(full, half, strict=True):
        assert one.entropy.dtype == other.entropy.dtype == np.float32
        assert not np.array_equal(one.score, other.score)
        np.testing.assert_allclose(one.score[:10], other.score[:10], rtol=0.05)


def test_threads_are_those_given() -> None:
    before = torch.get_num_threads(), cv2.getNumThreads()
    try:
        small("atss", threads=2)
        assert (torch.get_num_threads(), cv2.getNumThreads()) == (2, 2)
        small("atss")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def test_a_gpu_would_use_all_bits() -> None:
    """TF32, which PyTorch's convolutions take by default, would make figures depend on the device."""
    detector, seen = small("atss"), []
    cudnn = torch.backends.cudnn
    detector.model.register_forward_hook(lambda *_: seen.append((cudnn.enabled, cudnn.allow_tf32, cudnn.deterministic)))
    before = cudnn.enabled, cudnn.allow_tf32, cudnn.deterministic
    detector.detect(photographs((20, 20)))
    assert seen == [(True, False, True)]
    assert (cudnn.enabled, cudnn.allow_tf32, cudnn.deterministic) == before


@pytest.mark.slow
@pytest.mark.parametrize(("name", "classes"), [*((name, 80) for name in PAPER), ("paper/f-rcnn", 3), ("paper/atss", 3)])
def test_every_detector_of_the_paper_runs_at_its_size(name, classes) -> None:
    torch.manual_seed(0)
    spec = DetectorSpec(name=name, classes=tuple(str(k) for k in range(classes)), fingerprint="")
    model = MmdetDetector(spec, build_config(name, classes), None)
    (found,) = model.detect(photographs((20, 400)))
    assert len(found.score) <= 100
    assert sum(weight.numel() for weight in model.model.parameters()) > 30e6
    assert found.entropy is not None
