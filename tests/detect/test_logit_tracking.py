"""The logits that a detection carries are those of the row it came from: its box and score can be made from them."""

from __future__ import annotations

import inspect

import models
import pytest
import torch
from mmdet.structures import DetDataSample
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy

from saod_ray.detect.logit_tracking import track_logits


def unsure(model) -> None:
    """Untrained, ATSS is sure of nothing: let it show what it has."""
    if "score_thr" in (model.test_cfg or {}):
        model.bbox_head.test_cfg.score_thr = 0.0


def run(model):
    """What a model finds in an image of noise."""
    sample = DetDataSample()
    shape = (128, 160)
    sample.set_metainfo(
        {"img_shape": shape, "ori_shape": shape, "batch_input_shape": shape, "scale_factor": (1.0, 1.0)}
    )
    image = torch.randn(1, 3, *shape, generator=torch.Generator().manual_seed(3))
    with torch.inference_mode():
        return model.predict(image, [sample], rescale=False)[0].pred_instances


def predicted(name: str, recorded: dict | None = None):
    """Detections of a random model on a random image; `recorded` gets what its head was given."""
    model = models.build(name)
    assert track_logits(model)
    head = getattr(model, "roi_head", model).bbox_head
    unsure(model)
    inner = head._predict_by_feat_single

    def record(*args, **settings):
        if recorded is not None:
            given = inspect.signature(inner).bind(*args, **settings).arguments
            recorded.update(given=list(given.values()), head=head)
        return inner(*args, **settings)

    head._predict_by_feat_single = record
    return run(model)


def rows_of(found, logits: torch.Tensor) -> list[int]:
    """The raw row of each detection, by its logits, which nearly all differ in a random model."""
    assert len({tuple(row) for row in logits.tolist()}) > 0.99 * len(logits)
    return [int((logits == row).all(1).nonzero()[0]) for row in found.logits]


@pytest.mark.parametrize("name", ["rs", "nll"])
def test_two_stages(name) -> None:
    recorded: dict = {}
    found = predicted(name, recorded)
    rois, logits, deltas, meta = recorded["given"][:4]
    head = recorded["head"]
    assert len(found) == 100
    rows = rows_of(found, logits)
    scores = head.scores_of(logits)[rows, found.labels]
    torch.testing.assert_close(scores, found.scores)
    moved, log_variance = head.split(deltas)
    for k, (row, label) in enumerate(zip(rows, found.labels.tolist(), strict=True)):
        delta = moved[row, 4 * label : 4 * label + 4]
        box = head.bbox_coder.decode(rois[row : row + 1, 1:], delta[None], max_shape=meta["img_shape"])
        torch.testing.assert_close(box[0], found.bboxes[k])
        if log_variance is not None:
            torch.testing.assert_close(log_variance[row, 4 * label : 4 * label + 4].exp(), found.variance[k])


def test_one_stage() -> None:
    recorded: dict = {}
    found = predicted("atss", recorded)
    scores, deltas, factors, priors = recorded["given"][:4]
    head = recorded["head"]
    logits = torch.cat([each.permute(1, 2, 0).reshape(-1, 5) for each in scores])
    flat = torch.cat([each.permute(1, 2, 0).reshape(-1, 4) for each in deltas])
    centre = torch.cat([each.permute(1, 2, 0).reshape(-1) for each in factors]).sigmoid()
    assert len(found) == 100
    rows = rows_of(found, logits)
    torch.testing.assert_close(logits.sigmoid()[rows, found.labels] * centre[rows], found.scores)
    boxes = head.bbox_coder.decode(torch.cat(priors)[rows], flat[rows], max_shape=(128, 160))
    torch.testing.assert_close(boxes, found.bboxes)


def test_queries() -> None:
    recorded: dict = {}
    found = predicted("ddetr", recorded)
    logits, boxes = recorded["given"][:2]
    rows = rows_of(found, logits)
    torch.testing.assert_close(logits.sigmoid()[rows, found.labels], found.scores)
    expected = bbox_cxcywh_to_xyxy(boxes[rows]) * torch.tensor([160.0, 128, 160, 128])
    torch.testing.assert_close(expected.clamp(min=0).minimum(torch.tensor([160.0, 128, 160, 128])), found.bboxes)


@pytest.mark.parametrize("name", ["faster", "atss", "ddetr"])
def test_boxes_scores_and_labels_stay_mmdets(name) -> None:
    """Tracking logits changes nothing that mmdet itself returns."""
    carried = predicted(name)
    plain = models.build(name)
    unsure(plain)
    found = run(plain)
    assert len(found) > 20
    for key in ("bboxes", "scores", "labels"):
        torch.testing.assert_close(carried[key], found[key])
