"""`saod-ray run`: from a use case and detectors to a store, results and a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import (
    ADDRESS,
    BATCH_SIZE,
    FOLLOW_LINKS,
    MAX_PIXELS,
    ROOT,
    WEIGHTS,
    FiniteFloat,
    GpuShare,
    parse_actors,
)
from saod_ray.cli.score import print_results
from saod_ray.errors import SaodError
from saod_ray.workflow import RunEvents

if TYPE_CHECKING:
    from rich.table import Table

    from saod_ray.engine.estimate import Estimate
    from saod_ray.workflow import RunOptions, ScoredStore


@click.command()
@click.option(
    "--use-case",
    default="shapes",
    show_default=True,
    metavar="NAME|FILE",
    help="Built-in use case, or a use case TOML file.",
)
@click.option("--detectors", default="all", show_default=True, metavar="all|A,B|FILE.toml",
              help="Built-in detectors, or a detector TOML file.")  # fmt: skip
@click.option("--store", metavar="DIR|URI", help="Store to write to.  [default: runs/USE_CASE]")
@ROOT
@WEIGHTS
@click.option(
    "--limit", type=click.IntRange(1), metavar="N", help="Use only the first N images of each split, for a trial."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed for image corruptions.")
@ADDRESS
@click.option(
    "--actors",
    callback=parse_actors,
    metavar="MIN:MAX",
    help="Actors per pipeline; by default one per GPU, or per core.",
)
@click.option(
    "--group",
    type=click.IntRange(1),
    metavar="N",
    help="Detectors per pipeline; each group decodes the images again. All by default.",
)
@click.option(
    "--gpus-per-actor",
    type=GpuShare(0),
    metavar="N",
    help="GPUs per actor; 0.5 shares one. By default 1 if there are any.",
)
@BATCH_SIZE
@MAX_PIXELS
@FOLLOW_LINKS
@click.option("--unit-images", type=click.IntRange(1), default=128, show_default=True, help="Images per unit of work.")
@click.option("--max-errors", type=FiniteFloat(0, 1), default=0.01, show_default=True, metavar="SHARE",
              help="Share of images that may fail before the run ends.")  # fmt: skip
@click.option("--bootstrap", type=click.IntRange(0), default=200, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals.")  # fmt: skip
@click.option("--with-val-shift", is_flag=True,
              help="Also detect on corrupted copies of val; only `experiment accuracy` needs them.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Repeat units with failed images.")
@click.option("--replace", is_flag=True, help="Replace detections of other weights, options, packages or another seed.")
@click.option("--dry-run", is_flag=True, help="Show the plan and its estimated time and size, and stop.")
@click.option("--probe", is_flag=True, help="With --dry-run: measure the detectors' speed here for 20 seconds.")
@click.option("--price", type=FiniteFloat(0), help="With --dry-run: price per actor-hour; adds a cost column.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def run(dry_run: bool, probe: bool, price: float | None, as_json: bool, **options: Any) -> int:
    """Run detectors over a use case into a store, and score it.

    Run the same command again to resume where it stopped.
    """
    from saod_ray.workflow import BenchmarkRun, RunOptions

    run_options = RunOptions(**options)
    events = TerminalEvents(as_json)
    if dry_run:
        _print_estimates(_dry_run(run_options, events, probe, price), as_json)
        return 0
    if probe or price is not None:
        raise SaodError("--probe and --price are for estimates: add --dry-run, or leave them out.")
    outcome = BenchmarkRun(run_options, events).carry_out()
    if outcome.is_trial:
        click.echo(
            "This was a trial: the store's results and report still cover its complete detectors only.", err=True
        )
    if outcome.report:
        click.echo(f"Report: {outcome.report}", err=True)
    return 2 if outcome.has_failed_images else 0


def _dry_run(options: RunOptions, events: RunEvents, probe: bool, price: float | None) -> list[Estimate]:
    """Plan and estimate without writing into the store."""
    from saod_ray.config import UseCase
    from saod_ray.workflow import BenchmarkRun, planning_store

    uri = options.store or f"runs/{UseCase.load(options.use_case, options.data).name}"
    with planning_store(uri) as planning_uri:
        return BenchmarkRun(options, events, store=planning_uri).estimates(probe=probe, price=price)


class TerminalEvents(RunEvents):
    """Shows a run in the terminal."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def on_plan(self, summary: str) -> None:
        """Print the plan on stderr."""
        click.echo(summary, err=True)

    def on_estimates(self, estimates: Sequence[Estimate]) -> None:
        """Print a table on stderr."""
        terminal.stderr().print(_estimate_table(estimates))

    def on_message(self, message: str) -> None:
        """Print a line on stderr."""
        click.echo(message, err=True)

    def on_results(self, scored: ScoredStore) -> None:
        """Print the results on stdout."""
        print_results(scored, self._as_json)

    def detecting(self, images: dict[str, int]) -> AbstractContextManager[Callable[[str, int], None]]:
        """Show one progress bar per detector."""
        return terminal.bars(images)

    def working(self, title: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a progress bar."""
        return terminal.progress(title)


def _print_estimates(estimates: Sequence[Estimate], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps([asdict(estimate) for estimate in estimates], indent=1))
        return
    terminal.stdout().print(_estimate_table(estimates))
    if any(estimate.missing and estimate.images_a_second is None for estimate in estimates):
        click.echo("The speed of some detectors is unknown: --probe measures it for 20 seconds.", err=True)


def _estimate_table(estimates: Sequence[Estimate]) -> Table:
    """Images to do and done, per detector; columns without values are left out."""
    from rich import box
    from rich.table import Table

    columns = {
        "images/s": [estimate.images_a_second for estimate in estimates],
        "hours": [estimate.hours for estimate in estimates],
        "cost": [estimate.cost for estimate in estimates],
    }
    columns = {title: values for title, values in columns.items() if any(value is not None for value in values)}
    table = Table("detector", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("images to do", "done", "shards", "MB", *columns):
        table.add_column(title, justify="right")
    for k, row in enumerate(estimates):
        counts = (f"{row.missing:,}", f"{row.cached:,}", f"{row.shards:,}", f"{row.bytes / 1e6:,.1f}")
        values = [column[k] for column in columns.values()]
        table.add_row(row.detector, *counts, *("?" if value is None else f"{value:,.2f}" for value in values))
    return table
