"""Where detectors' weights are: paths that are searched, and the first one that exists."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from saod_ray.detect.entries import BACKENDS, Entry
from saod_ray.errors import SaodError

_PACKAGED = Path(__file__).parent / "weights"
_PACKAGED_USE_CASES = ("shapes",)


@dataclass(frozen=True)
class DetectorState:
    """A detector as `saod-ray detectors` lists it; `weights` is None if they are missing or not needed."""

    use_case: str
    name: str
    about: str
    variant: bool
    backend: str
    weights: str | None
    looked_for: list[str]


def weights_folder(folder: str | Path | None = None) -> Path:
    """The folder that is searched for weights: this one, that of SAOD_WEIGHTS, or `weights` in the current folder."""
    folder = folder or os.environ.get("SAOD_WEIGHTS") or "weights"
    if "://" in str(folder):
        raise SaodError(f"Weights are read from folders, not from {folder}: mount it, or copy it to every node.")
    return Path(folder).expanduser().absolute()


def weight_paths(entry: Entry, weights: Path) -> list[Path]:
    """The paths that are searched for a detector's weights, in order: a user's files come before packaged ones.

    Empty for a detector that needs no weights.
    """
    checkpoint = Path(entry.checkpoint).expanduser()
    if entry.folder is not None and (entry.checkpoint or entry.backend not in BACKENDS):
        return list(dict.fromkeys([entry.folder / checkpoint, weights / checkpoint])) if entry.checkpoint else []
    for name in (entry.use_case, entry.name):
        if "/" in name or "\0" in name or name in ("", ".", ".."):
            raise SaodError(f"'{name}' cannot name a folder or file of weights: name a `checkpoint`, or rename it.")
    named = [weights / entry.use_case / f"{entry.name}{suffix}" for suffix in (".safetensors", ".pth")]
    if entry.folder is not None:
        return named
    official = [weights / checkpoint] if entry.checkpoint else []
    is_packaged = entry.use_case in _PACKAGED_USE_CASES
    packaged = [_PACKAGED / entry.use_case / f"{entry.name}.safetensors"] if is_packaged else []
    return [*named, *official, *packaged]


def state(entry: Entry, weights: Path) -> DetectorState:
    """A detector, and where its weights are."""
    paths = weight_paths(entry, weights)
    existing = next((str(path) for path in paths if path.exists()), None)
    return DetectorState(
        use_case=entry.use_case,
        name=entry.name,
        about=entry.about,
        variant=entry.variant,
        backend=entry.backend,
        weights=existing,
        looked_for=[str(path) for path in paths],
    )


def find_weights(entry: Entry, weights: Path) -> Path | None:
    """A detector's checkpoint; None if it needs none. SaodError lists the searched paths if none exists."""
    paths = weight_paths(entry, weights)
    existing = next((path for path in paths if path.exists()), None)
    if paths and existing is None:
        command = f"saod-ray train --detector {entry.name} --use-case {entry.use_case}"
        train = f", or train them with `{command}`" if entry.folder is None else ""
        raise SaodError(
            f"There are no weights of '{entry.name}' ({entry.use_case}): looked for {', '.join(map(str, paths))}; "
            f"put them there, or say where they are with --weights DIR{train}."
        )
    return existing
