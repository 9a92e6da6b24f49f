"""Heads whose final detections carry the logits (and variances) of the row they came from.

mmdet's post-processing filters by score, suppresses duplicates and keeps the best. The classes here do the same steps and
keep track of rows, so that the logits of each detection are known exactly.
"""

from __future__ import annotations

from typing import Any

import torch
from mmengine.structures import InstanceData
from torch import Tensor, nn

from saod_ray.detect import ops

ops.install()  # before mmdet imports mmcv.ops

from mmdet.models.dense_heads.base_dense_head import BaseDenseHead  # noqa: E402
from mmdet.models.dense_heads.detr_head import DETRHead  # noqa: E402
from mmdet.models.layers import multiclass_nms  # noqa: E402
from mmdet.models.roi_heads.bbox_heads import BBoxHead  # noqa: E402
from mmdet.models.utils import filter_scores_and_topk  # noqa: E402
from mmdet.structures.bbox import bbox_cxcywh_to_xyxy, scale_boxes  # noqa: E402


class LogitTrackingBoxHead:
    """Mixin for the box head of a two-stage detector."""

    def scores_of(self: Any, logits: Tensor) -> Tensor:
        """Probabilities of the classes, with background as the last column."""
        return logits.softmax(dim=-1)

    def split(self: Any, bbox_pred: Tensor) -> tuple[Tensor, Tensor | None]:
        """Deltas, and the logarithms of their variances if the head predicts them."""
        return bbox_pred, None

    def _predict_by_feat_single(
        self: Any,
        roi: Tensor,
        cls_score: Tensor,
        bbox_pred: Tensor,
        img_meta: dict[str, Any],
        rescale: bool = False,
        rcnn_test_cfg: Any = None,
    ) -> InstanceData:
        deltas, log_variance = self.split(bbox_pred)
        classes = 1 if self.reg_class_agnostic else self.num_classes
        boxes = self.bbox_coder.decode(
            roi[:, 1:].repeat_interleave(classes, dim=0), deltas.reshape(-1, 4), max_shape=img_meta["img_shape"]
        )
        if rescale:
            boxes = scale_boxes(boxes, [1 / factor for factor in img_meta["scale_factor"]])
        kept_boxes, labels, cells = multiclass_nms(
            boxes.view(len(roi), -1),
            self.scores_of(cls_score),
            rcnn_test_cfg.score_thr,
            rcnn_test_cfg.nms,
            rcnn_test_cfg.max_per_img,
            return_inds=True,
        )
        rows = cells[: len(kept_boxes)] // self.num_classes  # a cell is a pair of row and class
        results = InstanceData(bboxes=kept_boxes[:, :4], scores=kept_boxes[:, 4], labels=labels, logits=cls_score[rows])
        if log_variance is not None:
            results.variance = log_variance.view(len(roi), -1, 4)[rows, labels].exp()
        return results


class LogitTrackingDenseHead:
    """Mixin for the head of a one-stage detector, such as ATSS, RetinaNet and FCOS."""

    def _predict_by_feat_single(
        self: Any,
        cls_score_list: list[Tensor],
        bbox_pred_list: list[Tensor],
        score_factor_list: list[Tensor | None],
        mlvl_priors: list[Tensor],
        img_meta: dict[str, Any],
        cfg: Any,
        rescale: bool = False,
        with_nms: bool = True,
    ) -> InstanceData:
        cfg = self.test_cfg if cfg is None else cfg
        levels: list[dict[str, Tensor]] = []
        for cls_score, bbox_pred, factor, priors in zip(
            cls_score_list, bbox_pred_list, score_factor_list, mlvl_priors, strict=True
        ):
            logits = cls_score.permute(1, 2, 0).reshape(-1, self.cls_out_channels)
            scores = logits.sigmoid() if self.use_sigmoid_cls else logits.softmax(dim=-1)[:, :-1]
            deltas = bbox_pred.permute(1, 2, 0).reshape(len(logits), -1)
            scores, labels, rows, _ = filter_scores_and_topk(scores, cfg.get("score_thr", 0), cfg.get("nms_pre", -1))
            level = {"scores": scores, "labels": labels, "logits": logits[rows]}
            level |= {"deltas": deltas[rows], "priors": priors[rows]}
            if factor is not None:
                level["score_factors"] = factor.permute(1, 2, 0).reshape(-1).sigmoid()[rows]
            levels.append(level)
        # dictionaries, because one InstanceData per level would take several per cent of a small model's time
        columns = {name: torch.cat([level[name] for level in levels]) for name in levels[0]}
        boxes = self.bbox_coder.decode(columns.pop("priors"), columns.pop("deltas"), max_shape=img_meta["img_shape"])
        results = InstanceData(bboxes=boxes, **columns)
        return self._bbox_post_process(results, cfg, rescale=rescale, with_nms=with_nms, img_meta=img_meta)


class LogitTrackingQueryHead:
    """Mixin for the head of a DETR with a sigmoid classifier, which keeps the best pairs of query and class."""

    def _predict_by_feat_single(
        self: Any, cls_score: Tensor, bbox_pred: Tensor, img_meta: dict[str, Any], rescale: bool = True
    ) -> InstanceData:
        count = min(self.test_cfg.get("max_per_img", len(cls_score)), cls_score.numel())
        scores, cells = cls_score.sigmoid().view(-1).topk(count)
        rows = cells // self.num_classes
        height, width = img_meta["img_shape"][:2]
        limit = cls_score.new_tensor([width, height, width, height])
        boxes = torch.minimum((bbox_cxcywh_to_xyxy(bbox_pred[rows]) * limit).clamp(min=0), limit)
        if rescale:
            boxes = boxes / boxes.new_tensor(img_meta["scale_factor"]).repeat((1, 2))
        return InstanceData(bboxes=boxes, scores=scores, labels=cells % self.num_classes, logits=cls_score[rows])


MIXINS = (
    (LogitTrackingBoxHead, BBoxHead),
    (LogitTrackingQueryHead, DETRHead),
    (LogitTrackingDenseHead, BaseDenseHead),
)


def track_logits(model: nn.Module) -> bool:
    """Change a detector's head so that detections carry their logits; False if its head is of an unsupported type."""
    head = getattr(getattr(model, "roi_head", model), "bbox_head", None)
    for mixin, base in MIXINS:
        if isinstance(head, mixin):
            return True
        if isinstance(head, base):
            head.__class__ = type(f"LogitTracking{type(head).__name__}", (mixin, type(head)), {})
            return True
    return False
