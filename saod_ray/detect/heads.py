"""Box heads that mmdet does not have: Rank & Sort's sigmoid classifier, and one that predicts a variance of each delta."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from saod_ray.detect.carrying import CarryingBox  # makes mmdet importable

from mmdet.models.roi_heads.bbox_heads import Shared2FCBBoxHead  # isort: skip
from mmdet.registry import MODELS  # isort: skip


@MODELS.register_module()
class RankSortBBoxHead(CarryingBox, Shared2FCBBoxHead):
    """A sigmoid a class and no background column (Oksuz et al., ICCV 2021)."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.fc_cls = nn.Linear(self.cls_last_dim, self.num_classes)

    def scores_of(self, logits: Tensor) -> Tensor:
        """Sigmoids, and a background that no score competes with."""
        return torch.nn.functional.pad(logits.sigmoid(), (0, 1))


@MODELS.register_module()
class ProbabilisticBBoxHead(CarryingBox, Shared2FCBBoxHead):
    """Predicts s = log variance of each delta beside it, a class of its own; it stays in the space of the deltas."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.fc_var = nn.Linear(self.shared_out_channels, 4 * self.num_classes)

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
