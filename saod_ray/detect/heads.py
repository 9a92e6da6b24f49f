"""Heads that mmdet lacks: those of Rank & Sort, and one that predicts a variance per delta."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

from saod_ray.detect.logit_tracking import LogitTrackingBoxHead  # makes mmdet importable
from saod_ray.detect.losses import RankSortLoss, energy_score, nll, rank_sort_losses
from saod_ray.errors import SaodError

from mmdet.models.dense_heads import RPNHead  # isort: skip
from mmdet.models.roi_heads.bbox_heads import Shared2FCBBoxHead  # isort: skip
from mmdet.registry import MODELS  # isort: skip


def select_class(values: Tensor, rows: Tensor, labels: Tensor) -> Tensor:
    """The four values of the selected rows' own classes, or the only four if all classes share them."""
    values = values.view(len(values), values.shape[1] // 4, 4)
    return values[rows, labels[rows].clamp(max=values.shape[1] - 1)]


@MODELS.register_module()
class RankSortBBoxHead(LogitTrackingBoxHead, Shared2FCBBoxHead):
    """One sigmoid per class and no background column (Oksuz et al., ICCV 2021).

    It is trained with Rank & Sort and GIoU losses, whatever `loss_cls` and `loss_bbox` a config inherits.
    """

    def __init__(self, delta: float = 0.5, **settings: Any) -> None:
        super().__init__(**settings)
        self.fc_cls = nn.Linear(self.cls_last_dim, self.num_classes)
        self.loss_rank_sort = RankSortLoss(delta)
        self.reg_decoded_bbox = True  # in mmdet this means that targets are boxes

    def scores_of(self, logits: Tensor) -> Tensor:
        """Sigmoids, and a background column of zeros."""
        return torch.nn.functional.pad(logits.sigmoid(), (0, 1))

    def loss(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        rois: Tensor,
        labels: Tensor,
        label_weights: Tensor,
        bbox_targets: Tensor,
        *unused: Any,
        **settings: Any,
    ) -> dict[str, Tensor]:
        """Losses of the sampled RoIs; all images of a batch are ranked together."""
        positive = labels < self.num_classes
        boxes = self.bbox_coder.decode(rois[positive, 1:], select_class(bbox_pred, positive, labels))
        rank, sort, box = rank_sort_losses(self.loss_rank_sort, cls_score, labels, boxes, bbox_targets[positive])
        return {"loss_rank": rank, "loss_sort": sort, "loss_bbox": box}


@MODELS.register_module()
class RankSortRPNHead(RPNHead):
    """mmdet's RPN, trained with Rank & Sort and GIoU losses, which `head_weight` scales, whatever a config inherits."""

    def __init__(self, head_weight: float = 0.2, delta: float = 0.5, **settings: Any) -> None:
        super().__init__(**settings)
        self.head_weight = head_weight
        self.loss_rank_sort = RankSortLoss(delta)
        self.reg_decoded_bbox = True  # in mmdet this means that targets are boxes

    def loss_by_feat(
        self,
        cls_scores: list[Tensor],
        bbox_preds: list[Tensor],
        batch_gt_instances: list[Any],
        batch_img_metas: list[dict[str, Any]],
        batch_gt_instances_ignore: list[Any] | None = None,
    ) -> dict[str, Tensor]:
        """Losses of all anchors of a batch, ranked together, except those that the assigner or sampler excluded."""
        sizes = [scores.shape[-2:] for scores in cls_scores]
        anchors, flags = self.get_anchors(sizes, batch_img_metas, device=cls_scores[0].device)
        labels, weights, truths, *_ = self.get_targets(
            anchors, flags, batch_gt_instances, batch_img_metas, batch_gt_instances_ignore=batch_gt_instances_ignore
        )
        labels, weights = torch.cat(labels, 1).flatten(), torch.cat(weights, 1).flatten()
        counted = weights > 0
        positive = counted & (labels < self.num_classes)
        priors = torch.cat([torch.cat(levels) for levels in anchors])[positive]
        boxes = self.bbox_coder.decode(priors, _anchor_rows(bbox_preds, 4)[positive])
        losses = rank_sort_losses(
            self.loss_rank_sort,
            _anchor_rows(cls_scores, 1)[counted],
            labels[counted],
            boxes,
            torch.cat(truths, 1).flatten(0, 1)[positive],
        )
        names = ("loss_rpn_rank", "loss_rpn_sort", "loss_rpn_bbox")
        return {name: self.head_weight * loss for name, loss in zip(names, losses, strict=True)}


def _anchor_rows(levels: list[Tensor], width: int) -> Tensor:
    """Feature maps of all levels as one row of `width` values per anchor, by image and in the order of mmdet's anchors."""
    flat = [level.permute(0, 2, 3, 1).reshape(len(level), -1, width) for level in levels]
    return torch.cat(flat, 1).flatten(0, 1)


@MODELS.register_module()
class ProbabilisticBBoxHead(LogitTrackingBoxHead, Shared2FCBBoxHead):
    """Predicts the log variance s of each delta, separately per class and in the space of the deltas.

    `likelihood` is the box loss: "nll" (NLL R-CNN) or "energy" (ES R-CNN, estimated from `samples` per box).
    """

    def __init__(self, likelihood: Literal["nll", "energy"] = "nll", samples: int = 1000, **settings: Any) -> None:
        super().__init__(**settings)
        if likelihood not in ("nll", "energy"):
            raise SaodError(f"ProbabilisticBBoxHead: likelihood is {likelihood!r}: use 'nll' or 'energy'.")
        self.likelihood, self.samples = likelihood, samples
        self.fc_var = nn.Linear(self.shared_out_channels, 4 * self.num_classes)
        if settings.get("init_cfg") is None:  # variances start at 1, so that neither loss is huge at first
            self.init_cfg.append({"type": "Normal", "std": 1e-4, "override": {"name": "fc_var"}})

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and deltas followed by their log variances."""
        x = x.flatten(1)
        for layer in self.shared_fcs:
            x = torch.relu(layer(x))
        return self.fc_cls(x), torch.cat([self.fc_reg(x), self.fc_var(x)], dim=1)

    def split(self, bbox_pred: Tensor) -> tuple[Tensor, Tensor | None]:
        """Deltas, and the logarithms of their variances."""
        deltas, log_variance = bbox_pred.chunk(2, dim=1)
        return deltas, log_variance

    def loss(
        self,
        cls_score: Tensor,
        bbox_pred: Tensor,
        rois: Tensor,
        labels: Tensor,
        label_weights: Tensor,
        bbox_targets: Tensor,
        *unused: Any,
        **settings: Any,
    ) -> dict[str, Tensor]:
        """mmdet's classification loss, and the box loss of the positives divided by the number of sampled RoIs."""
        losses: dict[str, Tensor] = super().loss(cls_score, None, rois, labels, label_weights, bbox_targets, None)
        positive = labels < self.num_classes
        deltas, log_variance = (select_class(half, positive, labels) for half in bbox_pred.chunk(2, dim=1))
        losses["loss_bbox"] = self._box_loss(deltas, log_variance, bbox_targets[positive], max(len(labels), 1))
        return losses

    def _box_loss(self, deltas: Tensor, log_variance: Tensor, targets: Tensor, count: int) -> Tensor:
        if self.likelihood == "nll":
            return nll(deltas, log_variance, targets, count)
        noise = torch.randn(self.samples + 1, *deltas.shape, dtype=deltas.dtype, device=deltas.device)
        return energy_score(deltas, log_variance, targets, noise, count)
