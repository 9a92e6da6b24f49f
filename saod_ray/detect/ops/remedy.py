"""What to do when an operator is missing."""

REMEDY = "install mmcv with compiled operators (the package mmcv, built for this PyTorch, instead of mmcv-lite)"
