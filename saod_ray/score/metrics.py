"""Declarations of metrics, built-in and custom: a name, a direction and a unit.

A custom metric is a function of two frames, declared with `metric`:

    @metric("recall", better="higher", unit="%")
    def recall(matches: pl.DataFrame, objects: pl.DataFrame) -> float | None:
        return matches.filter(outcome="tp").height / objects.height

`matches` has the columns of `bench.matches(...)` for the detections that the self-aware detector keeps. `objects` has those
of `bench.objects(...)` for the non-crowd objects that count. The function returns a number (None if undefined), or a frame
with the columns `class` and `value`, whose mean is the metric. With `per_image=True` it returns a frame with `image_id`,
`value` and optionally `weight`. The metric is then the sum of values over the sum of weights (1 per image by default), and
`--bootstrap` gives it an interval.
"""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from saod_ray.errors import SaodError, did_you_mean, join_truncated
from saod_ray.score.results import DetectorResult, Intervals, MetricResult, Number

if TYPE_CHECKING:
    import polars as pl

Better = Literal["higher", "lower"]
Unit = Literal["%", ""]
Ends = list[float] | None
Function = Callable[["pl.DataFrame", "pl.DataFrame"], "float | pl.DataFrame | None"]
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")


@dataclass(frozen=True)
class Metric:
    """A number of a `DetectorResult`. The unit `%` is a fraction that is shown in percent, "" is a plain number."""

    name: str
    title: str
    better: Better
    read: Callable[[DetectorResult], Number]
    read_interval: Callable[[Intervals], Ends] | None = None
    unit: Unit = "%"

    @property
    def is_higher_better(self) -> bool:
        """Whether higher values are better."""
        return self.better == "higher"

    @property
    def arrow(self) -> str:
        """The arrow that tables show for the direction."""
        return "↑" if self.is_higher_better else "↓"

    def value(self, result: DetectorResult) -> Number:
        """The value of a detector; None if it is undefined."""
        return self.read(result)

    def interval(self, result: DetectorResult) -> Ends:
        """Lower and upper end of the bootstrap interval; None if there is none."""
        if self.read_interval is None or not isinstance(result.intervals, Intervals):
            return None
        return self.read_interval(result.intervals)

    def best(self, results: Sequence[DetectorResult]) -> Number:
        """The best value of several results; None if there are fewer than two."""
        values = [value for result in results if (value := self.value(result)) is not None]
        if len(results) < 2 or not values:
            return None
        return max(values) if self.is_higher_better else min(values)


# the paper's main table; names are the paths in results.json
MAIN = (
    Metric("daq", "DAQ", "higher", lambda r: r.daq, lambda i: i.daq),
    Metric("ood.ba", "BA", "higher", lambda r: r.ood.ba, lambda i: i.ood.ba),
    Metric("id.idq", "IDQ", "higher", lambda r: r.id.idq, lambda i: i.id.idq),
    Metric("id.laece", "LaECE", "lower", lambda r: r.id.laece, lambda i: i.id.laece),
    Metric("id.lrp", "LRP", "lower", lambda r: r.id.lrp, lambda i: i.id.lrp),
    Metric("shift.idq", "IDQ_T", "higher", lambda r: r.shift.idq, lambda i: i.shift.idq),
    Metric("shift.laece", "LaECE_T", "lower", lambda r: r.shift.laece, lambda i: i.shift.laece),
    Metric("shift.lrp", "LRP_T", "lower", lambda r: r.shift.lrp, lambda i: i.shift.lrp),
    Metric("accuracy.val.ap", "AP", "higher", lambda r: _accuracy(r, "val", "ap")),
)
OOD = (
    Metric("ood.tpr", "TPR", "higher", lambda r: r.ood.tpr),
    Metric("ood.tnr", "TNR", "higher", lambda r: r.ood.tnr),
)
COMPONENTS = (
    Metric("id.lrp_loc", "Loc", "lower", lambda r: r.id.lrp_loc),
    Metric("id.lrp_fp", "FP", "lower", lambda r: r.id.lrp_fp),
    Metric("id.lrp_fn", "FN", "lower", lambda r: r.id.lrp_fn),
    Metric("shift.lrp_loc", "Loc_T", "lower", lambda r: r.shift.lrp_loc),
    Metric("shift.lrp_fp", "FP_T", "lower", lambda r: r.shift.lrp_fp),
    Metric("shift.lrp_fn", "FN_T", "lower", lambda r: r.shift.lrp_fn),
)
AFTER_PAPER = (
    Metric("id.laece_0", "LaECE₀", "lower", lambda r: r.id.laece_0),
    Metric("id.laace_0", "LaACE₀", "lower", lambda r: r.id.laace_0),
    Metric("id.lrp_0", "LRP₀", "lower", lambda r: r.id.lrp_0),
    Metric("shift.laece_0", "LaECE₀_T", "lower", lambda r: r.shift.laece_0),
    Metric("shift.laace_0", "LaACE₀_T", "lower", lambda r: r.shift.laace_0),
    Metric("shift.lrp_0", "LRP₀_T", "lower", lambda r: r.shift.lrp_0),
)
ACCURACY = (
    Metric("accuracy.val.ap", "AP val", "higher", lambda r: _accuracy(r, "val", "ap")),
    Metric("accuracy.val.ap50", "AP50 val", "higher", lambda r: _accuracy(r, "val", "ap50")),
    Metric("accuracy.val.ap75", "AP75 val", "higher", lambda r: _accuracy(r, "val", "ap75")),
    Metric("accuracy.val.olrp", "oLRP val", "lower", lambda r: _accuracy(r, "val", "olrp")),
    Metric("accuracy.id.ap", "AP id", "higher", lambda r: _accuracy(r, "id", "ap")),
    Metric("accuracy.id.ap50", "AP50 id", "higher", lambda r: _accuracy(r, "id", "ap50")),
    Metric("accuracy.id.ap75", "AP75 id", "higher", lambda r: _accuracy(r, "id", "ap75")),
    Metric("accuracy.id.olrp", "oLRP id", "lower", lambda r: _accuracy(r, "id", "olrp")),
)
BUILT_IN = {metric.name: metric for metric in (*MAIN, *OOD, *COMPONENTS, *AFTER_PAPER, *ACCURACY[1:])}


def _accuracy(result: DetectorResult, split: str, name: str) -> Number:
    value: Number = getattr(result.accuracy[split], name) if split in result.accuracy else None
    return value


def built_in(*names: str) -> tuple[Metric, ...]:
    """Built-in metrics by name.

    >>> [metric.title for metric in built_in("daq", "shift.lrp")]
    ['DAQ', 'LRP_T']
    """
    return tuple(BUILT_IN[name] for name in names)


@dataclass(frozen=True)
class CustomMetric:
    """A user's metric: a function from matches and objects to a number, a value per class, or a value per image."""

    name: str
    better: Better
    unit: Unit
    function: Function
    per_image: bool = False

    def __call__(self, matches: pl.DataFrame, objects: pl.DataFrame) -> float | pl.DataFrame | None:
        """Call the function itself."""
        return self.function(matches, objects)

    @property
    def identity(self) -> str:
        """Module and qualified name of the function."""
        return f"{self.function.__module__}:{self.function.__qualname__}"


def metric(
    name: str, *, better: Better, unit: Unit = "", per_image: bool = False
) -> Callable[[Function], CustomMetric]:
    """Declare a function of (matches, objects) as a metric.

    Args:
        name: Its key in results.json and its column in tables.
        better: Whether "higher" or "lower" values are better.
        unit: "%" for fractions that are shown in percent, "" for plain numbers.
        per_image: Whether it returns `image_id`, `value` and optionally `weight`, one row per image.

    Example:
        >>> @metric("hits", better="higher")
        ... def hits(matches, objects):
        ...     return float(matches.filter(outcome="tp").height)
        >>> hits.name, hits.better
        ('hits', 'higher')
    """
    if not _NAME.fullmatch(name):
        raise SaodError(f"'{name}' cannot name a metric: use letters, digits and . _ -, a letter first.")
    if name in BUILT_IN:
        raise SaodError(f"'{name}' is a built-in metric: choose another name.")
    for label, value, options in (("better", better, ("higher", "lower")), ("unit", unit, ("%", ""))):
        if value not in options:
            raise SaodError(f"The metric '{name}' has {label} '{value}': use {' or '.join(map(repr, options))}.")
    return lambda function: CustomMetric(name, better, unit, function, per_image)


def find_metric(target: str) -> CustomMetric:
    """Import the metric `package.module:function`; the current folder is searched, too."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise SaodError(f"'{target}' does not name a metric: write package.module:function.")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SaodError(
            f"The metric '{target}' needs the module '{error.name}', which is not installed: install it, or run the command "
            "in the folder of its file."
        ) from error
    declared = [name for name, value in vars(module).items() if isinstance(value, CustomMetric)]
    value = vars(module).get(attribute)
    if isinstance(value, CustomMetric):
        return value
    if value is not None:
        raise SaodError(f"{target} is not a metric: declare it with @saod_ray.metric(NAME, better=..., unit=...).")
    hint = did_you_mean(attribute, declared) or (f": it has {join_truncated(declared)}" if declared else "")
    raise SaodError(f"{module_name} has no metric '{attribute}'{hint}.")


def custom_columns(custom: dict[str, MetricResult]) -> tuple[Metric, ...]:
    """The table columns of custom metrics: on ID, and under shift (`_T`)."""
    return tuple(column for name, result in custom.items() for column in _columns(name, result))


def _columns(name: str, result: MetricResult) -> tuple[Metric, Metric]:
    better: Better = "higher" if result.better == "higher" else "lower"
    unit: Unit = "%" if result.unit == "%" else ""

    def value(detector: DetectorResult, part: str) -> Number:
        metric = detector.custom.get(name)
        return None if metric is None else (metric.id if part == "id" else metric.shift)

    def ends(intervals: Intervals, part: str) -> Ends:
        return intervals.metrics.get(name, {}).get(part) if isinstance(intervals.metrics, dict) else None

    return (
        Metric(f"metrics.{name}.id", name, better, lambda r: value(r, "id"), lambda i: ends(i, "id"), unit),
        Metric(
            f"metrics.{name}.shift", f"{name}_T", better, lambda r: value(r, "shift"), lambda i: ends(i, "shift"), unit
        ),
    )


def finite(value: object, name: str) -> Number:
    """A number for results.json: None for NaN; SaodError for infinities and other types."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SaodError(f"The metric '{name}' returned {type(value).__name__}: return a number, None or a frame.")
    if math.isinf(value):
        raise SaodError(f"The metric '{name}' is infinite: return None where it is undefined.")
    return None if math.isnan(value) else float(value)
