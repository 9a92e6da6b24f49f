"""Deformable DETR of any width: mmdet's two-stage variant only works with embeddings of 256 channels."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from saod_ray.detect import logit_tracking  # noqa: F401  (makes mmdet importable)

from mmdet.models.detectors import DeformableDETR  # isort: skip
from mmdet.registry import MODELS  # isort: skip


@MODELS.register_module()
class NarrowDeformableDETR(DeformableDETR):
    """Embeds proposals with as many channels as the transformer has."""

    def get_proposal_pos_embed(self: Any, proposals: Tensor) -> Tensor:
        """Sine and cosine embeddings of the proposals' coordinates."""
        return DeformableDETR.get_proposal_pos_embed(proposals, num_pos_feats=self.embed_dims // 2)
