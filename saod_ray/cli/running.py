"""saod-ray run: from a use case and detectors to a store, results and a report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.data import draw
from saod_ray.cli.options import ADDRESS, BATCH_SIZE, FOLLOW_LINKS, MAX_PIXELS, ROOT, WEIGHTS, Number, Share, actors
from saod_ray.cli.scoring import reported, scored
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from rich.table import Table

    from saod_ray.engine.estimate import Estimate
    from saod_ray.engine.failures import FailureBudget
    from saod_ray.engine.job import Job
    from saod_ray.engine.plan import Plan
    from saod_ray.engine.resources import ResourceOptions
    from saod_ray.engine.workers import Receipt
    from saod_ray.score.bootstrap import Bootstrap


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
@click.option("--replace", is_flag=True, help="Make anew what other weights, options, packages or another seed made.")
@click.option("--dry-run", is_flag=True, help="Say what there is to do and what it takes, and stop.")
@click.option("--probe", is_flag=True, help="With --dry-run: measure the detectors here for 20 seconds.")
@click.option("--price", type=Number(0), help="With --dry-run: of an hour of one actor (a GPU), for the cost.")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def run(
    use_case: str,
    detectors: str,
    store: str | None,
    data: str | None,
    weights: str | None,
    limit: int | None,
    seed: int,
    address: str | None,
    actors: tuple[int, int] | None,
    group: int | None,
    gpus_per_actor: float | None,
    batch_size: int,
    max_pixels: int,
    follow_links: bool,
    unit_images: int,
    max_errors: float,
    bootstrap: int,
    with_val_shift: bool,
    retry_failed: bool,
    replace: bool,
    dry_run: bool,
    probe: bool,
    price: float | None,
    as_json: bool,
) -> int:
    """Run detectors over a use case into a store, and score it.

    Run the same command again to go on where it stopped.
    """
    from saod_ray.config import UseCase
    from saod_ray.data.images import ImageLimits
    from saod_ray.detect.registry import weights_folder
    from saod_ray.engine import plan as planning
    from saod_ray.engine.estimate import estimate
    from saod_ray.engine.failures import FailureBudget
    from saod_ray.engine.job import Job
    from saod_ray.engine.resources import ResourceOptions
    from saod_ray.score.bootstrap import Bootstrap

    if (probe or price is not None) and not dry_run:
        raise SaodError("--probe and --price say what a run would take: give --dry-run, too.")
    case = UseCase.load(use_case, data)
    draw(case)
    uri = store or f"runs/{case.name}"
    resources = ResourceOptions(actors, group, gpus_per_actor, batch_size, unit_images)
    with _untouched(uri) if dry_run else nullcontext(uri) as place:
        folder = weights_folder(weights)
        limits = ImageLimits(max_pixels, follow_links)
        job = Job.from_use_case(case, place, detectors, folder, seed=seed, batch_size=batch_size, limits=limits)
        plan = job.plan(unit_images, planning.PlanOptions(limit, retry_failed, with_val_shift, replace))
        click.echo(planning.summary(plan, resources.groups(plan.busy_detectors)), err=True)
        if dry_run:
            _print_estimates(estimate(job, plan, probe, price), as_json)
            return 0
    command_args = {"use_case": use_case, "detectors": detectors, "limit": limit, "seed": seed, **resources._asdict()}
    budget = FailureBudget(plan, max_errors)
    if plan.units:
        _detect(job, plan, resources, command_args, budget, address)
    else:
        planning.discard(job.store, plan.stale)  # other pages have the same images
    job.compact()
    job.refuse_mixture()
    budget.refuse_too_many()
    _conclude(job, limit is not None, Bootstrap(bootstrap, 0) if bootstrap else None, as_json, address)
    return 2 if any(budget.failed.values()) or job.failed_images() else 0


def _conclude(job: Job, is_limited: bool, resamples: Bootstrap | None, as_json: bool, address: str | None) -> None:
    """Score what a run leaves, and write the report."""
    from saod_ray.report.diff import last_settings

    scope = job.scope(is_limited)
    target = (job.store.folder.below("trial") if scope.is_trial else job.store.folder, "results.json")
    settings = last_settings(job.store)
    scored(job.store, scope.detectors, settings, scope.is_partial, target, as_json, resamples, address)
    if scope.is_trial:
        click.echo("This was a trial: the store's results and report are of its complete detectors.", err=True)
        return
    try:
        click.echo(f"Report: {reported(job.store, None, job.case.root, None)}", err=True)
    except SaodError as error:  # the results are there
        click.echo(f"There is no report: {error}", err=True)


def _detect(
    job: Job,
    plan: Plan,
    resources: ResourceOptions,
    command_args: dict[str, Any],
    budget: FailureBudget,
    address: str | None,
) -> None:
    """Do what is planned, show progress, and leave a record of it in the store."""
    from saod_ray.engine.cluster import connected
    from saod_ray.engine.estimate import estimate
    from saod_ray.engine.journal import Journal

    terminal.stderr().print(_estimate_table(estimate(job, plan)))
    journal = Journal(job.store, plan, command_args)
    groups = resources.groups(plan.busy_detectors)
    lanes = {"decoding": sum(plan.images_to_prepare(group) for group in groups)}
    lanes |= {name: plan.missing[name] for name in plan.busy_detectors}
    with journal.stage("detecting"), connected(address), terminal.bars(lanes) as progress:
        from saod_ray.engine.driver import Callbacks
        from saod_ray.engine.run import Run

        def on_receipt(receipt: Receipt) -> None:
            journal.note(receipt)
            budget.count(receipt)
            progress(receipt.detector, receipt.images)

        def on_message(message: str) -> None:
            journal.log(message)
            click.echo(message, err=True)

        run = Run(job, plan, resources, may_grow=address is not None)
        journal.statistics = run.statistics
        run.detect(on_receipt, Callbacks(lambda images: progress("decoding", images), on_message))
    journal.close("done")


@contextmanager
def _untouched(uri: str) -> Iterator[str]:
    """Where to plan without writing: the store if it has detections, else a place that goes afterwards."""
    from tempfile import TemporaryDirectory

    from saod_ray.store.store import Store

    with TemporaryDirectory(prefix="saod-ray-") as place:
        yield uri if Store(uri).detectors() else place


def _print_estimates(estimates: list[Estimate], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps([asdict(one) for one in estimates], indent=1))
        return
    terminal.stdout().print(_estimate_table(estimates))
    if any(one.missing and one.images_a_second is None for one in estimates):
        click.echo("How fast a detector is here is not known yet: --probe measures it for 20 seconds.", err=True)


def _estimate_table(estimates: list[Estimate]) -> Table:
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
