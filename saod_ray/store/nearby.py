"""Paths that are not stores: what they are instead, and which stores are nearby."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from shlex import quote

from saod_ray.errors import SaodError, join_truncated

MARKER = "use-case.json"  # every store has this file
RUNS = Path("runs")  # where runs write their stores by default


def is_store(path: str | Path) -> bool:
    """Whether a path is the folder of a store on disk."""
    with suppress(OSError, ValueError):
        return (Path(path) / MARKER).is_file()
    return False


def stores_in(folder: Path) -> list[str]:
    """The stores directly in a folder, sorted."""
    with suppress(OSError):
        return sorted(str(path) for path in folder.iterdir() if is_store(path))
    return []


def nearby_stores(path: str | Path = "") -> list[str]:
    """The stores next to a path, in `runs` and in the current folder."""
    folders = [Path(path).parent, RUNS, Path()] if path else [RUNS, Path()]
    return list(dict.fromkeys(store for folder in folders for store in stores_in(folder)))


def no_store(uri: str) -> SaodError:
    """The error for a path that is not a store: what it is, the store that may be meant, and how to create one."""
    path = Path(uri)
    if "://" not in uri:
        with suppress(OSError):
            if path.is_file():
                owner = next((str(parent) for parent in path.parents if is_store(parent)), "runs/shapes")
                return SaodError(f"{uri} is a file: give the folder of a store, for instance {owner}.")
            if path.is_dir():
                return _no_store_folder(uri)
        similar = next(_similar(uri), None)
        if similar:
            return SaodError(f"There is no store at {uri} (did you mean '{similar}'?): {_creation(uri)}.")
    return SaodError(f"There is no store at {uri}: {_creation(uri)}.")


def _no_store_folder(uri: str) -> SaodError:
    inside = stores_in(Path(uri))
    if inside:
        return SaodError(f"There is no store at {uri}, but in that folder: give {join_truncated(inside)}.")
    owner = next((str(parent) for parent in Path(uri).parents if is_store(parent)), None)
    if owner:
        return SaodError(f"There is no store at {uri}, which is part of one: give {owner}.")
    return SaodError(f"There is no store at {uri}, a folder without {MARKER}: {_creation(uri)}.")


def _similar(uri: str) -> Iterator[str]:
    """Stores whose path or name is similar, the most similar first."""
    stores = nearby_stores(uri)
    yield from difflib.get_close_matches(uri.rstrip("/"), stores)
    by_name = {Path(store).name: store for store in reversed(stores)}
    yield from (by_name[name] for name in difflib.get_close_matches(Path(uri).name, by_name))


def _creation(uri: str) -> str:
    place = quote(uri)
    return f"create it with `saod-ray run --store {place}`, or with `saod-ray import {place} …`"
