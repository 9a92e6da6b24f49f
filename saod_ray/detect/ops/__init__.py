"""PyTorch replacements for mmcv's compiled operators, so that mmdet runs with mmcv-lite, which needs no compiler.

`install()` must run before `mmcv.ops` is imported, in every process. A compiled `mmcv._ext` takes precedence.

Functions have the names and signatures with which mmcv's Python wrappers call the compiled ones: they write into tensors
that the wrapper allocated, and backward functions add to gradients that are zero. They are what the paper's detectors
need for training and inference on any device. mmcv calls multi-scale deformable attention and the focal loss on GPUs only.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Literal, NoReturn

from saod_ray.detect.ops.deform_attn import ms_deform_attn_backward, ms_deform_attn_forward
from saod_ray.detect.ops.deform_conv import (
    deform_conv_backward_input,
    deform_conv_backward_parameters,
    deform_conv_forward,
    modulated_deform_conv_backward,
    modulated_deform_conv_forward,
)
from saod_ray.detect.ops.focal_loss import sigmoid_focal_loss_backward, sigmoid_focal_loss_forward
from saod_ray.detect.ops.remedy import REMEDY
from saod_ray.detect.ops.roi_align import roi_align_backward, roi_align_forward
from saod_ray.detect.ops.suppression import nms

NAME = "mmcv._ext"
OPERATORS: dict[str, Callable[..., Any]] = {
    operator.__name__: operator
    for operator in (
        nms,
        roi_align_forward,
        roi_align_backward,
        modulated_deform_conv_forward,
        modulated_deform_conv_backward,
        deform_conv_forward,
        deform_conv_backward_input,
        deform_conv_backward_parameters,
        ms_deform_attn_forward,
        ms_deform_attn_backward,
        sigmoid_focal_loss_forward,
        sigmoid_focal_loss_backward,
    )
} | {
    # mmcv calls these when it describes the environment
    "get_compiler_version": lambda: "not available",
    "get_compiling_cuda_version": lambda: "not available",
}


class _Operators(ModuleType):
    """The module of the operators above. mmcv looks up all other names at import: these raise only when called."""

    def __getattr__(self, name: str) -> Callable[..., NoReturn]:
        if name.startswith("__"):
            raise AttributeError(name)

        def missing(*args: object, **kwargs: object) -> NoReturn:
            raise NotImplementedError(f"mmcv's operator {name} does not exist in PyTorch here: {REMEDY}")

        return missing


class _Finder(MetaPathFinder, Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname == NAME else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Operators(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(OPERATORS)


def install() -> None:
    """Make `import mmcv.ops` find these operators, unless compiled ones exist. A second call does nothing."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())  # at the end, so that any other `mmcv._ext` is found first


def which() -> Literal["compiled", "PyTorch"]:
    """Which operators mmcv uses in this process, after `install()`. ImportError if compiled ones do not load."""
    install()
    return "PyTorch" if isinstance(importlib.import_module(NAME), _Operators) else "compiled"
