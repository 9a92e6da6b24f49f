"""Detectors by name: those that come with the package, and those of a user's TOML file.

torch and mmdet are imported only where a detector is built or its fingerprint is taken.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import inspect
import json
import os
import re
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from saod_ray.config import DetectorSpec, Model, first_complaint
from saod_ray.errors import SaodError, did_you_mean, join_truncated
from saod_ray.versions import public_version

if TYPE_CHECKING:
    from saod_ray.detect.detections import Detector

BACKENDS = {
    "mmdet": "saod_ray.detect.adapter:MmdetDetector",
    "torchvision": "saod_ray.detect.backends.torchvision:TorchvisionDetector",
    "transformers": "saod_ray.detect.backends.transformers:TransformersDetector",
}
PACKAGES = {  # whose versions change what a backend detects, beside OpenCV, which reads images; mmcv is one of two
    "mmdet": ("torch", "mmdet", "mmcv", "mmcv-lite"),
    "torchvision": ("torch", "torchvision"),
    "transformers": ("torch", "transformers"),
}
GIVEN = ("spec", "config", "checkpoint", "device", "batch_size")  # what a backend gets beside its options
FORMAT = 2  # of fingerprints: raise it when the same files give other detections
_HERE = Path(__file__).parent
_OURS = _HERE / "detectors.toml"
_SHIPPED = ("shapes",)  # the use cases whose weights lie in the package


def _backend(text: str) -> str:
    if text not in BACKENDS and not re.fullmatch(r"\w+(\.\w+)*:\w+", text):
        known = ", ".join(BACKENDS)
        raise ValueError(
            f"'{text}' is not a backend{did_you_mean(text, BACKENDS)}: use {known} or package.module:Class"
        )
    if text not in BACKENDS and _is_standard(text.partition(":")[0]):
        raise ValueError(f"'{text}' is part of Python itself and no detector: name a class of yours")
    return text


def _is_standard(module: str) -> bool:
    """Whether a module comes with Python.

    >>> _is_standard("os.path"), _is_standard("builtins"), _is_standard("my_detectors")
    (True, True, False)
    """
    return module.partition(".")[0] in sys.stdlib_module_names


class Table(Model):
    """What a TOML file says of a detector."""

    config: str = ""  # mmdet: a name of ours, or in a user's file the path of a .py config
    checkpoint: str = ""
    backend: Annotated[str, AfterValidator(_backend)] = "mmdet"
    about: str = ""
    variant: bool = False
    classes: tuple[str, ...] = ()  # in label order; those of the use case by default
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _fits_backend(self) -> Self:
        if (self.backend == "mmdet") != bool(self.config):
            raise ValueError("`config` is what the backend mmdet needs, and no other takes")
        if self.backend == "transformers" and not self.checkpoint:
            raise ValueError("`checkpoint` must be the folder with config.json and model.safetensors")
        if taken := sorted(set(self.options) & set(GIVEN)):
            raise ValueError(f"`options` cannot have {', '.join(taken)}: each run gives that")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two of `classes` have one name")
        return self


class Entry(Table):
    """A detector of a use case; `folder` is that of a user's TOML file, and None for ours."""

    name: str
    use_case: str
    folder: Path | None = None


@dataclass(frozen=True)
class State:
    """What people are told of a detector: its weights are None where there are none, or it needs none."""

    use_case: str
    name: str
    about: str
    variant: bool
    backend: str
    weights: str | None
    looked_for: list[str]


def use_cases() -> list[str]:
    """The use cases that detectors come with, in the order of the file."""
    return list(_toml(_OURS))


def choose(use_case: str, detectors: str = "all") -> list[Entry]:
    """The detectors meant by `all`, names or TOML files, separated by commas; variants are no part of `all`."""
    chosen: dict[str, Entry] = {}
    for word in filter(None, (part.strip() for part in detectors.split(","))):
        for entry in _meant(use_case, word):
            if chosen.setdefault(entry.name, entry) != entry:
                raise SaodError(f"--detectors {detectors} has two that are called '{entry.name}': rename yours.")
    if not chosen:
        raise SaodError(f"--detectors '{detectors}' names no detector: give all, names or a TOML file.")
    return list(chosen.values())


def built_in(use_case: str, name: str) -> Entry:
    """The detector of that very name that comes with a use case: never a file, whatever the name looks like."""
    entries = _entries(_OURS, _toml(_OURS).get(use_case, {}), use_case, None)
    for entry in entries:
        if entry.name == name:
            return entry
    raise SaodError(
        f"'{name}' of the use case '{use_case}' does not come with saod-ray: name the TOML file that it is in with "
        "--detector FILE.toml."
    )


def every(use_case: str) -> list[Entry]:
    """The detectors that come with a use case, variants included."""
    entries = _entries(_OURS, _toml(_OURS).get(use_case, {}), use_case, None)
    if not entries:
        raise SaodError(
            f"No detectors come with the use case '{use_case}': give --detectors FILE.toml with a table for each of yours."
        )
    return entries


def _meant(use_case: str, word: str) -> list[Entry]:
    if word.endswith(".toml"):
        path = Path(word)
        return _entries(path, _toml(path), use_case, path.resolve().parent)
    known = {entry.name: entry for entry in every(use_case)}
    if word == "all":
        return [entry for entry in known.values() if not entry.variant]
    if word not in known:
        hint = did_you_mean(word, known)
        raise SaodError(
            f"There is no detector '{word}' of '{use_case}'{hint}: use all, {', '.join(known)}, or a TOML file of yours."
        )
    return [known[word]]


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SaodError(f"{path} cannot be read ({error.strerror}): give the TOML file of your detectors.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SaodError(f"{path} is not TOML ({error}): mend it and try again.") from None


def _entries(path: Path, tables: dict[str, Any], use_case: str, folder: Path | None) -> list[Entry]:
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise SaodError(f"{path}: the key '{key}' belongs to no detector: put a line [NAME] above it.")
        try:
            Table(**table)
        except ValidationError as error:
            raise SaodError(f"{path}: [{key}]: {first_complaint(error, 'key', Table)}") from None
    return [Entry(name=name, use_case=use_case, folder=folder, **table) for name, table in tables.items()]


def weights_folder(given: str | Path | None = None) -> Path:
    """Where weights are looked for: the folder given, that of SAOD_WEIGHTS, or `weights` in the current folder."""
    folder = given or os.environ.get("SAOD_WEIGHTS") or "weights"
    if "://" in str(folder):
        raise SaodError(f"Weights are read from folders, not from {folder}: mount it, or copy it to every node.")
    return Path(folder).expanduser().absolute()


def places(entry: Entry, weights: Path) -> list[Path]:
    """Where a detector's weights may lie, the first that is there counts: what a user put there goes before ours."""
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
    inside = [_HERE / "weights" / entry.use_case / f"{entry.name}.safetensors"] if entry.use_case in _SHIPPED else []
    return [*named, *official, *inside]


def state(entry: Entry, weights: Path) -> State:
    """A detector and its weights."""
    looked_for = places(entry, weights)
    found = next((str(path) for path in looked_for if path.exists()), None)
    said = (entry.use_case, entry.name, entry.about, entry.variant, entry.backend)
    return State(*said, found, [str(path) for path in looked_for])


def find_weights(entry: Entry, weights: Path) -> Path | None:
    """A detector's checkpoint; None for a class of a user's that has none."""
    looked_for = places(entry, weights)
    found = next((path for path in looked_for if path.exists()), None)
    if looked_for and found is None:
        command = f"saod-ray train --detector {entry.name} --use-case {entry.use_case}"
        train = f", or make them with `{command}`" if entry.folder is None else ""
        raise SaodError(
            f"There are no weights of '{entry.name}' ({entry.use_case}): looked for {', '.join(map(str, looked_for))}; "
            f"put them there, or say where they are with --weights DIR{train}."
        )
    return found


def fingerprint(entry: Entry, use_case_classes: Sequence[str], weights: Path) -> str:
    """A digest of all that its detections depend on: backend, model, preparation, options, classes, weights, packages.

    No path and nothing of the training counts, and no model is built.
    """
    classes = _classes(entry, use_case_classes)
    config = _inference(_config(entry, len(classes))) if entry.backend == "mmdet" else None
    said = [FORMAT, entry.backend, config, entry.options, classes, _digest(find_weights(entry, weights))]
    said.append([public_version(name) for name in ("opencv-python", *PACKAGES.get(entry.backend, ()))])
    if entry.backend not in BACKENDS:  # a user's own class may change
        said.append(_digest(_source_file(entry) or Path(inspect.getfile(_kind(entry)))))
    text = json.dumps(said, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=20).hexdigest()


def describe(entry: Entry, use_case_classes: Sequence[str], weights: Path) -> DetectorSpec:
    """What the detector will say of itself, without building it."""
    classes = _classes(entry, use_case_classes)
    return DetectorSpec(name=entry.name, classes=classes, fingerprint=fingerprint(entry, use_case_classes, weights))


def build(
    entry: Entry,
    use_case_classes: Sequence[str],
    weights: Path,
    device: str = "cpu",
    batch_size: int = 2,
    threads: int | None = None,
) -> Detector:
    """The detector, ready to detect; what changes its detections (`half`) is an option of the entry, for its fingerprint.

    A class that has no parameter `threads` does without.
    """
    spec = describe(entry, use_case_classes, weights)
    given = {
        "spec": spec,
        "checkpoint": find_weights(entry, weights),
        "device": device,
        "batch_size": batch_size,
    }
    if entry.backend == "mmdet":
        given["config"] = _config(entry, len(spec.classes))
    kind = _kind(entry)
    takes = inspect.signature(kind)
    given |= ({"threads": threads} if "threads" in takes.parameters else {}) | entry.options
    try:
        takes.bind(**given)
    except TypeError as error:
        raise SaodError(f"'{entry.name}': {entry.backend} {error}: mend its `options`.") from None
    return _checked(entry, kind(**given))


def _checked(entry: Entry, built: Any) -> Detector:
    if not callable(getattr(built, "detect", None)) or not isinstance(getattr(built, "spec", None), DetectorSpec):
        raise SaodError(
            f"'{entry.name}': what {entry.backend} makes is no detector: give it `detect(images)` and the `spec` it was given."
        )
    detector: Detector = built
    return detector


def _classes(entry: Entry, use_case_classes: Sequence[str]) -> tuple[str, ...]:
    classes = entry.classes or tuple(use_case_classes)
    lacking = [name for name in use_case_classes if name not in classes]
    strange = [name for name in classes if name not in use_case_classes]
    if lacking or strange:
        parts = [f"lacks {join_truncated(lacking)}"] * bool(lacking) + [f"has also {join_truncated(strange)}"] * bool(
            strange
        )
        raise SaodError(
            f"'{entry.name}' does not have the classes of the use case: it {' and '.join(parts)}: "
            "name its `classes` as the use case does, in the order of its labels."
        )
    return classes


def _config(entry: Entry, classes: int) -> Any:
    """The mmdet config of a detector."""
    if not entry.config.endswith(".py") or entry.folder is None:
        return _imported("saod_ray.detect.configs", entry).named(entry.config, classes)
    path = entry.folder / Path(entry.config).expanduser()
    _imported("saod_ray.detect.mmdetection", entry)
    try:
        config = _imported("mmengine.config", entry).Config.fromfile(path)
        _inference(config)
    except Exception as error:  # the file is a program, which may raise anything
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"'{entry.name}': {path} is not a config for mmdet 3 ({reason}): mend it.") from None
    counts = set(class_counts(config.model)) - {classes}
    if counts:
        raise SaodError(
            f"'{entry.name}': {path} is for {min(counts)} classes, not {classes}: set `num_classes` of its bbox_head."
        )
    return config


def _inference(config: Any) -> dict[str, Any]:
    """What of an mmdet config its detections depend on."""
    from mmdet.utils import get_test_pipeline_cfg

    model = {key: value for key, value in config.to_dict()["model"].items() if key != "train_cfg"}
    return {"model": model, "pipeline": list(get_test_pipeline_cfg(config.copy()))}


def class_counts(model: Any, below: bool = False) -> list[int]:
    """Every `num_classes` in or below a bbox_head."""
    if isinstance(model, dict):
        parts = [class_counts(value, below or key == "bbox_head") for key, value in model.items()]
        own = [model["num_classes"]] if below and "num_classes" in model else []
        return own + [count for part in parts for count in part]
    return [count for each in model for count in class_counts(each, below)] if isinstance(model, list) else []


def _digest(checkpoint: Path | None) -> list[tuple[str, str]]:
    """The bytes of a checkpoint, or of the model's files in a folder."""
    if checkpoint is None:
        return []
    if checkpoint.is_dir():
        files = sorted(path for path in checkpoint.iterdir() if path.suffix in (".json", ".safetensors"))
        return [(path.name, *_digest(path)[0][1:]) for path in files]
    with checkpoint.open("rb") as file:
        return [("", hashlib.file_digest(file, "blake2b").hexdigest())]


def _source_file(entry: Entry) -> Path | None:
    """The file that defines a user's class, without running any of it; None where its text alone does not tell."""
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
    return path if any(isinstance(each, ast.ClassDef) and each.name == name for each in statements) else None


def _kind(entry: Entry) -> Any:
    """The class behind a backend's name. One that cannot be a detector is refused before anything is called."""
    module, _, name = BACKENDS.get(entry.backend, entry.backend).partition(":")
    kind = getattr(_imported(module, entry), name, None)
    if not inspect.isclass(kind):
        raise SaodError(f"'{entry.name}': {module} has no class {name}: fix its `backend`.")
    if not callable(getattr(kind, "detect", None)) or _is_standard(kind.__module__):
        raise SaodError(
            f"'{entry.name}': {entry.backend} is no detector: give it `detect(images)`, or name another class."
        )
    return kind


def _imported(module: str, entry: Entry) -> Any:
    """A module, which for a user's own class may lie beside the TOML file."""
    if entry.folder is not None and str(entry.folder) not in sys.path:
        sys.path.append(str(entry.folder))
    try:
        return importlib.import_module(module)
    except Exception as error:  # a user's module may raise anything
        extra = f"pip install 'saod-ray[{entry.backend}]'"
        remedy = extra if entry.backend in BACKENDS else f"install it, or put it into {entry.folder}"
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise SaodError(f"'{entry.name}': {module} cannot be imported ({reason}): {remedy}.") from None
