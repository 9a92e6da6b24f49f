"""Whole workflows: run detectors into a store, score a store, write a report.

The Python API and the command line both call this package, which prints nothing.
"""

from saod_ray.workflow.results import (
    ScoredStore,
    choose_resamples,
    report_modules,
    score_benchmark,
    score_to_files,
    write_report,
)
from saod_ray.workflow.runs import (
    BenchmarkRun,
    RunEvents,
    RunOptions,
    RunOutcome,
    draw_missing_scenes,
    dry_run,
)

__all__ = [
    "BenchmarkRun",
    "RunEvents",
    "RunOptions",
    "RunOutcome",
    "ScoredStore",
    "choose_resamples",
    "draw_missing_scenes",
    "dry_run",
    "report_modules",
    "score_benchmark",
    "score_to_files",
    "write_report",
]
