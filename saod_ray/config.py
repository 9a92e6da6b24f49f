"""What a user sets: the use case file and the settings of a scoring."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from saod_ray.errors import SaodError, did_you_mean

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
    """Unknown keys are mistakes, and nothing changes after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScoreSettings(Model):
    """Everything that changes a figure without another inference."""

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
    def of(cls, **values: Any) -> ScoreSettings:
        """The settings, or one sentence that says which value is wrong."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise SaodError(_first(error, "setting", cls)) from None


class Source(Model):
    """Annotated images: COCO JSON, and the prefix of each file_name."""

    annotations: str
    images: str = ""


class IdSource(Source):
    """The ID test images and the severities at which they are corrupted."""

    severities: tuple[Annotated[int, Field(ge=1, le=5)], ...] = (1, 3, 5)


def _subset_name(text: str) -> str:
    if text == "all" or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", text):
        raise ValueError(f"'{text}' cannot name an OOD subset: use letters, digits and . _ + - (and not 'all')")
    return text


class OodSource(Model):
    """A subset of the OOD images: a COCO JSON's image list, or every image below `images`."""

    name: Annotated[str, AfterValidator(_subset_name)]
    annotations: str | None = None
    images: str = ""


class Splits(Model):
    """Where the three kinds of images come from."""

    val: Source
    id: IdSource
    ood: tuple[OodSource, ...] = ()


class UseCase(Model):
    """A use case file."""

    name: str
    version: int = 1
    root: str = "."
    classes: tuple[str, ...] | None = None
    splits: Splits

    @classmethod
    def load(cls, path: Path, data: str | None = None) -> UseCase:
        """Read a TOML file; `data` overrides its root, which is otherwise taken relative to the file."""
        if not path.is_file():
            raise SaodError(f"There is no use case '{path}': give the path of a use case TOML file.")
        try:
            case = cls(**tomllib.loads(path.read_text(encoding="utf-8")))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SaodError(f"{path} is not TOML ({error}): mend it and try again.") from None
        except ValidationError as error:
            raise SaodError(f"{path}: {_first(error, 'key', cls)}") from None
        names = [subset.name for subset in case.splits.ood]
        if len(set(names)) < len(names):
            raise SaodError(f"{path}: two OOD subsets have one name: give each a name of its own.")
        root = data if data is not None else case.root
        if "://" not in root:
            root = str((Path.cwd() if data is not None else path.resolve().parent) / root)
        return case.model_copy(update={"root": root})

    def digest(self) -> str:
        """A digest of all that the file says but where the data lies."""
        return hashlib.sha256(self.model_dump_json(exclude={"root"}).encode()).hexdigest()

    def splits_of(self) -> list[str]:
        """The splits a detector has, in the order the benchmark reads them."""
        return split_names(self.splits.id.severities, bool(self.splits.ood))


def split_names(severities: tuple[int, ...], ood: bool) -> list[str]:
    """The splits of a use case.

    >>> split_names((1, 5), True)
    ['val', 'pseudo-ood', 'id', 'id-c1', 'id-c5', 'ood']
    """
    return ["val", "pseudo-ood", "id", *(f"id-c{s}" for s in sorted(severities)), *(["ood"] if ood else [])]


def source_of(split: str) -> str:
    """The images a split is made of.

    >>> source_of("pseudo-ood"), source_of("id-c3"), source_of("ood")
    ('val', 'id', 'ood')
    """
    if split in ("val", "pseudo-ood"):
        return "val"
    return "id" if split == "id" or split.startswith("id-c") else "ood"


def _first(error: ValidationError, noun: str, model: type[BaseModel]) -> str:
    """The first complaint as a sentence."""
    complaints = error.errors()
    first = next((each for each in complaints if each["type"] == "extra_forbidden"), complaints[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        key = str(first["loc"][-1])
        return f"the {noun} '{where}' is unknown{did_you_mean(key, _keys(model))}: remove or rename it."
    if first["type"] == "missing":
        return f"the {noun} '{where}' is missing: add it."
    message = str(first["msg"]).removeprefix("Value error, ")
    return f"{where.replace('_', '-')}: {message}." if noun == "setting" else f"the {noun} '{where}': {message}."


def _keys(model: type[BaseModel]) -> list[str]:
    """Every key of the model and of the models below it, for hints."""
    nested = (UseCase, Splits, IdSource, OodSource) if model is UseCase else (model,)
    return [key for each in nested for key in each.model_fields]
