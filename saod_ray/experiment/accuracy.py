"""Tab. A.8: AP of the raw detectors on val and ID, and on their corrupted versions."""

from __future__ import annotations

from collections.abc import Iterator

from saod_ray.errors import join_truncated
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Column, Experiment, Remark, Row, Value
from saod_ray.splits import SplitName, val_shift


def splits(context: ExperimentContext) -> list[str]:
    """The paper's columns: val and its corrupted versions, ID and its corrupted versions."""
    shifted = [split for split in context.store.splits if SplitName(split).is_shifted]
    return ["val", *val_shift(context.store.description.severities), "id", *shifted]


def columns(context: ExperimentContext) -> tuple[Column, ...]:
    """One column per split."""
    return tuple(Column(split, "%", higher_is_better=True) for split in splits(context))


def rows(context: ExperimentContext) -> Iterator[Row | Remark]:
    """One row per detector; the value of a split without detections is undefined."""
    incomplete, shifted_val = [], val_shift(context.store.description.severities)
    for detector in context.detectors:
        values: list[Value] = [
            context.accuracy(detector, split).ap if context.has_split(detector, split) else None
            for split in splits(context)
        ]
        yield Row((detector,), tuple(values))
        if not all(context.has_split(detector, split) for split in shifted_val):
            incomplete.append(detector)
    if incomplete:
        reason = "corrupted versions of val are missing, incomplete or of other weights"
        yield Remark(f"{join_truncated(incomplete, 9)}: {reason}; `saod-ray run --with-val-shift` detects on them.")


EXPERIMENT = Experiment(
    name="accuracy",
    paper="Tab. A.8",
    shows="COCO AP on val and on ID, as photographed and at each severity of corruption.",
    needs="detections on val and id; for val's corrupted versions, `run --with-val-shift`.",
    columns=columns,
    rows=rows,
)
