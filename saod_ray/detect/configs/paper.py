"""The paper's detectors (appendix B): configs that mmdet ships, with the paper's changes."""

from __future__ import annotations

from collections.abc import Callable

from mmengine.config import Config

from saod_ray.detect.configs.shipped import load_shipped_config

STDS = [0.1, 0.1, 0.2, 0.2]
MILESTONES = {12: [8, 11], 36: [27, 33]}
GIOU = {"type": "GIoULoss", "loss_weight": 1.0}
F_RCNN = "faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py"
D_DETR = "deformable_detr/deformable-detr_r50_16xb2-50e_coco.py"


def f_rcnn(classes: int) -> Config:
    """Faster R-CNN with ResNet-50 and FPN, trained for 36 epochs at many scales."""
    config = load_shipped_config(F_RCNN)
    config.model.roi_head.bbox_head.num_classes = classes
    return _multi_scale(_epochs(config, 36))


def rs_rcnn(classes: int) -> Config:
    """Rank & Sort R-CNN: ranks all proposals, and encodes the RPN's boxes like those of the second stage."""
    return rank_and_sort(_learning_rate(f_rcnn(classes), 0.012))


def rank_and_sort(config: Config) -> Config:
    """Turn a Faster R-CNN into a Rank & Sort R-CNN. All anchors and proposals count, as the loss needs no sampling."""
    model = config.model
    rpn, head = model.rpn_head, model.roi_head.bbox_head
    rpn.update(type="RankSortRPNHead", reg_decoded_bbox=True, loss_bbox=GIOU)
    rpn.bbox_coder.target_stds = STDS
    head.update(type="RankSortBBoxHead", reg_decoded_bbox=True, loss_bbox=GIOU)
    model.train_cfg.rpn.sampler = {"type": "PseudoSampler"}
    model.train_cfg.rcnn.sampler.update(num=10**6, pos_fraction=1.0)
    return config


def nll_rcnn(classes: int) -> Config:
    """Faster R-CNN with variances, trained with the negative log-likelihood."""
    return probabilistic(f_rcnn(classes), "nll")


def es_rcnn(classes: int) -> Config:
    """Faster R-CNN with variances, trained with the energy score."""
    return probabilistic(f_rcnn(classes), "energy")


def probabilistic(config: Config, likelihood: str) -> Config:
    """Make a Faster R-CNN predict variances; `likelihood` is "nll" or "energy"."""
    config.model.roi_head.bbox_head.update(type="ProbabilisticBBoxHead", likelihood=likelihood)
    return config


def atss(classes: int) -> Config:
    """ATSS with ResNet-50 and FPN, trained for 36 epochs at many scales."""
    config = load_shipped_config("atss/atss_r50_fpn_1x_coco.py")
    config.model.bbox_head.num_classes = classes
    return _multi_scale(_epochs(config, 36))


def d_detr(classes: int) -> Config:
    """Deformable DETR with ResNet-50, neither two-stage nor with box refinement, trained for 50 epochs."""
    config = load_shipped_config(D_DETR)
    config.model.bbox_head.num_classes = classes
    return config


def f_rcnn_single(classes: int) -> Config:
    """Faster R-CNN trained at one scale."""
    return _epochs(_single_scale(f_rcnn(classes)), 36)


def f_rcnn_short(classes: int) -> Config:
    """Faster R-CNN trained for 12 epochs at one scale."""
    return _epochs(f_rcnn_single(classes), 12)


def f_rcnn_large(classes: int) -> Config:
    """Faster R-CNN with ResNet-101."""
    config = f_rcnn(classes)
    config.model.backbone.depth = 101
    return config


def f_rcnn_large_dcn(classes: int) -> Config:
    """Faster R-CNN with ResNet-101 and deformable convolutions in its last three stages."""
    config = f_rcnn_large(classes)
    config.model.backbone.dcn = {"type": "DCN", "deform_groups": 1, "fallback_on_stride": False}
    config.model.backbone.stage_with_dcn = (False, True, True, True)
    return config


def _epochs(config: Config, epochs: int) -> Config:
    """Set the number of epochs; the learning rate is divided by ten at the milestones."""
    config.train_cfg.max_epochs = epochs
    config.param_scheduler[-1].update(end=epochs, milestones=MILESTONES[epochs])
    return config


def _learning_rate(config: Config, rate: float) -> Config:
    config.optim_wrapper.optimizer.lr = rate
    return config


def _multi_scale(config: Config) -> Config:
    """Use Deformable DETR's augmentation: random resizing, or resizing, cropping and resizing again."""
    config.train_dataloader.dataset.pipeline = load_shipped_config(D_DETR).train_dataloader.dataset.pipeline
    return config


def _single_scale(config: Config) -> Config:
    config.train_dataloader.dataset.pipeline = load_shipped_config(F_RCNN).train_dataloader.dataset.pipeline
    return config


DETECTORS: dict[str, Callable[[int], Config]] = {
    "f-rcnn": f_rcnn,
    "rs-rcnn": rs_rcnn,
    "atss": atss,
    "d-detr": d_detr,
    "nll-rcnn": nll_rcnn,
    "es-rcnn": es_rcnn,
    "f-rcnn-short": f_rcnn_short,
    "f-rcnn-single": f_rcnn_single,
    "f-rcnn-large": f_rcnn_large,
    "f-rcnn-large-dcn": f_rcnn_large_dcn,
}
