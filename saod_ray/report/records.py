"""The types of a report's data beyond results.json. The store's cache keeps them as JSON."""

from __future__ import annotations

from msgspec import UNSET, Struct, UnsetType

from saod_ray.score.results import Number, ReliabilityBins


class HistogramBin(Struct, frozen=True, kw_only=True):
    """Images of a split in a bin of uncertainty; `low` and `high` are None for images without a detection."""

    split: str
    bin: int
    low: Number
    high: Number
    images: int
    share: float


class AccuracyBin(Struct, frozen=True, kw_only=True):
    """AP of the images in a bin of uncertainty."""

    split: str
    bin: int
    low: float
    high: float
    ap: float


class RocPoint(Struct, frozen=True):
    """A point of the ROC curve of ID against an OOD subset."""

    subset: str
    fpr: float
    tpr: float


class DecisionTable(Struct, frozen=True, kw_only=True):
    """Rates at each image threshold; lists have one value per threshold, and `fitted` is the index of the fitted one.

    All fields are unset if no image has a detection.
    """

    threshold: list[float] | UnsetType = UNSET
    fitted: int | UnsetType = UNSET
    tpr: list[float] | UnsetType = UNSET
    tnr: list[float] | UnsetType = UNSET
    ba: list[float] | UnsetType = UNSET
    accepted: dict[str, list[float]] | UnsetType = UNSET


class Failure(Struct, frozen=True):
    """An image that failed, with its error message."""

    detector: str
    split: str
    image: int
    error: str


class ShiftResult(Struct, frozen=True, kw_only=True):
    """Metrics over the images of one severity, or over those with one corruption at this severity."""

    severity: int
    images: int
    split: str | UnsetType = UNSET
    corruption: str | UnsetType = UNSET
    accepted: Number = None
    ap: Number = None
    laece: Number = None
    lrp: Number = None
    lrp_loc: Number = None
    lrp_fp: Number = None
    lrp_fn: Number = None
    idq: Number = None


class Curve(Struct, frozen=True):
    """Points of a calibrator: raw scores and calibrated scores."""

    score: list[float]
    calibrated: list[float]


class CalibrationTables(Struct, frozen=True, kw_only=True):
    """Reliability by stage ("before", "after") and class ("" is all classes); curves and oracle thresholds by class."""

    reliability: dict[str, dict[str, ReliabilityBins]] = {}
    laece_before: Number = None
    curves: dict[str, Curve] = {}
    oracle: dict[str, Number] = {}


class DetectorTables(Struct, frozen=True, kw_only=True):
    """The data of one detector beside its result."""

    histogram: list[HistogramBin]
    roc: list[RocPoint]
    decisions: DecisionTable
    failures: list[Failure]
    severities: list[ShiftResult]
    corruptions: list[ShiftResult]
    bin_ap: list[AccuracyBin]
    calibration: CalibrationTables
