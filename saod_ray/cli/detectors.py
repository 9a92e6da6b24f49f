"""`saod-ray detectors`, `train` and `doctor`: list detectors, train one, check this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import ADDRESS, JSON, ROOT, WEIGHTS, FiniteFloat, GpuShare


@click.command()
@click.option("--use-case", metavar="NAME|FILE", help="gen, av, shapes, or a use case TOML file; all three by default.")
@WEIGHTS
@click.option("--detectors", metavar="FILE.toml", help="A TOML file of detectors to list instead of the built-in ones.")
@JSON
def detectors(use_case: str | None, weights: str | None, detectors: str | None, as_json: bool) -> None:
    """List the detectors, and which of them have weights here."""
    from dataclasses import asdict

    from saod_ray.config import UseCase
    from saod_ray.detect import registry

    folder = registry.weights_folder(weights)
    case_name = UseCase.load(use_case).name if use_case else None
    if detectors is not None:
        entries = registry.choose(case_name or "shapes", detectors)
    else:
        case_names = [case_name] if case_name else registry.use_cases()
        entries = [entry for name in case_names for entry in registry.all_entries(name)]
    states = [registry.state(entry, folder) for entry in entries]
    if as_json:
        click.echo(json.dumps([asdict(state) for state in states], indent=1))
        return
    for name in dict.fromkeys(state.use_case for state in states):
        _print_detectors(name, [state for state in states if state.use_case == name], folder)
    if any(state.weights is None and state.looked_for for state in states):
        click.echo(
            f"next     put weights into {folder}, name their folder with --weights DIR, or train: saod-ray train --help"
        )


def _print_detectors(use_case: str, states: list[Any], weights: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    caption = Text(f"{use_case}, weights in {weights}")
    table = Table(box=box.SIMPLE_HEAD, title=caption, title_justify="left", pad_edge=False)
    for title in ("detector", "what", "weights"):
        table.add_column(title)
    lines = []
    for state in states:
        if state.weights:
            has_weights = Text("yes", "green")
        else:
            has_weights = Text("no", "red") if state.looked_for else Text("none needed")
        table.add_row(Text(state.name), Text(state.about + " (variant)" * state.variant), has_weights)
        paths = [state.weights] if state.weights else state.looked_for
        if paths:
            word, style = ("found", "") if state.weights else ("missing", "red")
            relative = ", ".join(path.removeprefix(f"{weights}/") for path in paths)
            lines.append(Text(f"{word:<8} {state.name}: {relative}", style))
    console = terminal.stdout()
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print()


@click.command()
@click.option("--detector", required=True, metavar="NAME|CONFIG.py", help="A detector's name, or an mmdet config.")
@click.option(
    "--use-case", default="shapes", show_default=True, metavar="NAME|FILE", help="Use case whose train split to use."
)
@ROOT
@WEIGHTS
@click.option("--epochs", type=click.IntRange(1), help="The recipe's by default; its schedule is stretched to fit.")
@click.option(
    "--batch-size", type=click.IntRange(1), help="Images per step over all workers; scales the learning rate."
)
@click.option("--learning-rate", type=FiniteFloat(0, min_open=True), help="The recipe's by default.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Random seed.")
@click.option(
    "--init", type=click.Path(path_type=Path), metavar="FILE", help="Initial weights; those that fit are used."
)
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Train on the first N images, to try it out.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Parallel Ray workers.")
@click.option("--cpus-per-worker", type=click.IntRange(1), default=1, show_default=True)
@click.option("--gpus-per-worker", type=GpuShare(0), help="By default 1 if the cluster has GPUs, else 0.")
@ADDRESS
@JSON
def train(
    detector: str,
    use_case: str,
    data: str | None,
    weights: str | None,
    workers: int,
    cpus_per_worker: int,
    gpus_per_worker: float | None,
    address: str | None,
    as_json: bool,
    **overrides: Any,
) -> None:
    """Train a detector on a use case's train split. Run the same command again to resume after a kill."""
    from saod_ray.config import UseCase
    from saod_ray.detect.registry import weights_folder
    from saod_ray.train.training import TrainResources, prepare_training
    from saod_ray.workflow import draw_missing_scenes

    case = UseCase.load(use_case, data)
    draw_missing_scenes(case, terminal.progress)
    with terminal.progress("reading annotations") as progress:
        training = prepare_training(case, detector, weights_folder(weights), workers, overrides, progress)
    if training.begin():
        settings = training.settings
        click.echo(
            f"training {settings.detector} ({settings.config}) on {settings.images:,} images of {settings.use_case}: "
            f"{settings.epochs} epochs, batches of {settings.batch_size}, {workers} workers",
            err=True,
        )
        with terminal.progress(lambda: f"training {settings.detector}{training.status}") as progress:
            training.run(TrainResources(address, cpus_per_worker, gpus_per_worker), progress)
    record = training.record()
    if as_json:
        click.echo(json.dumps(record, indent=1, sort_keys=True))
        return
    first, last = record["loss"][0], record["loss"][-1]
    metrics = ", ".join(f"{name.upper()} {value:.3f}" for name, value in record["val"].items())
    click.echo(f"{training.settings.detector}: {metrics} on val; the loss fell from {first:.3f} to {last:.3f}.")
    for suffix, what in (("safetensors", "weights"), ("png", "losses"), ("json", "record")):
        click.echo(f"{what:<8} {training.file(suffix)}")


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Show what this machine can run, and how to install the rest."""
    from dataclasses import asdict

    from saod_ray.detect.doctor import findings

    checks = findings()
    if as_json:
        click.echo(json.dumps([asdict(check) for check in checks], indent=1))
        return
    from rich.text import Text

    console = terminal.stdout()
    width = max(len(check.what) for check in checks)
    for check in checks:
        mark = Text("✓", "green") if check.is_there else Text("✗", "red")
        remedy = f": {check.remedy}" if check.remedy else ""
        console.print(mark + f" {check.what:<{width}}  {check.detail}{remedy}", soft_wrap=True)
