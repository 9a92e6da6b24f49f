"""The types of results.json. Keys are added, never renamed. An undefined value is None, an absent key is UNSET.

`docs/results.schema.json` is the JSON Schema of `BenchmarkResult`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

if TYPE_CHECKING:
    import polars as pl

Number = float | None
FORMAT = 1  # of results.json


class SplitQuality(Struct, frozen=True, kw_only=True):
    """IDQ and its components, and the metrics of Kuzucu et al. (suffix `_0`)."""

    idq: Number = None
    laece: Number = None
    lrp: Number = None
    lrp_loc: Number = None
    lrp_fp: Number = None
    lrp_fn: Number = None
    laece_0: Number = None
    laace_0: Number = None
    lrp_0: Number = None


class ShiftQuality(SplitQuality, frozen=True, kw_only=True):
    """All severities as one evaluation, and the share of severity-5 images that are accepted."""

    accept_rate_c5: Number = None


class OodRates(Struct, frozen=True, kw_only=True):
    """How well image-level uncertainty separates ID from OOD images."""

    ba: Number = None
    tpr: Number = None
    tnr: Number = None
    auroc: Number = None
    fpr95: Number = None


class OodResult(OodRates, frozen=True, kw_only=True):
    """Rates over all OOD images, and by subset."""

    subsets: dict[str, OodRates] = {}


class ReliabilityBins(Struct, frozen=True, kw_only=True):
    """The non-empty bins of a reliability diagram: their numbers, detections, mean scores and mean IoUs."""

    bin: list[int] = []
    detections: list[int] = []
    score: list[float] = []
    iou: list[float] = []


class ClassResult(Struct, frozen=True, kw_only=True):
    """One class on the ID images."""

    objects: int
    detections: int
    laece: Number = None
    lrp: Number = None
    lrp_loc: Number = None
    lrp_fp: Number = None
    lrp_fn: Number = None
    ap: Number = None


class AccuracyResult(Struct, frozen=True, kw_only=True):
    """COCO's AP and AR of all detections of a split, and oLRP with its components."""

    ap: Number = None
    ap50: Number = None
    ap75: Number = None
    ap_small: Number = None
    ap_medium: Number = None
    ap_large: Number = None
    ar: Number = None
    ar_1: Number = None
    ar_10: Number = None
    ar_small: Number = None
    ar_medium: Number = None
    ar_large: Number = None
    olrp: Number = None
    olrp_loc: Number = None
    olrp_fp: Number = None
    olrp_fn: Number = None


class SplitCoverage(Struct, frozen=True, kw_only=True):
    """How many images a split has, and how many of them are empty, failed or missing."""

    images: int
    empty: int
    failed: int
    missing: int | UnsetType = UNSET

    @property
    def missing_count(self) -> int:
        """The number of missing images."""
        return 0 if isinstance(self.missing, UnsetType) else self.missing


class QualityIntervals(Struct, frozen=True, kw_only=True):
    """Lower and upper ends of the intervals of IDQ, LaECE and LRP."""

    idq: list[float] | None = None
    laece: list[float] | None = None
    lrp: list[float] | None = None


class OodIntervals(Struct, frozen=True, kw_only=True):
    """Lower and upper end of the interval of balanced accuracy."""

    ba: list[float] | None = None


class Intervals(Struct, frozen=True, kw_only=True):
    """Bootstrap intervals; `metrics` has those of custom metrics per image, by name and part (id, shift)."""

    daq: list[float] | None
    ood: OodIntervals
    id: QualityIntervals
    shift: QualityIntervals
    rank: list[int] | None = None
    metrics: dict[str, dict[str, list[float] | None]] | UnsetType = UNSET


class MetricResult(Struct, frozen=True, kw_only=True):
    """A custom metric: its declaration, its values on ID and under shift, and its values per class if it has them."""

    better: str
    unit: str
    id: Number = None
    shift: Number = None
    per_class: dict[str, Number] | UnsetType = UNSET


class DetectorResult(Struct, frozen=True, kw_only=True):
    """Every metric of one detector."""

    daq: Number
    id: SplitQuality
    shift: ShiftQuality
    ood: OodResult
    accuracy: dict[str, AccuracyResult]
    reliability: dict[str, dict[str, ReliabilityBins]]
    image_threshold: float
    detection_thresholds: dict[str, Number]
    coverage: dict[str, SplitCoverage]
    per_class: dict[str, ClassResult] | UnsetType = UNSET
    intervals: Intervals | UnsetType = UNSET
    metrics: dict[str, MetricResult] | UnsetType = UNSET

    @property
    def classes(self) -> dict[str, ClassResult]:
        """The results by class; empty without detections on ID images."""
        return {} if isinstance(self.per_class, UnsetType) else self.per_class

    @property
    def custom(self) -> dict[str, MetricResult]:
        """The custom metrics by name."""
        return {} if isinstance(self.metrics, UnsetType) else self.metrics

    def to_json(self) -> dict[str, Any]:
        """The JSON value in results.json."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: Any) -> DetectorResult:
        """Read a value of `to_json`."""
        return msgspec.convert(value, cls)


class SettingsRecord(Struct, frozen=True, kw_only=True):
    """The settings of a scoring, as `saod_ray.config.ScoreSettings` has them."""

    calibrator: str
    uncertainty: str
    aggregate: str
    image_threshold: str
    detection_threshold: str
    tau: float
    bins: int
    conventions: str
    daq_weights: list[float]
    idq_weights: list[float]


class UseCaseRecord(Struct, frozen=True, kw_only=True):
    """Version and digests of the use case."""

    version: int
    annotations: dict[str, str]
    manifests: dict[str, str]


class Provenance(Struct, frozen=True, kw_only=True):
    """Versions of the software, and digests of what was scored: detector, split, unit."""

    saod_ray: str
    python: str
    packages: dict[str, str]
    use_case: UseCaseRecord
    detections: dict[str, dict[str, dict[str, str]]]


class BootstrapRecord(Struct, frozen=True, kw_only=True):
    """How intervals were computed."""

    replicates: int
    seed: int
    level: float


class BenchmarkResult(Struct, frozen=True, kw_only=True):
    """The content of results.json: `results["atss"].daq`."""

    use_case: str
    conventions: str
    settings: SettingsRecord
    provenance: Provenance
    detectors: dict[str, DetectorResult]
    format: int = FORMAT
    partial: bool | UnsetType = UNSET
    bootstrap: BootstrapRecord | UnsetType = UNSET
    digest: str | UnsetType = UNSET  # of all other keys

    def __getitem__(self, detector: str) -> DetectorResult:
        if detector not in self.detectors:
            from saod_ray.errors import SaodError, did_you_mean, join_truncated

            hint = did_you_mean(detector, self.detectors)
            raise SaodError(f"There are no results of '{detector}'{hint}: use {join_truncated(self.detectors)}.")
        return self.detectors[detector]

    def __iter__(self) -> Iterator[str]:
        return iter(self.detectors)

    def __len__(self) -> int:
        return len(self.detectors)

    @property
    def is_partial(self) -> bool:
        """Whether images were missing."""
        return self.partial is True

    @property
    def is_sealed(self) -> bool:
        """Whether it has a digest; files of early versions have none."""
        return not isinstance(self.digest, UnsetType)

    def sealed(self) -> BenchmarkResult:
        """A copy with the digest of its content."""
        from saod_ray.store import seals

        value = msgspec.to_builtins(msgspec.structs.replace(self, digest=UNSET))
        return msgspec.structs.replace(self, digest=seals.sealed(value)[seals.KEY])

    @property
    def resampling(self) -> BootstrapRecord | None:
        """How intervals were computed; None if there are none."""
        return None if isinstance(self.bootstrap, UnsetType) else self.bootstrap

    def ranked(self) -> dict[str, DetectorResult]:
        """The detectors in descending order of DAQ, undefined ones last."""
        return ranked(self.detectors)

    def leaderboard(self) -> pl.DataFrame:
        """One row per detector, best DAQ first, one column per metric of the main table; fractions in [0, 1]."""
        from saod_ray.score.frames import leaderboard

        return leaderboard(self)

    def per_class(self, detector: str) -> pl.DataFrame:
        """One row per class of a detector on the ID images."""
        from saod_ray.score.frames import per_class

        return per_class(self[detector])

    def reliability(self, detector: str, part: str = "id") -> pl.DataFrame:
        """One row per class and bin of a detector's reliability diagram; `part` is id or shift."""
        from saod_ray.score.frames import reliability

        return reliability(self[detector], part)

    def to_json(self) -> dict[str, Any]:
        """The JSON value of results.json."""
        value: dict[str, Any] = msgspec.to_builtins(self)
        return value

    @classmethod
    def from_json(cls, value: Any) -> BenchmarkResult:
        """Read a value of `to_json`; raises `msgspec.ValidationError` for any other value."""
        return msgspec.convert(value, cls)

    def __repr__(self) -> str:
        daqs = ", ".join(
            f"{name} {'–' if result.daq is None else f'{100 * result.daq:.2f}'}"
            for name, result in self.ranked().items()
        )
        state = ", PARTIAL" if self.is_partial else ""
        return f"<results of {self.use_case}, {self.conventions} conventions{state}; DAQ in %: {daqs}>"

    def _repr_html_(self) -> str:
        return self.leaderboard()._repr_html_()


def ranked(detectors: Mapping[str, DetectorResult]) -> dict[str, DetectorResult]:
    """The detectors in descending order of DAQ, undefined ones last, equal ones by name."""

    def place(name: str) -> tuple[bool, float, str]:
        daq = detectors[name].daq
        return daq is None, -(daq or 0), name

    return {name: detectors[name] for name in sorted(detectors, key=place)}


def schema_text() -> str:
    """The JSON Schema of results.json, as `docs/results.schema.json` has it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(BenchmarkResult)}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"
