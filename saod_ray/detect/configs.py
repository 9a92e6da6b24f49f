"""The paper's detectors as mmdet configs (appendix B): what mmdet ships, and what the paper changed in it."""

from __future__ import annotations

from collections.abc import Callable

from mmengine.config import Config

from saod_ray.detect.mmdetection import shipped

STDS = [0.1, 0.1, 0.2, 0.2]


def f_rcnn(classes: int) -> Config:
    """Faster R-CNN with ResNet-50 and FPN."""
    config = shipped("faster_rcnn/faster-rcnn_r50_fpn_1x_coco.py")
    config.model.roi_head.bbox_head.num_classes = classes
    return config


def rs_rcnn(classes: int) -> Config:
    """Rank & Sort R-CNN: a sigmoid classifier, and an RPN whose boxes are coded as the second stage's."""
    config = f_rcnn(classes)
    config.model.roi_head.bbox_head.type = "RankSortBBoxHead"
    config.model.rpn_head.bbox_coder.target_stds = STDS
    return config


def probabilistic_rcnn(classes: int) -> Config:
    """NLL and Energy-Score R-CNN: they differ in the loss alone."""
    config = f_rcnn(classes)
    config.model.roi_head.bbox_head.type = "ProbabilisticBBoxHead"
    return config


def atss(classes: int) -> Config:
    """ATSS with ResNet-50 and FPN."""
    config = shipped("atss/atss_r50_fpn_1x_coco.py")
    config.model.bbox_head.num_classes = classes
    return config


def d_detr(classes: int) -> Config:
    """Deformable DETR with ResNet-50."""
    config = shipped("deformable_detr/deformable-detr_r50_16xb2-50e_coco.py")
    config.model.bbox_head.num_classes = classes
    return config


DETECTORS: dict[str, Callable[[int], Config]] = {
    "f-rcnn": f_rcnn,
    "rs-rcnn": rs_rcnn,
    "atss": atss,
    "d-detr": d_detr,
    "nll-rcnn": probabilistic_rcnn,
    "es-rcnn": probabilistic_rcnn,
}


def paper(detector: str, classes: int) -> Config:
    """One of the paper's detectors. Images are not padded but to those beside them, and weights come from a checkpoint."""
    config = DETECTORS[detector](classes)
    config.model.data_preprocessor.pad_size_divisor = 1
    config.model.backbone.init_cfg = None  # not from the network
    return config
