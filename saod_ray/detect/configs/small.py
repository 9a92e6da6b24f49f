"""Small versions of the paper's detectors, which a CPU trains in minutes; they take images of `shapes` unresized."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmengine.config import Config

from saod_ray.detect.configs import paper

WIDTH = 16  # channels of the backbone's first stage; the paper's ResNet-50 has 64
NECK = 32
EMBEDDING = 64
STRIDES = [4, 8, 16, 32]


def f_rcnn(classes: int, width: int = WIDTH) -> Config:
    """Faster R-CNN with a narrow ResNet-18 of three stages."""
    config = paper.f_rcnn(classes)
    model = config.model
    model.backbone = _backbone((0, 1, 2), width)
    model.neck.update(in_channels=[width, 2 * width, 4 * width], out_channels=NECK, num_outs=4)
    model.rpn_head.update(in_channels=NECK, feat_channels=NECK)
    model.rpn_head.anchor_generator.update(scales=[4], strides=STRIDES)
    model.roi_head.bbox_roi_extractor.update(out_channels=NECK, featmap_strides=STRIDES[:3], finest_scale=28)
    model.roi_head.bbox_head.update(in_channels=NECK, fc_out_channels=128)
    model.train_cfg.rpn.sampler.num = 128
    model.train_cfg.rpn_proposal.update(nms_pre=200, max_per_img=120)
    model.train_cfg.rcnn.sampler.num = 96
    model.test_cfg.rpn.update(nms_pre=300, max_per_img=150)
    return _recipe(config, epochs=3)


def atss(classes: int) -> Config:
    """ATSS with a narrow ResNet-18 of four stages."""
    config = paper.atss(classes)
    model = config.model
    model.backbone = _backbone((1, 2, 3), WIDTH)
    model.neck.update(in_channels=[2 * WIDTH, 4 * WIDTH, 8 * WIDTH], out_channels=NECK, start_level=0, num_outs=4)
    norm = {"type": "GN", "num_groups": 8, "requires_grad": True}
    model.bbox_head.update(in_channels=NECK, feat_channels=NECK, stacked_convs=2, norm_cfg=norm)
    model.bbox_head.anchor_generator.update(octave_base_scale=4, strides=[8, 16, 32, 64])
    model.test_cfg.nms_pre = 300
    return _recipe(config, epochs=5)


def d_detr(classes: int) -> Config:
    """Deformable DETR of one encoder and two decoder layers, on a feature pyramid.

    Two-stage and with box refinement, so that a short training suffices. It should start from f-rcnn's backbone.
    """
    config = paper.d_detr(classes)
    model = config.model
    model.update(
        type="NarrowDeformableDETR", num_queries=40, num_feature_levels=3, with_box_refine=True, as_two_stage=True
    )
    model.backbone = _backbone((1, 2), WIDTH)
    pyramid = {"type": "FPN", "in_channels": [2 * WIDTH, 4 * WIDTH], "out_channels": NECK, "num_outs": 2}
    norm = {"type": "GN", "num_groups": 8}
    model.neck.update(in_channels=[NECK, NECK], out_channels=EMBEDDING, num_outs=3, norm_cfg=norm)
    model.neck = [pyramid, model.neck]
    model.encoder.num_layers, model.decoder.num_layers = 1, 2
    for part in (model.encoder, model.decoder):
        part.layer_cfg.self_attn_cfg.update(embed_dims=EMBEDDING, num_heads=4, dropout=0.0)
        part.layer_cfg.ffn_cfg.update(embed_dims=EMBEDDING, feedforward_channels=4 * EMBEDDING, ffn_drop=0.0)
    model.encoder.layer_cfg.self_attn_cfg.update(num_levels=3, num_points=2)
    model.decoder.layer_cfg.cross_attn_cfg.update(embed_dims=EMBEDDING, num_levels=3, num_heads=4, dropout=0.0)
    model.positional_encoding.num_feats = EMBEDDING // 2
    model.bbox_head.embed_dims = EMBEDDING
    config = _recipe(config, epochs=12, rate=1e-3, decay=1e-4, clip=1.0)
    config.batch_augments = [{"type": "RandomFactor", "low": 0.5, "high": 1.0}]
    slower = {"sampling_offsets": 0.1, "reference_points": 0.1, "backbone": 0.3}
    keys = {name: {"lr_mult": factor} for name, factor in slower.items()}
    config.optim_wrapper.paramwise_cfg = {"custom_keys": keys}
    return config


def f_rcnn_single(classes: int) -> Config:
    """Faster R-CNN trained at one scale."""
    config = f_rcnn(classes)
    config.batch_augments = []
    return config


def f_rcnn_short(classes: int) -> Config:
    """Faster R-CNN trained at one scale for a third of the epochs."""
    config = f_rcnn_single(classes)
    return _epochs(config, config.train_cfg.max_epochs // 3)


def f_rcnn_large(classes: int) -> Config:
    """Faster R-CNN with a backbone twice as wide."""
    return f_rcnn(classes, 2 * WIDTH)


def _backbone(outputs: tuple[int, ...], width: int) -> dict[str, Any]:
    """A ResNet-18 up to the last stage in `outputs`. Its batch norms are trained, as it is not pre-trained."""
    stages = outputs[-1] + 1
    return {
        "type": "ResNet",
        "depth": 18,
        "base_channels": width,
        "num_stages": stages,
        "strides": (1, 2, 2, 2)[:stages],
        "dilations": (1, 1, 1, 1)[:stages],
        "out_indices": outputs,
        "norm_cfg": {"type": "BN", "requires_grad": True},
        "zero_init_residual": False,
    }


def _recipe(config: Config, epochs: int, rate: float = 2e-3, decay: float = 0.02, clip: float = 10.0) -> Config:
    """AdamW on batches of 8 images, each batch resized by one random factor; linear warm-up, then a cosine schedule."""
    config.batch_augments = [{"type": "RandomFactor", "low": 0.6, "high": 1.1}]
    load, annotations = config.train_dataloader.dataset.pipeline[:2]
    flip = {"type": "RandomFlip", "prob": 0.5}
    config.train_dataloader.dataset.pipeline = [load, annotations, flip, {"type": "PackDetInputs"}]
    config.train_dataloader.batch_sampler = {"type": "SimilarSizes"}
    config.auto_scale_lr.base_batch_size = 8
    steps = config.test_dataloader.dataset.pipeline
    config.test_dataloader.dataset.pipeline = [step for step in steps if step.type != "Resize"]
    config.optim_wrapper = {
        "type": "OptimWrapper",
        "optimizer": {"type": "AdamW", "lr": rate, "weight_decay": decay},
        "clip_grad": {"max_norm": clip, "norm_type": 2},
    }
    return _epochs(config, epochs)


def _epochs(config: Config, epochs: int) -> Config:
    config.train_cfg.max_epochs = epochs
    lowest = config.optim_wrapper.optimizer.lr / 100
    config.param_scheduler = [
        {"type": "LinearLR", "start_factor": 0.01, "by_epoch": False, "begin": 0, "end": 100},
        {
            "type": "CosineAnnealingLR",
            "by_epoch": True,
            "begin": 0,
            "end": epochs,
            "T_max": epochs,
            "eta_min": lowest,
            "convert_to_iter_based": True,
        },
    ]
    return config


DETECTORS: dict[str, Callable[[int], Config]] = {
    "f-rcnn": f_rcnn,
    "rs-rcnn": lambda classes: paper.rank_and_sort(f_rcnn(classes)),
    "atss": atss,
    "d-detr": d_detr,
    "nll-rcnn": lambda classes: paper.probabilistic(f_rcnn(classes), "nll"),
    "es-rcnn": lambda classes: paper.probabilistic(f_rcnn(classes), "energy"),
    "f-rcnn-short": f_rcnn_short,
    "f-rcnn-single": f_rcnn_single,
    "f-rcnn-large": f_rcnn_large,
}
