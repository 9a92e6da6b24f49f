"""The names of Ray that are not public API: another version of Ray that changes them must fail here, not at a user's."""

from __future__ import annotations

import importlib
import inspect
from importlib.metadata import requires, version

import pytest


def test_the_minor_version_is_pinned() -> None:
    (ray,) = [text for text in requires("saod-ray") or () if text.startswith("ray[")]
    assert "<2.61,>=2.60" in ray and version("ray").startswith("2.60.")


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("ray._private.ray_constants", "ENABLE_RAY_CLUSTER"),
        ("ray._private.worker", "print_to_stdstream"),
        ("ray.serve.context", "_get_global_client"),
        ("ray.serve.context", "_set_global_client"),
    ],
)
def test_what_is_used_exists(module: str, name: str) -> None:
    assert hasattr(importlib.import_module(module), name)


def test_lines_pass_through_one_function() -> None:
    worker = importlib.import_module("ray._private.worker")
    assert next(iter(inspect.signature(worker.print_to_stdstream).parameters)) == "data"
    assert '"lines"' in inspect.getsource(worker.print_to_stdstream) + inspect.getsource(worker.print_worker_logs)


def test_the_pipeline_uses_public_names_only() -> None:
    """No import below `ray._private` or `ray.data._internal` in what streams images."""
    for name in ("attempts", "driver", "pipeline", "run", "workers", "resources", "scoring"):
        source = inspect.getsource(importlib.import_module(f"saod_ray.engine.{name}"))
        assert "_private" not in source and "_internal" not in source
