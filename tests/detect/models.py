"""The official detectors at a reduced size, as `tests/golden/heads` has their weights, inputs and outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from saod_ray.detect.configs.shipped import load_shipped_config
from saod_ray.detect.mmdetection import quiet

torch.set_num_threads(1)  # two workers of pytest share two cores
GOLDEN = Path(__file__).parent.parent / "golden" / "heads"


def faster_rcnn() -> Any:
    model = load_shipped_config("faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py").model
    _small(model, (0, 1, 2, 3))
    model.neck.update(in_channels=[8, 16, 32, 64], out_channels=16)
    model.rpn_head.update(in_channels=16, feat_channels=16)
    model.roi_head.bbox_roi_extractor.out_channels = 16
    model.roi_head.bbox_head.update(in_channels=16, fc_out_channels=32, num_classes=5)
    return model


def rs() -> Any:
    model = faster_rcnn()
    model.roi_head.bbox_head.type = "RankSortBBoxHead"
    model.rpn_head.bbox_coder.target_stds = [0.1, 0.1, 0.2, 0.2]
    return model


def nll() -> Any:
    model = faster_rcnn()
    model.roi_head.bbox_head.type = "ProbabilisticBBoxHead"
    return model


def atss() -> Any:
    model = load_shipped_config("atss/atss_r50_fpn_1x_coco.py").model
    _small(model, (0, 1, 2, 3))
    model.neck.update(in_channels=[8, 16, 32, 64], out_channels=16)
    norm = {"type": "GN", "num_groups": 4, "requires_grad": True}
    model.bbox_head.update(num_classes=5, in_channels=16, feat_channels=16, norm_cfg=norm)
    return model


def ddetr() -> Any:
    model = load_shipped_config("deformable_detr/deformable-detr_r50_16xb2-50e_coco.py").model
    _small(model, (1, 2, 3))
    model.num_queries = 40
    model.neck.update(in_channels=[16, 32, 64], out_channels=32, norm_cfg={"type": "GN", "num_groups": 4})
    for part in (model.encoder, model.decoder):
        part.num_layers = 2
        part.layer_cfg.self_attn_cfg.embed_dims = 32
        part.layer_cfg.ffn_cfg.update(embed_dims=32, feedforward_channels=64)
    model.decoder.layer_cfg.cross_attn_cfg.embed_dims = 32
    model.positional_encoding.num_feats = 16
    model.bbox_head.update(num_classes=5, embed_dims=32)
    return model


GOLDENS = {"rs": rs, "nll": nll, "atss": atss, "ddetr": ddetr}
MODELS = {**GOLDENS, "faster": faster_rcnn}


def build(name: str) -> Any:
    from mmdet.registry import MODELS as KINDS

    torch.manual_seed(0)
    with quiet():
        model: Any = KINDS.build(MODELS[name]())
        model.init_weights()  # before it, some of a Deformable DETR's weights are whatever lies in memory
    return model.eval()


def _small(model: Any, outputs: tuple[int, ...]) -> None:
    model.backbone.update(depth=18, base_channels=8, stem_channels=8, init_cfg=None, out_indices=outputs)
