"""Results of detectors that exist in no store, for tests of tables."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from saod_ray.config import ScoreSettings
from saod_ray.score.results import (
    AccuracyResult,
    BenchmarkResult,
    BootstrapRecord,
    DetectorResult,
    Intervals,
    MetricResult,
    OodIntervals,
    OodResult,
    Provenance,
    QualityIntervals,
    SettingsRecord,
    ShiftQuality,
    SplitCoverage,
    SplitQuality,
    UseCaseRecord,
)


def example_detector(daq: float | None, *, is_resampled: bool = True, custom: tuple[str, ...] = ()) -> DetectorResult:
    """A detector whose LaECE_T has three digits before the point, and whose intervals are wide."""
    quality = QualityIntervals(idq=[0.3, 0.5], laece=[0.1, 0.2], lrp=[0.7, 0.9])
    intervals = Intervals(
        daq=None if daq is None else [daq - 0.03, daq + 0.04],
        ood=OodIntervals(ba=[0.8, 0.9]),
        id=quality,
        shift=QualityIntervals(idq=[0.2, 0.4], laece=[0.999, 1.0], lrp=[0.8, 0.95]),
        rank=None if daq is None else [1, 2],
    )
    return DetectorResult(
        daq=daq,
        id=SplitQuality(idq=0.4, laece=0.1234, lrp=0.8),
        shift=ShiftQuality(idq=0.3, laece=1.0, lrp=0.9),
        ood=OodResult(ba=0.85),
        accuracy={"val": AccuracyResult(ap=0.31)},
        reliability={},
        image_threshold=0.5,
        detection_thresholds={"circle": 0.4, "square": None},
        coverage={"id": SplitCoverage(images=10, empty=0, failed=0)},
        intervals=intervals if is_resampled else UNSET,
        metrics={name: MetricResult(better="higher", unit="", id=123.4, shift=0.0012) for name in custom} or UNSET,
    )


def example_results(detectors: dict[str, DetectorResult], **settings: Any) -> BenchmarkResult:
    """Results of the use case shapes; resampled if the first detector is."""
    record = SettingsRecord(**ScoreSettings.from_options(**settings).model_dump(mode="json"))
    is_resampled = isinstance(next(iter(detectors.values())).intervals, Intervals)
    return BenchmarkResult(
        use_case="shapes",
        conventions=record.conventions,
        settings=record,
        provenance=Provenance(
            saod_ray="0.1.0",
            python="3.11.2",
            packages={"numpy": "2.0.0", "polars": "1.30.0"},
            use_case=UseCaseRecord(version=1, annotations={"val.json": "aa"}, manifests={"val": "bb"}),
            detections={name: {} for name in detectors},
        ),
        detectors=detectors,
        bootstrap=BootstrapRecord(replicates=200, seed=0, level=0.95) if is_resampled else UNSET,
    ).sealed()
