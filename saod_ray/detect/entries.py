"""Which detectors exist: those that come with the package, and those of a user's TOML file."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from saod_ray.config import Model, first_complaint
from saod_ray.errors import SaodError, did_you_mean

BACKENDS = {
    "mmdet": "saod_ray.detect.adapter:MmdetDetector",
    "torchvision": "saod_ray.detect.backends.torchvision:TorchvisionDetector",
    "transformers": "saod_ray.detect.backends.transformers:TransformersDetector",
}
RUN_ARGUMENTS = ("spec", "config", "checkpoint", "device", "batch_size")  # which `options` cannot set
_BUILT_IN_FILE = Path(__file__).parent / "detectors.toml"


def _check_backend(text: str) -> str:
    if text not in BACKENDS and not re.fullmatch(r"\w+(\.\w+)*:\w+", text):
        raise ValueError(
            f"'{text}' is not a backend{did_you_mean(text, BACKENDS)}: use {', '.join(BACKENDS)} or package.module:Class"
        )
    if text not in BACKENDS and is_standard_library(text.partition(":")[0]):
        raise ValueError(f"'{text}' is part of Python itself and not a detector: name a class of yours")
    return text


def is_standard_library(module: str) -> bool:
    """Whether a module comes with Python.

    >>> is_standard_library("os.path"), is_standard_library("builtins"), is_standard_library("my_detectors")
    (True, True, False)
    """
    return module.partition(".")[0] in sys.stdlib_module_names


class DetectorTable(Model):
    """The keys of a detector's table in a TOML file."""

    config: str = ""  # mmdet only: the name of a built-in config, or in a user's file the path of a .py config
    checkpoint: str = ""
    backend: Annotated[str, AfterValidator(_check_backend)] = "mmdet"
    about: str = ""
    variant: bool = False
    classes: tuple[str, ...] = ()  # in label order; by default those of the use case
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if (self.backend == "mmdet") != bool(self.config):
            raise ValueError("`config` is required by the backend mmdet, and no other backend accepts it")
        if self.backend == "transformers" and not self.checkpoint:
            raise ValueError("`checkpoint` must be the folder with config.json and model.safetensors")
        if reserved := sorted(set(self.options) & set(RUN_ARGUMENTS)):
            raise ValueError(f"`options` cannot have {', '.join(reserved)}: each run sets them")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("two of `classes` have the same name")
        return self


class Entry(DetectorTable):
    """A detector of a use case; `folder` is that of a user's TOML file, and None for built-in detectors."""

    name: str
    use_case: str
    folder: Path | None = None


def use_cases() -> list[str]:
    """The use cases with built-in detectors, in the order of `detectors.toml`."""
    return list(_read_toml(_BUILT_IN_FILE))


def choose(use_case: str, detectors: str = "all", option: str = "--detectors") -> list[Entry]:
    """The detectors that `all`, names or TOML files (separated by commas) select. `all` does not include variants.

    `option` is the command-line option that `detectors` came from, for error messages. SaodError for an unknown name, a file that cannot be read, or two detectors of one name.
    """
    selected: dict[str, Entry] = {}
    for word in filter(None, (part.strip() for part in detectors.split(","))):
        for entry in _resolve(use_case, word, option):
            if selected.setdefault(entry.name, entry) != entry:
                raise SaodError(f"{option} {detectors} has two that are called '{entry.name}': rename yours.")
    if not selected:
        values = "all, names or a TOML file" if option == "--detectors" else "a name or a TOML file"
        raise SaodError(f"{option} '{detectors}' names no detector: give {values}.")
    return list(selected.values())


def built_in(use_case: str, name: str) -> Entry:
    """The built-in detector of exactly this name: a name that looks like a file is never opened as one."""
    for entry in _built_in_entries(use_case):
        if entry.name == name:
            return entry
    raise SaodError(
        f"'{name}' of the use case '{use_case}' does not come with saod-ray: name the TOML file that it is in with "
        "--detector FILE.toml."
    )


def all_entries(use_case: str, option: str = "--detectors") -> list[Entry]:
    """All built-in detectors of a use case, including variants. SaodError if it has none."""
    entries = _built_in_entries(use_case)
    if not entries:
        raise SaodError(
            f"No detectors come with the use case '{use_case}': give {option} FILE.toml with a table for each of yours."
        )
    return entries


def _resolve(use_case: str, word: str, option: str) -> list[Entry]:
    if word.endswith(".toml"):
        path = Path(word)
        return _parse_entries(path, _read_toml(path), use_case, path.resolve().parent)
    by_name = {entry.name: entry for entry in all_entries(use_case, option)}
    if word == "all":
        return [entry for entry in by_name.values() if not entry.variant]
    if word not in by_name:
        hint = did_you_mean(word, by_name)
        names = ", ".join(["all", *by_name] if option == "--detectors" else by_name)
        raise SaodError(f"There is no detector '{word}' of '{use_case}'{hint}: use {names}, or a TOML file of yours.")
    return [by_name[word]]


def _built_in_entries(use_case: str) -> list[Entry]:
    return _parse_entries(_BUILT_IN_FILE, _read_toml(_BUILT_IN_FILE).get(use_case, {}), use_case, None)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SaodError(f"{path} cannot be read ({error.strerror}): give the TOML file of your detectors.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SaodError(f"{path} is not TOML ({error}): fix it and try again.") from error


def _parse_entries(path: Path, tables: dict[str, Any], use_case: str, folder: Path | None) -> list[Entry]:
    for key, table in tables.items():
        if not isinstance(table, dict):
            raise SaodError(f"{path}: the key '{key}' belongs to no detector: put a line [NAME] above it.")
        try:
            DetectorTable(**table)
        except ValidationError as error:
            raise SaodError(f"{path}: [{key}]: {first_complaint(error, 'key', DetectorTable)}") from error
    return [Entry(name=name, use_case=use_case, folder=folder, **table) for name, table in tables.items()]
