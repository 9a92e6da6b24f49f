"""`saod-ray run`: from a use case and detectors to a store, results and a report."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import (
    ADVANCED,
    CLUSTER,
    DRY_RUN,
    MAX_PIXELS,
    SCORING,
    WHAT,
    WHERE,
    Address,
    BatchSize,
    Data,
    FollowLinks,
    GpuShare,
    MaxPixels,
    Number,
    UseCaseName,
    Weights,
    Whole,
    examples,
    parse_actors,
    selected_params,
)
from saod_ray.cli.score import print_results
from saod_ray.errors import SaodError
from saod_ray.workflow import RunEvents

if TYPE_CHECKING:
    from rich.table import Table

    from saod_ray.engine.estimate import Estimate
    from saod_ray.workflow import ScoredStore

app = typer.Typer()
NOT_RUN_OPTIONS = ("dry_run", "probe", "price", "as_json")  # parameters that are not fields of RunOptions


@app.command(
    epilog=examples("run --detectors atss --limit 8", "run --use-case gen --data ~/data --dry-run", page="engine.md")
)
def run(
    ctx: typer.Context,
    use_case: UseCaseName = "shapes",
    detectors: Annotated[
        str,
        typer.Option(
            "--detectors",
            metavar="NAMES",
            help="Names separated by commas, all, or a detector TOML file. `saod-ray detectors` lists the names.",
            rich_help_panel=WHAT,
            autocompletion=completion.detectors,
        ),
    ] = "all",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            parser=Whole(1),
            help="Use only the first N images of each split, for a trial.",
            show_default="all images",
            rich_help_panel=WHAT,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="DIR",
            help="Folder or URI to write to.",
            show_default="runs/USE_CASE",
            rich_help_panel=WHERE,
            autocompletion=completion.stores,
        ),
    ] = None,
    data: Data = None,
    weights: Weights = None,
    address: Address = None,
    actors: Annotated[
        str | None,
        typer.Option(
            "--actors",
            metavar="MIN:MAX",
            help="Processes that hold the detectors.",
            show_default="one per GPU, or per core",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap",
            metavar="N",
            parser=Whole(0),
            help="Resample the images N times for 95 % intervals; 0 for none.",
            rich_help_panel=SCORING,
        ),
    ] = 200,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            metavar="",
            help="Show the plan with its estimated time and size, and stop.",
            rich_help_panel=DRY_RUN,
        ),
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            metavar="",
            help="Measure the detectors' speed here for 20 seconds, for the estimate.",
            rich_help_panel=DRY_RUN,
        ),
    ] = False,
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            metavar="PRICE",
            parser=Number(0),
            help="Price per actor-hour; adds a cost column to the estimate.",
            show_default=False,
            rich_help_panel=DRY_RUN,
        ),
    ] = None,
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", parser=Whole(0), help="Random seed of the corruptions.", rich_help_panel=ADVANCED
        ),
    ] = 0,
    group: Annotated[
        int | None,
        typer.Option(
            "--group",
            metavar="N",
            parser=Whole(1),
            help="Detectors per pipeline, for GPUs that cannot hold all; each group decodes the images again.",
            show_default="all",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    gpus_per_actor: Annotated[
        float | None,
        typer.Option(
            "--gpus-per-actor",
            metavar="N",
            parser=GpuShare(0),
            help="GPUs per actor; 0.5 lets two share one.",
            show_default="1 if there are GPUs",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    batch_size: BatchSize = 1,
    unit_images: Annotated[
        int,
        typer.Option(
            "--unit-images", metavar="N", parser=Whole(1), help="Images per unit of work.", rich_help_panel=ADVANCED
        ),
    ] = 128,
    max_errors: Annotated[
        float,
        typer.Option(
            "--max-errors",
            metavar="SHARE",
            parser=Number(0, 1),
            help="Share of images that may fail before the run ends.",
            rich_help_panel=ADVANCED,
        ),
    ] = 0.01,
    max_pixels: MaxPixels = MAX_PIXELS,
    follow_links: FollowLinks = False,
    with_val_shift: Annotated[
        bool,
        typer.Option(
            "--with-val-shift",
            metavar="",
            help="Also detect on corrupted copies of val; only `experiment accuracy` needs them.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    retry_failed: Annotated[
        bool,
        typer.Option("--retry-failed", metavar="", help="Repeat units with failed images.", rich_help_panel=ADVANCED),
    ] = False,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            metavar="",
            help="Replace detections of other weights, options, packages or another seed.",
            rich_help_panel=ADVANCED,
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print the results as JSON on stdout.", rich_help_panel=ADVANCED)
    ] = False,
) -> int:
    """Run detectors over a use case into a store, and score it.

    Run the same command again to resume where it stopped. The exit code is 2 if some images failed.
    """
    from saod_ray.workflow import BenchmarkRun, RunOptions
    from saod_ray.workflow import dry_run as estimate_run

    names = [name for name in ctx.params if name not in NOT_RUN_OPTIONS]
    run_options = RunOptions(**{**selected_params(names, ctx), "actors": parse_actors(actors)})
    events = TerminalEvents(as_json)
    if dry_run:
        estimates = estimate_run(run_options, events, probe=probe, price=price)
        _print_estimates(estimates, as_json, may_probe=events.has_data)
        return 0
    if probe or price is not None:
        raise SaodError("--probe and --price are for estimates: add --dry-run, or leave them out.")
    outcome = BenchmarkRun(run_options, events).carry_out()
    if outcome.is_trial:
        typer.echo(
            "This was a trial: the store's results and report still cover its complete detectors only.", err=True
        )
    if outcome.report:
        typer.echo(f"Report: {outcome.report}", err=True)
    return 2 if outcome.has_failed_images else 0


class TerminalEvents(RunEvents):
    """Shows a run in the terminal."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self.has_data = True  # an estimate was not made from published sizes

    def on_plan(self, summary: str) -> None:
        """Print the plan on stderr."""
        typer.echo(summary, err=True)

    def on_published_sizes(self, message: str) -> None:
        """Print a line on stderr."""
        self.has_data = False
        typer.echo(message, err=True)

    def on_estimates(self, estimates: Sequence[Estimate]) -> None:
        """Print a table on stderr."""
        terminal.stderr().print(_estimate_table(estimates))

    def on_status(self, status: str) -> None:
        """Print a line on stderr."""
        typer.echo(status, err=True)

    def on_message(self, message: str) -> None:
        """Print a line on stderr."""
        typer.echo(message, err=True)

    def on_results(self, scored: ScoredStore) -> None:
        """Print the results on stdout."""
        print_results(scored, self._as_json)

    def detecting(self, images: dict[str, int]) -> AbstractContextManager[Callable[[str, int], None]]:
        """Show one progress bar per detector."""
        return terminal.bars(images)

    def working(self, title: str) -> AbstractContextManager[Callable[[int, int], None]]:
        """Show a progress bar."""
        return terminal.progress(title)


def _print_estimates(estimates: Sequence[Estimate], as_json: bool, *, may_probe: bool) -> None:
    from dataclasses import asdict

    if as_json:
        typer.echo(json.dumps([asdict(estimate) for estimate in estimates], indent=1))
        return
    terminal.stdout().print(_estimate_table(estimates))
    if may_probe and any(estimate.missing and estimate.images_a_second is None for estimate in estimates):
        typer.echo("The speed of some detectors is unknown: --probe measures it for 20 seconds.", err=True)


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
