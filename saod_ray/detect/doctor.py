"""`saod-ray doctor`: what this machine can run, and what to install for the rest."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass

from saod_ray.machine import usable_cores
from saod_ray.versions import package_version


@dataclass(frozen=True)
class Finding:
    """The result of one check; `remedy` is the command that installs what is missing."""

    what: str
    is_there: bool
    detail: str
    remedy: str = ""


def findings() -> list[Finding]:
    """Check everything that the product can use, in the order in which a run needs it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return [
        Finding("machine", True, f"Python {platform.python_version()}, {usable_cores()} cores, {memory:.0f} GiB"),
        _check_package("scoring", "polars", "pip install saod-ray"),
        _check_package("corruptions", "imagecorruptions", "pip install imagecorruptions", "its frost photographs"),
        _check_package("PyTorch", "torch", "pip install torch", _describe_device),
        _check_package("detectors", "mmdet", "pip install 'saod-ray[mmdet]'", _describe_operators),
        _check_package("cluster", "ray", "pip install 'ray[data]'"),
    ]


def _check_package(what: str, name: str, remedy: str, more: str | Callable[[], str] = "") -> Finding:
    """Look for an installed package; `more` adds to its version, and is called only if the package is installed."""
    version = package_version(name)
    if version is None:
        return Finding(what, False, f"{name} is not installed", remedy)
    extra = more if isinstance(more, str) else more()
    return Finding(what, True, f"{name} {version}, {extra}" if extra else f"{name} {version}")


def _describe_device() -> str:
    import torch

    if torch.cuda.is_available():
        return ", ".join(torch.cuda.get_device_name(k) for k in range(torch.cuda.device_count()))
    return f"on the CPU, {torch.get_num_threads()} threads"


def _describe_operators() -> str:
    if importlib.util.find_spec("mmcv") is None:
        return "but mmcv is not installed: pip install mmcv-lite==2.1.0"
    from saod_ray.detect import ops

    return f"mmcv's operators {'compiled' if ops.which() == 'compiled' else 'in PyTorch (ours; nothing to compile)'}"
