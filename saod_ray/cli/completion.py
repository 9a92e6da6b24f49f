"""Completion in the shell: detectors, use cases, splits, experiments, and stores below the current folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

USE_CASES = ("shapes", "gen", "av")
SPLITS = ("train", "val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood")
MAX_FOLDERS = 1000  # per level
DEPTH = 3  # folders below the current one in which stores are looked for


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def use_cases(incomplete: str) -> list[str]:
    """The built-in use cases."""
    return _matching(USE_CASES, incomplete)


def splits(incomplete: str) -> list[str]:
    """The splits of a use case."""
    return _matching(SPLITS, incomplete)


def detectors(incomplete: str) -> list[str]:
    """Names of detectors; in a list, the one after the last comma."""
    from saod_ray.detect import registry

    names = dict.fromkeys(entry.name for case in USE_CASES for entry in registry.all_entries(case))
    head, comma, last = incomplete.rpartition(",")
    return [head + comma + name for name in _matching(names if comma else ("all", *names), last)]


def experiments(incomplete: str) -> list[str]:
    """Names of experiments."""
    from saod_ray import experiment

    return _matching(("all", "list", *(entry.name for entry in experiment.all_experiments())), incomplete)


def stores(incomplete: str) -> list[str]:
    """Folders with a store below the current folder, or below the folder that was typed."""
    base = Path(incomplete) if incomplete.endswith("/") else Path(incomplete).parent
    uris: list[str] = []
    folders = [base]
    for _ in range(DEPTH):
        folders = [path for folder in folders for path in _subfolders(folder)][:MAX_FOLDERS]
        uris += [str(path) for path in folders if _has_detections(path)]
    return _matching(uris, incomplete)


def _has_detections(folder: Path) -> bool:
    try:
        return (folder / "ledger").is_dir()
    except OSError:
        return False


def _subfolders(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return []
