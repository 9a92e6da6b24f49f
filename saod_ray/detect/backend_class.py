"""The class behind a detector's backend, which can be a user's own."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from saod_ray.detect.entries import BACKENDS, Entry, is_standard_library
from saod_ray.errors import SaodError


def import_class(entry: Entry) -> Any:
    """The class of a detector's backend. SaodError, before anything is called, if it cannot be a detector."""
    module, _, name = BACKENDS.get(entry.backend, entry.backend).partition(":")
    backend = getattr(import_for(entry, module), name, None)
    if not inspect.isclass(backend):
        raise SaodError(f"'{entry.name}': {module} has no class {name}: fix its `backend`.")
    if not callable(getattr(backend, "detect", None)) or is_standard_library(backend.__module__):
        raise SaodError(
            f"'{entry.name}': {entry.backend} is not a detector: give it `detect(images)`, or name another class."
        )
    return backend


def import_for(entry: Entry, module: str) -> Any:
    """Import a module that a detector needs. A user's own module can be next to the TOML file."""
    if entry.folder is not None and str(entry.folder) not in sys.path:
        sys.path.append(str(entry.folder))
    try:
        return importlib.import_module(module)
    except Exception as error:  # a user's module can raise anything
        extra = f"pip install 'saod-ray[{entry.backend}]'"
        remedy = extra if entry.backend in BACKENDS else f"install it, or put it into {entry.folder}"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"'{entry.name}': {module} cannot be imported ({reason}): {remedy}.") from error


def source_file(entry: Entry) -> Path:
    """The file that defines a user's class. The module is imported only if its text does not show the class."""
    return _find_source(entry) or Path(inspect.getfile(import_class(entry)))


def _find_source(entry: Entry) -> Path | None:
    """The file that defines a user's class, found without running any of it; None if its text does not show that."""
    module, _, name = entry.backend.partition(":")
    search = None if entry.folder is None else [*sys.path, str(entry.folder)]
    importlib.invalidate_caches()
    spec = None
    for part in module.split("."):
        spec = PathFinder.find_spec(part, search)
        if spec is None:
            return None
        search = list(spec.submodule_search_locations or ())
    if spec is None or not spec.has_location or not str(spec.origin).endswith(".py"):
        return None
    path = Path(str(spec.origin))
    try:
        statements = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    return path if any(isinstance(node, ast.ClassDef) and node.name == name for node in statements) else None
