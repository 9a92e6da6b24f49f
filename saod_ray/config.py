"""What users configure: use cases and the settings of scoring."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from saod_ray.errors import SaodError, did_you_mean
from saod_ray.splits import split_names

Calibrator = Literal["linear", "isotonic", "histogram", "platt", "temperature", "none"]
Conventions = Literal["official", "paper"]
Uncertainty = Literal[
    "score",
    "entropy",
    "ds",
    "avg-entropy",
    "max-class-entropy",
    "determinant",
    "trace",
    "gaussian-entropy",
    "joint-entropy",
    "joint-entropy-balanced",
    "joint-entropy-normalised",
]

CALIBRATORS: tuple[str, ...] = get_args(Calibrator)
CONVENTIONS: tuple[str, ...] = get_args(Conventions)
UNCERTAINTIES: tuple[str, ...] = get_args(Uncertainty)
_USE_CASES = Path(__file__).parent / "data" / "usecases"
_FORMATS = Path(__file__).parent / "data" / "formats"


def _aggregate(text: str) -> str:
    if text not in ("min", "mean", "sum") and not re.fullmatch(r"top-[1-9]\d*", text):
        raise ValueError(f"'{text}' is not an aggregation: use min, mean, sum or top-N, for instance top-3")
    return text


def _image_threshold(text: str) -> str:
    if text != "pseudo-ood":
        share = text.removeprefix("tpr-")
        _number(share, f"'{text}' is not an image threshold: use pseudo-ood, tpr-0.95 or a number")
        if share != text and not 0 < float(share) < 1:
            raise ValueError(f"'{text}' asks for a share outside 0 to 1: use for instance tpr-0.95")
    return text


def _detection_threshold(text: str) -> str:
    if text != "lrp":
        _number(text, f"'{text}' is not a detection threshold: use lrp or a number")
    return text


def _number(text: str, message: str) -> None:
    try:
        finite = abs(float(text)) < float("inf")
    except ValueError:
        finite = False
    if not finite:
        raise ValueError(message)


class Model(BaseModel):
    """Base of everything that users write: unknown keys are errors, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScoreSettings(Model):
    """Everything that changes metrics without running a detector again."""

    calibrator: Calibrator = "linear"
    uncertainty: Uncertainty = "score"
    aggregate: Annotated[str, AfterValidator(_aggregate)] = "top-3"
    image_threshold: Annotated[str, AfterValidator(_image_threshold)] = "pseudo-ood"
    detection_threshold: Annotated[str, AfterValidator(_detection_threshold)] = "lrp"
    tau: float = Field(default=0.1, ge=0, lt=1)
    bins: int = Field(default=25, ge=1, le=10_000)
    conventions: Conventions = "official"
    daq_weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
    idq_weights: tuple[float, float] = (0.5, 0.5)

    @classmethod
    def from_options(cls, **values: Any) -> ScoreSettings:
        """Settings from keyword options; SaodError names the option that is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SaodError(first_complaint(error, "setting", cls)) from error


class DetectorSpec(Model):
    """Identifies a detector: its name, the classes that its labels index, and a digest of all that its output depends on."""

    name: str
    classes: tuple[str, ...]
    fingerprint: str


def batched_fingerprint(fingerprint: str, batch_size: int) -> str:
    """The fingerprint of detections made in batches, where the last bits depend on the other images of the batch.

    >>> batched_fingerprint("c0ffee", 1), batched_fingerprint("c0ffee", 8)
    ('c0ffee', 'c0ffee-b8')
    """
    return fingerprint if batch_size == 1 else f"{fingerprint}-b{batch_size}"


def base_fingerprint(fingerprint: str) -> str:
    """The fingerprint of the detector itself, without the batch size.

    >>> base_fingerprint("c0ffee-b8"), base_fingerprint("c0ffee")
    ('c0ffee', 'c0ffee')
    """
    return fingerprint.partition("-b")[0]


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_as_tuple)]
FORMATS = tuple(sorted(path.stem for path in _FORMATS.glob("*.py") if not path.stem.startswith("_")))  # one per module


def _at_least_one(names: tuple[str, ...]) -> tuple[str, ...]:
    if not names or not all(names):
        raise ValueError("name at least one file")
    return names


def _format(text: str) -> str:
    if text not in FORMATS:
        raise ValueError(f"'{text}' is not a format{did_you_mean(text, FORMATS)}: use {', '.join(FORMATS)}")
    return text


class About(Model):
    """A description of a source for people. No result depends on it."""

    name: str = ""
    page: str = ""
    licence: str = ""
    images: int | None = None
    objects: str = ""
    note: str = ""


@dataclass(frozen=True)
class Part:
    """One annotation file of a source, the prefix of its images' names, and how many images are used (0: all)."""

    annotations: str
    images: str
    limit: int = 0


class Source(Model):
    """A set of images: one or several annotation files, and for each the prefix of its images' names."""

    format: Annotated[str, AfterValidator(_format)] = "coco"
    annotations: Annotated[Names, AfterValidator(_at_least_one)]
    images: Annotated[Names, Field(min_length=1)] = ("",)
    limits: tuple[Annotated[int, Field(ge=0)], ...] = ()
    about: About = About()

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        count = len(self.annotations)
        if (count and len(self.images) not in (1, count)) or len(self.limits) > count:
            raise ValueError("give one of `images` (and at most one of `limits`) for each of `annotations`")
        return self

    @property
    def parts(self) -> list[Part]:
        """The annotation files one by one. A limit of 0 means no limit."""
        count = max(len(self.annotations), len(self.images))
        annotations = self.annotations or ("",) * count
        images = self.images * count if len(self.images) == 1 else self.images
        limits = self.limits + (0,) * (count - len(self.limits))
        return [Part(*values) for values in zip(annotations, images, limits, strict=True)]


class IdSource(Source):
    """The ID test images, and the severities at which they are corrupted."""

    severities: tuple[Annotated[int, Field(ge=1, le=5)], ...] = (1, 3, 5)


def _subset_name(text: str) -> str:
    if text == "all" or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", text):
        raise ValueError(f"'{text}' cannot name an OOD subset: use letters, digits and . _ + - (and not 'all')")
    return text


class OodSource(Source):
    """A subset of the OOD images: the image list of an annotation file, or every image in the folder `images`."""

    name: Annotated[str, AfterValidator(_subset_name)]
    annotations: Names = ()
    unannotated: bool = False  # objects365: use images without any annotation, too

    @model_validator(mode="after")
    def _check_named(self) -> Self:
        if not self.annotations and (self.images == ("",) or self.format != "coco"):
            raise ValueError("name its `annotations`, or the folder of its `images` and no format")
        return self


class Splits(Model):
    """The sources of a use case. `train` is used by training only."""

    train: Source | None = None
    val: Source
    id: IdSource
    ood: tuple[OodSource, ...] = ()


class UseCase(Model):
    """A use case file."""

    name: Annotated[str, Field(min_length=1)]
    version: int = 1
    root: str = "."
    made_by: Literal["shapes"] | None = None
    classes: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    splits: Splits
    _argument: str = PrivateAttr("")  # as given to `load`

    @classmethod
    def load(cls, which: str | Path, data: str | None = None) -> UseCase:
        """Load a built-in use case by its name, or a TOML file.

        `data` replaces the root of the file. That root is relative to the folder of the file, or to the current folder
        for a built-in use case.
        """
        path, base = _find_file(which)
        try:
            case = cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SaodError(f"{path} is not valid TOML ({error}): correct it and try again.") from error
        except ValidationError as error:
            raise SaodError(f"{path}: {first_complaint(error, 'key', cls)}") from error
        names = [subset.name for subset in case.splits.ood]
        if len(set(names)) < len(names):
            raise SaodError(f"{path}: two OOD subsets have the same name: give each its own name.")
        root = data if data is not None else case.root
        if "://" not in root:
            root = os.path.normpath((Path.cwd() if data is not None else base) / root)
        loaded = case.model_copy(update={"root": root})
        loaded._argument = str(which)
        return loaded

    def command(self, verb: str) -> str:
        """The command line of `saod-ray data VERB` for this use case."""
        return f"saod-ray data {verb} {quote(self._argument or self.name)} --data {quote(self.root)}"

    def sources(self) -> dict[str, Source]:
        """Every source by its name: train, val, id, ood/SUBSET."""
        ood = {f"ood/{subset.name}": subset for subset in self.splits.ood}
        train = {"train": self.splits.train} if self.splits.train else {}
        return {**train, "val": self.splits.val, "id": self.splits.id, **ood}

    def digest(self) -> str:
        """A digest of everything that affects results: not the root, train, or descriptions for people."""
        content = self.model_dump(exclude={"root", "made_by"})
        del content["splits"]["train"]
        for source in (content["splits"]["val"], content["splits"]["id"], *content["splits"]["ood"]):
            del source["about"]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def split_names(self) -> list[str]:
        """The splits that a detector has, in the order in which a benchmark reads them."""
        return split_names(self.splits.id.severities, has_ood=bool(self.splits.ood))


def built_in() -> list[str]:
    """The names of the built-in use cases."""
    return sorted(path.stem for path in _USE_CASES.glob("*.toml"))


def _find_file(which: str | Path) -> tuple[Path, Path]:
    """The file of a use case, and the folder that its root is relative to."""
    path = Path(which)
    if path.is_file():
        return path, path.resolve().parent
    if str(which) in built_in():
        return _USE_CASES / f"{which}.toml", Path.cwd()
    hint = did_you_mean(str(which), built_in())
    raise SaodError(
        f"There is no use case '{which}'{hint}: give {', '.join(built_in())} or the path of a use case TOML file."
    )


def first_complaint(error: ValidationError, noun: str, model: type[BaseModel]) -> str:
    """The first complaint of pydantic as one sentence; unknown keys come first. `noun` says what the keys are."""
    complaints = error.errors()
    first = next((complaint for complaint in complaints if complaint["type"] == "extra_forbidden"), complaints[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        return f"the {noun} '{where}' is unknown{did_you_mean(key, _keys(model))}: remove or rename it."
    if first["type"] == "missing":
        return f"the {noun} '{where}' is missing: add it."
    reason = _own_words(first, model)
    return f"{where.replace('_', '-')}: {reason}." if noun == "setting" else f"the {noun} '{where}': {reason}."


def _own_words(complaint: Any, model: type[BaseModel]) -> str:
    """What is wrong with a value, and which values are allowed."""
    kind, value = complaint["type"], complaint["input"]
    if kind in ("value_error", "assertion_error"):
        return str(complaint["msg"]).partition(", ")[2]
    if kind == "literal_error":
        choices = [choice.strip("'") for choice in re.split(", | or ", complaint["ctx"]["expected"])]
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        return f"{value!r} is not possible{hint}: use {', '.join(choices)}"
    if kind in ("too_short", "string_too_short"):
        return "it is empty: give at least one value"
    if kind == "too_long":
        return f"{_shorten(value)} has too many values: give {complaint['ctx']['max_length']}"
    if kind.startswith(("less_than", "greater_than", "finite")):
        return f"{_shorten(value)} is out of range: give a number{_allowed_range(complaint['loc'], model)}"
    noun = next((noun for prefix, noun in _KINDS.items() if kind.startswith(prefix)), "another value")
    bounds = _allowed_range(complaint["loc"], model) if "number" in noun else ""
    return f"give {noun}{bounds}, not {_shorten(value)}"


_KINDS = {  # the beginnings of pydantic's error types
    "int": "a whole number",
    "float": "a number",
    "string": "text in quotes",
    "bool": "true or false",
    "tuple": "a list",
    "model": "a table",
    "dict": "a table",
}


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]} …"


def _allowed_range(location: tuple[Any, ...], model: type[BaseModel]) -> str:
    """The bounds of a number, ` of at least 0 and below 1`; an empty text if it has none."""
    key = next((part for part in reversed(location) if isinstance(part, str)), "")
    fields = [part.model_fields[key] for part in _models(model) if key in part.model_fields]
    words = {"ge": "of at least", "gt": "above", "le": "at most", "lt": "below"}
    bounds = {
        word: getattr(constraint, name)
        for field in fields[:1]
        for constraint in (*field.metadata, *_nested_metadata(field.annotation))
        for name, word in words.items()
        if getattr(constraint, name, None) is not None
    }
    return " " + " and ".join(f"{word} {bound:,}" for word, bound in bounds.items()) if bounds else ""


def _nested_metadata(annotation: Any) -> list[Any]:
    """The constraints on the items of a collection."""
    constraints: list[Any] = []
    for item in get_args(annotation):
        for constraint in getattr(item, "__metadata__", ()):
            constraints += getattr(constraint, "metadata", [constraint])
    return constraints


def _models(model: type[BaseModel]) -> tuple[type[BaseModel], ...]:
    """The model and its nested models."""
    return (UseCase, Splits, IdSource, OodSource, About) if model is UseCase else (model,)


def _keys(model: type[BaseModel]) -> list[str]:
    """Every key of the model and of its nested models, for hints."""
    return [key for part in _models(model) for key in part.model_fields]
