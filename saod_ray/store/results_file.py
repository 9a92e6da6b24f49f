"""Reading results.json, with all checks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from saod_ray.errors import SaodError
from saod_ray.store import seals

if TYPE_CHECKING:
    from saod_ray.files import Folder
    from saod_ray.store.store import Store

FILE = "results.json"
_KINDS = (  # the keys of other JSON files that are nearby, and what each file is
    ({"images", "annotations"}, "has COCO annotations"),
    ({"manifests", "declaration"}, "describes a store"),
    ({"calibrators", "image_threshold"}, "is a self-aware detector"),
    ({"heads", "columns", "rows"}, "is the outcome of an experiment"),
    ({"pairs", "only_in"}, "is the output of `saod-ray diff`"),
    ({"rows", "warnings"}, "is a leaderboard"),
    ({"began", "outcome"}, "is the record of a run"),
)


class _UseCase(msgspec.Struct, frozen=True):
    """Version and digests of the use case."""

    version: int
    annotations: dict[str, str]
    manifests: dict[str, str]


class _Provenance(msgspec.Struct, frozen=True):
    """Versions of the software, and digests of what was scored."""

    saod_ray: str
    python: str
    packages: dict[str, str]
    use_case: _UseCase
    detections: dict[str, dict[str, dict[str, str]]]


class _Bootstrap(msgspec.Struct, frozen=True):
    """How intervals were computed."""

    replicates: int
    seed: int
    level: float


class _Results(msgspec.Struct, frozen=True):
    """The keys that results.json must have. Reports check the metrics of detectors by computing them again."""

    use_case: str
    conventions: str
    settings: dict[str, Any]
    provenance: _Provenance
    detectors: dict[str, dict[str, Any]]
    partial: bool = False
    bootstrap: _Bootstrap | None = None


def read_results(store: Store) -> dict[str, Any]:
    """The content of a store's results.json.

    SaodError if it is absent, damaged or was changed; the message names the command that writes it.
    """
    score_command = f"run `saod-ray score {store.uri}`"
    try:
        value: dict[str, Any] = json.loads(store.folder.read(FILE))
        fault = _fault(value)
    except FileNotFoundError as error:
        raise SaodError(f"{store.uri} has no {FILE} yet: {score_command} first.") from error
    except (ValueError, RecursionError):
        fault = "is damaged"
    if fault:
        raise SaodError(f"{store.folder.display_path(FILE)} {fault}: {score_command} again.")
    return value


def read_file(folder: Folder, name: str, place: str) -> dict[str, Any]:
    """The content of a results file of any name; messages call it `place`.

    SaodError if it is absent, damaged or was changed, or if it is another kind of file.
    """
    try:
        data = folder.read_inside(name, follow_links=True)
        value: Any = json.loads(data)
    except FileNotFoundError as error:
        raise SaodError(f"There is no file {place}: write it with `saod-ray score STORE --out {place}`.") from error
    except (ValueError, RecursionError):
        value = None
    kind = _kind(value)
    if kind:
        raise SaodError(f"{place} has no results (it {kind}): give a store, or a file that `saod-ray score` wrote.")
    fault = _fault(value)
    if fault:
        raise SaodError(f"{place} {fault}: write it again with `saod-ray score STORE --out {place}`.")
    return value


def _kind(value: Any) -> str | None:
    """What a JSON value is that cannot be results; None is a file that is not JSON."""
    if value is None:
        return "is not a JSON file"
    if isinstance(value, list):
        return "is a JSON list, for instance of detections"
    if not isinstance(value, dict):
        return "is a single JSON value"
    kind = next((text for keys, text in _KINDS if keys <= value.keys()), None)
    return kind if kind or "detectors" in value else "is another kind of JSON file"


def _fault(value: Any) -> str | None:
    """What is wrong with the content of results.json, or None. Earlier versions wrote no digest."""
    if not isinstance(value, dict) or "format" not in value:
        return "is damaged"
    if value["format"] != 1:
        return "is of another version"
    if seals.KEY in value and not seals.is_intact(value):
        return "is damaged or was changed (its digest does not match)"
    try:
        msgspec.convert(value, _Results)
    except msgspec.ValidationError as error:
        return f"is damaged ({error})"
    return None
