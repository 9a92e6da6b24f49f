"""Reports: tables, charts, pictures and one HTML page.

The package is also a function: `saod_ray.report(store)` is `saod_ray.api.report(store)`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _CallablePackage(ModuleType):
    """A package that can be called, because the public function has its name."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Write a scored store's report and return its path: see `saod_ray.api.report`."""
        from saod_ray.api import report

        return report(*args, **options)


sys.modules[__name__].__class__ = _CallablePackage
