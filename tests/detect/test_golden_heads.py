"""What the official code returned for reduced models: boxes, scores, labels and every uncertainty."""

from __future__ import annotations

import math

import models
import pytest
import torch
from mmdet.structures import DetDataSample

from saod_ray.detect import uncertainty
from saod_ray.detect.checkpoints import load
from saod_ray.detect.logit_tracking import track_logits


def samples(metas: list[dict]) -> list[DetDataSample]:
    found = []
    for meta in metas:
        sample = DetDataSample()
        sizes = {key: meta[key][:2] for key in ("img_shape", "ori_shape", "pad_shape")}
        sample.set_metainfo({**meta, **sizes, "scale_factor": tuple(meta["scale_factor"][:2])})
        found.append(sample)
    return found


def columns(name: str, found) -> torch.Tensor:
    kinds = uncertainty.SOFTMAX if name == "nll" else uncertainty.SIGMOID
    values = [found.bboxes, found.scores, *(kind(found.logits) for kind in kinds.values())]
    if name == "nll":
        variance = found.variance.double()
        gaussian = 2 * (1 + math.log(2 * math.pi)) + variance.log().sum(1) / 2
        values += [variance.prod(1).float(), gaussian.float(), variance.sum(1).float()]
    return torch.column_stack([*values, found.labels.float()])


@pytest.mark.parametrize("name", models.GOLDENS)
def test_the_official_outputs(name, tmp_path) -> None:
    golden = torch.load(models.GOLDEN / f"{name}.pt", weights_only=True)
    torch.save({"state_dict": golden["state_dict"]}, tmp_path / "epoch_36.pth")
    model = models.build(name)
    load(model, tmp_path / "epoch_36.pth")
    assert track_logits(model)
    with torch.inference_mode():
        results = model.predict(golden["img"], samples(golden["metas"]), rescale=True)
    for result, expected in zip(results, golden["out"], strict=True):
        got = columns(name, result.pred_instances).double()
        torch.testing.assert_close(got[:, 4:], expected[:, 4:].double(), rtol=1e-5, atol=1e-5)
        # in pixels: run in double precision, the same model is up to 7e-5 away from its own float32 boxes
        torch.testing.assert_close(got[:, :4], expected[:, :4].double(), rtol=1e-5, atol=1e-4)
