"""Backends for other libraries: transformers itself, and a stub in place of torchvision."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from saod_ray.detect import registry
from saod_ray.detect.backends import batches
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError

torch.set_num_threads(1)
CLASSES = ("circle", "square", "star")
SIZES = [(60, 80), (48, 64), (60, 80), (60, 80), (48, 64)]
IMAGES = [np.random.default_rng(k).integers(0, 256, (*size, 3), dtype=np.uint8) for k, size in enumerate(SIZES)]
RESIZED = {"shortest_edge": 64, "longest_edge": 96}


def entry(backend: str, folder: Path, more: str = "") -> registry.Entry:
    (folder / "mine.toml").write_text(f'[mine]\nbackend = "{backend}"\n{more}')
    (found,) = registry.choose("shapes", str(folder / "mine.toml"))
    return found


def test_a_batch_has_images_of_one_size_and_every_image_is_in_one() -> None:
    found = list(batches(IMAGES, 2))
    assert sorted(k for each in found for k in each) == list(range(len(IMAGES)))
    assert all(len(each) <= 2 and len({SIZES[k] for k in each}) == 1 for each in found)


def resnet(hf: Any) -> Any:
    return hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip


def layers(size: int = 16) -> dict[str, Any]:
    half = {"encoder_layers": 1, "encoder_ffn_dim": 16, "encoder_attention_heads": 2}
    other = {"decoder_layers": 2, "decoder_ffn_dim": 16, "decoder_attention_heads": 2}
    return {"d_model": size, **half, **other}


def detr(hf: Any, labels: dict[str, Any]) -> tuple[Any, Any]:
    last = resnet(hf)
    last.out_features = ["stage4"]
    config = hf.DetrConfig(backbone_config=last, num_queries=12, **layers(), **labels)
    return hf.DetrForObjectDetection(config), hf.DetrImageProcessorPil(size=RESIZED)


def conditional_detr(hf: Any, labels: dict[str, Any]) -> tuple[Any, Any]:
    last = resnet(hf)
    last.out_features = ["stage4"]
    config = hf.ConditionalDetrConfig(backbone_config=last, num_queries=12, **layers(), **labels)
    return hf.ConditionalDetrForObjectDetection(config), hf.ConditionalDetrImageProcessorPil(size=RESIZED)


def deformable_detr(hf: Any, labels: dict[str, Any]) -> tuple[Any, Any]:
    config = hf.DeformableDetrConfig(
        backbone_config=resnet(hf), num_queries=40, num_feature_levels=4, **layers(32), **labels
    )
    return hf.DeformableDetrForObjectDetection(config), hf.DeformableDetrImageProcessorPil(size=RESIZED)


def rt_detr(hf: Any, labels: dict[str, Any]) -> tuple[Any, Any]:
    backbone = hf.RTDetrResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1], layer_type="basic",
        out_features=["stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = hf.RTDetrConfig(
        backbone_config=backbone, encoder_hidden_dim=16, encoder_in_channels=[16, 16, 16], encoder_ffn_dim=16,
        encoder_attention_heads=2, d_model=16, num_queries=20, decoder_in_channels=[16, 16, 16], decoder_layers=1,
        decoder_ffn_dim=16, decoder_attention_heads=2, **labels,
    )  # fmt: skip
    return hf.RTDetrForObjectDetection(config), hf.RTDetrImageProcessorPil(size={"height": 64, "width": 64})


def yolos(hf: Any, labels: dict[str, Any]) -> tuple[Any, Any]:
    config = hf.YolosConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=[64, 96],
        num_detection_tokens=12, **labels,
    )  # fmt: skip
    return hf.YolosForObjectDetection(config), hf.YolosImageProcessorPil(size=RESIZED)


SOFTMAX, SIGMOID = [detr, yolos], [conditional_detr, deformable_detr, rt_detr]


def saved(make: Any, folder: Path, names: tuple[str, ...] = CLASSES, seed: int = 0) -> Path:
    hf = pytest.importorskip("transformers")
    torch.manual_seed(seed)
    model, processor = make(hf, {"id2label": dict(enumerate(names)), "label2id": {n: k for k, n in enumerate(names)}})
    with torch.no_grad():  # initial weights give nearly the same logits to all; spread them
        for value in model.parameters():
            value.add_(torch.randn_like(value) * 0.3)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def outputs(folder: Path, image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits and boxes of one image, as its own library gives them."""
    hf = pytest.importorskip("transformers")
    model = hf.AutoModelForObjectDetection.from_pretrained(folder).eval()
    inputs = hf.AutoImageProcessor.from_pretrained(folder, backend="pil")(images=image, return_tensors="pt")
    with torch.inference_mode():
        output = model(pixel_values=inputs["pixel_values"])
    return output.logits[0].double().numpy(), output.pred_boxes[0].double().numpy()


def slow_rows(logits: np.ndarray, columns: list[int], softmax: bool) -> list[tuple[float, int, int]]:
    """(score, row, label), best first."""
    rows = []
    for k, row in enumerate(logits):
        bottom = sum(math.exp(each) for each in row)
        scores = [math.exp(row[c]) / bottom if softmax else 1 / (1 + math.exp(-row[c])) for c in columns]
        pairs = [(score, k, label) for label, score in enumerate(scores)]
        rows += [max(pairs)] if softmax else pairs
    return sorted(rows, reverse=True)


def slow_uncertainty(row: np.ndarray) -> dict[str, float]:
    bottom = sum(math.exp(each) for each in row)
    shares = [math.exp(each) / bottom for each in row]
    sigmoids = [1 / (1 + math.exp(-each)) for each in row]
    binary = [-p * math.log(p) - (1 - p) * math.log(1 - p) for p in sigmoids]
    return {
        "entropy": -sum(p * math.log(p) for p in shares),
        "ds": len(row) / (len(row) + bottom),
        "avg_entropy": sum(binary) / len(binary),
        "max_class_entropy": binary[int(np.argmax(row))],
    }


def check(found: Detections, folder: Path, image: np.ndarray, columns: list[int], softmax: bool) -> None:
    logits, boxes = outputs(folder, image)
    expected = slow_rows(logits, columns, softmax)
    np.testing.assert_allclose(found.score, [score for score, _, _ in expected[:100]], rtol=1e-3, atol=1e-6)
    assert (found.avg_entropy is None) == (found.max_class_entropy is None) == softmax
    for k, box in enumerate(found.box):
        # of rows with nearly one score, either may come first: the row is the one with this box
        nearly = [one for one in expected if one[2] == found.label[k] and abs(one[0] - found.score[k]) < 1e-4]
        used = min(nearly, key=lambda one: np.abs(corners(boxes[one[1]], image) - box).max())
        expected.remove(used)
        np.testing.assert_allclose(box, corners(boxes[used[1]], image), atol=0.02)
        row = logits[used[1]] if softmax else logits[used[1]][columns]
        for name, value in slow_uncertainty(row).items():
            if name in ("entropy", "ds") or not softmax:
                np.testing.assert_allclose(getattr(found, name)[k], value, rtol=1e-3, atol=1e-6)


def corners(box: np.ndarray, image: np.ndarray) -> np.ndarray:
    x, y, w, h = box
    height, width = image.shape[:2]
    edges = [(x - w / 2) * width, (y - h / 2) * height, (x + w / 2) * width, (y + h / 2) * height]
    return np.clip(edges, 0, [width, height, width, height])


@pytest.mark.parametrize("make", SOFTMAX + SIGMOID)
def test_detections_are_those_of_the_models_outputs(make, tmp_path) -> None:
    saved(make, tmp_path / "m")
    mine = entry("transformers", tmp_path, 'checkpoint = "m"')
    detector = registry.build(mine, CLASSES, tmp_path, batch_size=2, threads=1)
    found = detector.detect(IMAGES)
    assert len(found) == len(IMAGES)
    for image, each in zip(IMAGES, found, strict=True):
        check(each, tmp_path / "m", image, [0, 1, 2], make in SOFTMAX)
        assert each.box.dtype == each.score.dtype == each.entropy.dtype == np.float32
        assert each.label.dtype == np.int16


@pytest.mark.parametrize("make", [yolos, deformable_detr])
def test_labels_go_by_name_and_those_of_no_class_are_left_out(make, tmp_path) -> None:
    saved(make, tmp_path / "m", ("N/A", "star", "circle", "N/A", "square"))
    mine = entry("transformers", tmp_path, 'checkpoint = "m"')
    (found,) = registry.build(mine, CLASSES, tmp_path).detect(IMAGES[:1])
    check(found, tmp_path / "m", IMAGES[0], [2, 4, 1], make in SOFTMAX)


def test_other_names_need_labels(tmp_path) -> None:
    saved(yolos, tmp_path / "m", ("LABEL_0", "LABEL_1", "LABEL_2"))
    with pytest.raises(SaodError, match=r"missing circle, square, star, extra LABEL_0, LABEL_1, LABEL_2.*`labels`"):
        registry.build(entry("transformers", tmp_path, 'checkpoint = "m"'), CLASSES, tmp_path)
    mine = entry("transformers", tmp_path, 'checkpoint = "m"\noptions = {labels = [2, 0, 1]}')
    (found,) = registry.build(mine, CLASSES, tmp_path).detect(IMAGES[:1])
    check(found, tmp_path / "m", IMAGES[0], [2, 0, 1], True)
    for labels, answer in (("[0, 1]", "a number for each of the 3"), ("[0, 1, 7]", "has 7, but the model has 3")):
        with pytest.raises(SaodError, match=answer):
            wrong = entry("transformers", tmp_path, f'checkpoint = "m"\noptions = {{labels = {labels}}}')
            registry.build(wrong, CLASSES, tmp_path)


def test_a_folder_that_will_not_do(tmp_path) -> None:
    pytest.importorskip("transformers")
    from safetensors.torch import load_file, save_file

    (tmp_path / "m").mkdir()
    mine = entry("transformers", tmp_path, 'checkpoint = "m"')
    with pytest.raises(SaodError, match=r"m is not a folder with config\.json"):
        registry.build(mine, CLASSES, tmp_path)
    weights = saved(yolos, tmp_path / "m") / "model.safetensors"
    tensors = load_file(weights)
    lost = next(key for key in tensors if "class_labels_classifier" in key)
    save_file({key: value for key, value in tensors.items() if key != lost}, weights, {"format": "pt"})
    with pytest.raises(SaodError, match=r"does not have all weights .*class_labels_classifier"):
        registry.build(mine, CLASSES, tmp_path)
    weights.write_bytes(weights.read_bytes()[:-50])
    with pytest.raises(SaodError, match="m cannot be read"):
        registry.build(mine, CLASSES, tmp_path)
    weights.unlink()
    with pytest.raises(SaodError, match="m cannot be read"):
        registry.build(mine, CLASSES, tmp_path)


def test_a_folders_fingerprint_is_that_of_its_files(tmp_path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for file in ("config.json", "preprocessor_config.json", "model.safetensors", "README.md"):
            (tmp_path / name / file).write_text(file)

    def digest(name: str) -> str:
        return registry.fingerprint(entry("transformers", tmp_path, f'checkpoint = "{name}"'), CLASSES, tmp_path)

    (tmp_path / "b/README.md").write_text("more")
    before = digest("a")
    assert digest("b") == before
    (tmp_path / "b/preprocessor_config.json").write_text("more")
    assert digest("b") != before
    (tmp_path / "a/model.safetensors").write_text("more")
    assert digest("a") not in (before, digest("b"))


class TinyTorchvisionModel(torch.nn.Module):
    """Returns detections in torchvision's form: a dict of boxes, labels and scores per image, in no particular order.

    The weights are the scores, so that a test sees whether the checkpoint was loaded.
    """

    def __init__(self, num_classes: int, detections: int = 150, min_size: int = 800) -> None:
        super().__init__()
        self.num_classes, self.detections, self.min_size = num_classes, detections, min_size
        self.scores = torch.nn.Parameter(torch.zeros(detections))

    def forward(self, images: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
        assert all(image.shape[0] == 3 and 0 <= image.min() <= image.max() <= 1 for image in images)
        numbers = torch.arange(self.detections)
        corners = torch.stack([numbers, numbers, numbers + 10, numbers + 20], dim=1).float()
        return [
            {"boxes": corners + image.mean(), "labels": numbers % self.num_classes, "scores": self.scores.detach()}
            for image in images
        ]


@pytest.fixture
def torchvision_stub(monkeypatch: pytest.MonkeyPatch) -> None:
    """A `torchvision` with one detection model; the real library is not among the test dependencies."""

    def get_model(name: str, *, weights: None, weights_backbone: None, **options: Any) -> TinyTorchvisionModel:
        assert name == "tiny_rcnn" and weights is None and weights_backbone is None
        return TinyTorchvisionModel(**options)

    models = SimpleNamespace(detection=SimpleNamespace(), list_models=lambda module: ["tiny_rcnn"], get_model=get_model)
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace(models=models))


@pytest.mark.usefixtures("torchvision_stub")
@pytest.mark.parametrize("labels", [[1, 2, 3], [0, 3, 1]])
def test_torchvision_detections_are_the_models(labels, tmp_path) -> None:
    plain = TinyTorchvisionModel(max(labels) + 1)
    torch.manual_seed(0)
    torch.nn.init.uniform_(plain.scores)
    torch.save(plain.state_dict(), tmp_path / "w.pth")
    text = f'checkpoint = "w.pth"\noptions = {{model = "tiny_rcnn", labels = {labels}, min_size = 64}}'
    detector = registry.build(entry("torchvision", tmp_path, text), CLASSES, tmp_path, batch_size=2)
    assert detector._model.min_size == 64, "other options are passed to the model"
    detections = detector.detect(IMAGES)
    assert len(detections) == len(IMAGES)
    for image, actual in zip(IMAGES, detections, strict=True):
        with torch.inference_mode():
            (expected,) = plain([torch.from_numpy(image).permute(2, 0, 1) / 255])
        order = expected["scores"].argsort(descending=True, stable=True)
        selected = [k for k in order.tolist() if int(expected["labels"][k]) in labels][:100]
        assert len(selected) == 100
        np.testing.assert_array_equal(actual.score, expected["scores"][selected])
        np.testing.assert_array_equal(actual.box, expected["boxes"][selected])
        assert [labels[label] for label in actual.label] == expected["labels"][selected].tolist()
        assert actual.entropy is None


@pytest.mark.usefixtures("torchvision_stub")
def test_a_model_that_torchvision_does_not_have(tmp_path) -> None:
    (tmp_path / "w.pth").touch()
    mine = entry("torchvision", tmp_path, 'checkpoint = "w.pth"\noptions = {model = "tiny_rcn"}')
    with pytest.raises(SaodError, match="did you mean 'tiny_rcnn'"):
        registry.build(mine, CLASSES, tmp_path)


@pytest.mark.parametrize("backend", ["torchvision", "transformers"])
def test_a_library_that_is_not_installed(backend, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, backend, None)  # importing it now raises ModuleNotFoundError
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / "config.json").write_text("{}")
    options = 'options = {model = "fasterrcnn_resnet50_fpn"}' if backend == "torchvision" else ""
    with pytest.raises(SaodError, match=rf"{backend} cannot be imported .*pip install 'saod-ray\[{backend}\]'"):
        registry.build(entry(backend, tmp_path, f'checkpoint = "w"\n{options}'), CLASSES, tmp_path)
