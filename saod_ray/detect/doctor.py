"""What this machine can run, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

from saod_ray.versions import package_version


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; `remedy` is what to type where it is not there."""

    what: str
    is_there: bool
    detail: str
    remedy: str = ""


def findings() -> list[Finding]:
    """Everything the product may use, in the order in which a run needs it."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        Finding("machine", True, f"Python {platform.python_version()}, {cores} cores, {memory:.0f} GiB"),
        _package("scoring", "polars", "pip install saod-ray"),
        _package("corruptions", "imagecorruptions", "pip install imagecorruptions", "its frost photographs"),
        _package("PyTorch", "torch", "pip install torch", _device),
        _package("detectors", "mmdet", "pip install 'saod-ray[mmdet]'", _ops),
        _package("cluster", "ray", "pip install 'ray[data]'"),
    ]


def _package(what: str, name: str, remedy: str, more: str | Callable[[], str] = "") -> Finding:
    version = package_version(name)
    if version is None:
        return Finding(what, False, f"{name} is not installed", remedy)
    extra = more if isinstance(more, str) else more()
    return Finding(what, True, f"{name} {version}, {extra}" if extra else f"{name} {version}")


def _device() -> str:
    import torch

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
    return f"on the CPU, {torch.get_num_threads()} threads"


def _ops() -> str:
    if importlib.util.find_spec("mmcv") is None:
        return "but mmcv is not installed: pip install mmcv-lite==2.1.0"
    from saod_ray.detect import ops

    return f"mmcv's operators {'compiled' if ops.which() == 'compiled' else 'in PyTorch (ours; nothing to compile)'}"
