"""Packages that can be called like a function: `saod_ray.score(store)` and `saod_ray.report(store)`."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallablePackage(ModuleType):
    """A package whose call is forwarded to the function of `saod_ray.api` that has its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function of `saod_ray.api`; it is imported now, so that the package does not depend on it."""
        function = getattr(import_module("saod_ray.api"), self.__name__.rpartition(".")[2])
        return function(*args, **options)


def make_callable(package: str) -> None:
    """Make an imported package callable."""
    sys.modules[package].__class__ = CallablePackage
