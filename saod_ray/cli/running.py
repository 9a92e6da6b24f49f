"""saod-ray run: from a use case and detectors to a store, results and a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import ADDRESS, BATCH_SIZE, FOLLOW_LINKS, MAX_PIXELS, ROOT, WEIGHTS, Number, Share, actors
from saod_ray.cli.scoring import print_results
from saod_ray.errors import SaodError
from saod_ray.workflow import RunEvents

if TYPE_CHECKING:
    from rich.table import Table

    from saod_ray.engine.estimate import Estimate
    from saod_ray.workflow import RunOptions, ScoredStore


@click.command()
@click.option("--use-case", default="shapes", show_default=True, metavar="NAME|FILE", help="What is benchmarked.")
@click.option("--detectors", default="all", show_default=True, metavar="all|A,B|FILE.toml")
@click.option("--store", metavar="DIR|URI", help="[default: runs/USE_CASE]")
@ROOT
@WEIGHTS
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N images of each split, to try it out.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the corruptions.")
@ADDRESS
@click.option(
    "--actors", callback=actors, metavar="MIN:MAX", help="Actors of a pipeline; as many as GPUs, or cores, by default."
)
@click.option(
    "--group",
    type=click.IntRange(1),
    metavar="N",
    help="Detectors per pipeline; each group decodes the images again. All by default.",
)
@click.option("--gpus-per-actor", type=Share(0), metavar="N", help="1 where there are GPUs, else 0; 0.5 shares one.")
@BATCH_SIZE
@MAX_PIXELS
@FOLLOW_LINKS
@click.option("--unit-images", type=click.IntRange(1), default=128, show_default=True, help="Images of a unit of work.")
@click.option("--max-errors", type=Number(0, 1), default=0.01, show_default=True, metavar="SHARE")
@click.option("--bootstrap", type=click.IntRange(0), default=200, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals.")  # fmt: skip
@click.option("--with-val-shift", is_flag=True,
              help="Detect on corrupted copies of val, too: for `experiment accuracy` alone.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Do units with failed images again.")
@click.option("--replace", is_flag=True, help="Redo what other weights, options, packages or another seed produced.")
@click.option("--dry-run", is_flag=True, help="Say what there is to do and what it takes, and stop.")
@click.option("--probe", is_flag=True, help="With --dry-run: measure the detectors here for 20 seconds.")
@click.option("--price", type=Number(0), help="With --dry-run: of an hour of one actor (a GPU), for the cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def run(dry_run: bool, probe: bool, price: float | None, as_json: bool, **options: Any) -> int:
    """Run detectors over a use case into a store, and score it.

    Run the same command again to resume where it stopped.
    """
    from saod_ray.workflow import BenchmarkRun, RunOptions

    chosen = RunOptions(**options)
    events = TerminalEvents(as_json)
    if dry_run:
        _print_estimates(_dry_run(chosen, events, probe, price), as_json)
        return 0
    if probe or price is not None:
        raise SaodError("--probe and --price say what a run would take: give --dry-run, too.")
    outcome = BenchmarkRun(chosen, events).carry_out()
    if outcome.is_trial:
        click.echo("This was a trial: the store's results and report are of its complete detectors.", err=True)
    if outcome.report:
        click.echo(f"Report: {outcome.report}", err=True)
    return 2 if outcome.has_failed_images else 0


def _dry_run(options: RunOptions, events: RunEvents, probe: bool, price: float | None) -> list[Estimate]:
    """Plan and estimate, without a trace in the store."""
    from saod_ray.config import UseCase
    from saod_ray.workflow import BenchmarkRun, planning_store

    uri = options.store or f"runs/{UseCase.load(options.use_case, options.data).name}"
    with planning_store(uri) as place:
        return BenchmarkRun(options, events, store=place).estimates(probe=probe, price=price)


class TerminalEvents(RunEvents):
    """Shows a run in the terminal."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def on_plan(self, summary: str) -> None:
        """On stderr, as all that is not asked for."""
        click.echo(summary, err=True)

    def on_estimates(self, estimates: Sequence[Estimate]) -> None:
        """As a table."""
        terminal.stderr().print(_estimate_table(estimates))

    def on_message(self, message: str) -> None:
        """As a line."""
        click.echo(message, err=True)

    def on_results(self, scored: ScoredStore) -> None:
        """On stdout."""
        print_results(scored, self._as_json)

    def detecting(self, images: dict[str, int]) -> AbstractContextManager[Callable[[str, int], None]]:
        """A bar for each detector."""
        return terminal.bars(images)

    def working(self, title: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """A bar."""
        return terminal.progress(title)


def _print_estimates(estimates: Sequence[Estimate], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps([asdict(one) for one in estimates], indent=1))
        return
    terminal.stdout().print(_estimate_table(estimates))
    if any(one.missing and one.images_a_second is None for one in estimates):
        click.echo("How fast a detector is here is not known yet: --probe measures it for 20 seconds.", err=True)


def _estimate_table(estimates: Sequence[Estimate]) -> Table:
    """Images to do and done per detector; columns without any value are left out."""
    from rich import box
    from rich.table import Table

    columns = {
        "images/s": [one.images_a_second for one in estimates],
        "hours": [one.hours for one in estimates],
        "cost": [one.cost for one in estimates],
    }
    columns = {title: values for title, values in columns.items() if any(value is not None for value in values)}
    table = Table("detector", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("images to do", "done", "shards", "MB", *columns):
        table.add_column(title, justify="right")
    for k, one in enumerate(estimates):
        counts = (f"{one.missing:,}", f"{one.cached:,}", f"{one.shards:,}", f"{one.bytes / 1e6:,.1f}")
        table.add_row(one.detector, *counts, *("?" if v[k] is None else f"{v[k]:,.2f}" for v in columns.values()))
    return table
