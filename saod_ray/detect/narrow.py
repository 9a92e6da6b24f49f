"""Deformable DETR at any width: mmdet's two-stage form takes embeddings of 256 channels for granted."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from saod_ray.detect import carrying  # noqa: F401  (makes mmdet importable)

from mmdet.models.detectors import DeformableDETR  # isort: skip
from mmdet.registry import MODELS  # isort: skip


@MODELS.register_module()
class NarrowDeformableDETR(DeformableDETR):
    """Proposals are embedded with as many channels as the transformer has."""

    def get_proposal_pos_embed(self: Any, proposals: Tensor) -> Tensor:
        """Sines and cosines of the proposals' coordinates."""
        return DeformableDETR.get_proposal_pos_embed(proposals, num_pos_feats=self.embed_dims // 2)
