"""Detectors: which there are, how to train one, and what this machine can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import ADDRESS, JSON, ROOT, WEIGHTS, Number, Share


@click.command()
@click.option("--use-case", metavar="NAME|FILE", help="gen, av, shapes, or a use case TOML file; all three by default.")
@WEIGHTS
@click.option("--detectors", metavar="FILE.toml", help="A TOML file of your own detectors, shown instead of ours.")
@JSON
def detectors(use_case: str | None, weights: str | None, detectors: str | None, as_json: bool) -> None:
    """Say which detectors there are, and which have weights here."""
    from dataclasses import asdict

    from saod_ray.config import UseCase
    from saod_ray.detect import registry

    folder = registry.weights_folder(weights)
    named = UseCase.load(use_case).name if use_case else None
    if detectors is not None:
        entries = registry.choose(named or "shapes", detectors)
    else:
        entries = [entry for case in ([named] if named else registry.use_cases()) for entry in registry.every(case)]
    states = [registry.state(entry, folder) for entry in entries]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in states], indent=1))
        return
    for case in dict.fromkeys(each.use_case for each in states):
        _print_detectors(case, [each for each in states if each.use_case == case], folder)
    if any(each.weights is None and each.looked_for for each in states):
        click.echo(
            f"next     put weights below {folder}, say where with --weights DIR, or make them: saod-ray train --help"
        )


def _print_detectors(use_case: str, states: list[Any], weights: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{use_case}, weights below {weights}")
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in ("detector", "what", "weights"):
        table.add_column(name)
    lines = []
    for each in states:
        there = Text("yes", "green") if each.weights else Text("no", "red") if each.looked_for else Text("none needed")
        table.add_row(Text(each.name), Text(each.about + " (variant)" * each.variant), there)
        shown = [path.removeprefix(f"{weights}/") for path in ([each.weights] if each.weights else each.looked_for)]
        if shown:
            word, style = ("found", "") if each.weights else ("missing", "red")
            lines.append(Text(f"{word:<8} {each.name}: {', '.join(shown)}", style))
    console = terminal.stdout()
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print()


@click.command()
@click.option("--detector", required=True, metavar="NAME|CONFIG.py", help="A detector's name, or an mmdet config.")
@click.option("--use-case", default="shapes", show_default=True, metavar="NAME|FILE", help="Whose train split is used.")
@ROOT
@WEIGHTS
@click.option("--epochs", type=click.IntRange(1), help="The recipe's by default; its course is stretched to fit.")
@click.option("--batch-size", type=click.IntRange(1), help="Over all workers; the learning rate follows it.")
@click.option("--learning-rate", type=Number(0, min_open=True), help="The recipe's by default.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--init", type=click.Path(path_type=Path), metavar="FILE", help="Begin with the weights there that fit.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Train on the first N images, to try it out.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Ray workers, in parallel.")
@click.option("--cpus-per-worker", type=click.IntRange(1), default=1, show_default=True)
@click.option("--gpus-per-worker", type=Share(0), help="1 where there are GPUs, else 0.")
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
    **wishes: Any,
) -> None:
    """Train a detector on a use case's train split. Run the same command again to go on after a kill."""
    from saod_ray.config import UseCase
    from saod_ray.detect.registry import weights_folder
    from saod_ray.train.training import Machine, prepare
    from saod_ray.workflow import draw_missing_scenes

    case = UseCase.load(use_case, data)
    draw_missing_scenes(case, terminal.progress)
    with terminal.progress("reading annotations") as progress:
        training = prepare(case, detector, weights_folder(weights), workers, wishes, progress)
    if training.begin():
        asked = training.settings
        click.echo(
            f"training {asked.detector} ({asked.config}) on {asked.images:,} images of {asked.use_case}: "
            f"{asked.epochs} epochs, batches of {asked.batch_size}, {workers} workers",
            err=True,
        )
        with terminal.progress(lambda: f"training {asked.detector}{training.now}") as progress:
            training.run(Machine(address, cpus_per_worker, gpus_per_worker), progress)
    record = training.record()
    if as_json:
        click.echo(json.dumps(record, indent=1, sort_keys=True))
        return
    first, last = record["loss"][0], record["loss"][-1]
    figures = ", ".join(f"{name.upper()} {value:.3f}" for name, value in record["val"].items())
    click.echo(f"{training.settings.detector}: {figures} on val; the loss fell from {first:.3f} to {last:.3f}.")
    for suffix, what in (("safetensors", "weights"), ("png", "losses"), ("json", "record")):
        click.echo(f"{what:<8} {training.file(suffix)}")


@click.command()
@JSON
def doctor(as_json: bool) -> None:
    """Say what this machine can run, and how to get the rest."""
    from dataclasses import asdict

    from saod_ray.detect.doctor import findings

    found = findings()
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
        return
    from rich.text import Text

    console = terminal.stdout()
    width = max(len(each.what) for each in found)
    for each in found:
        mark = Text("✓", "green") if each.is_there else Text("✗", "red")
        remedy = f": {each.remedy}" if each.remedy else ""
        console.print(mark + f" {each.what:<{width}}  {each.detail}{remedy}", soft_wrap=True)
