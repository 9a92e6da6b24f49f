"""`saod-ray detectors`, `train` and `doctor`: list detectors, train one, check this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import (
    CLUSTER,
    WHAT,
    Address,
    Data,
    GpuShare,
    Json,
    Number,
    UseCaseName,
    Weights,
    Whole,
    examples,
    local_path,
    selected_params,
)

app = typer.Typer()
OVERRIDES = ("epochs", "batch_size", "learning_rate", "seed", "init", "limit")  # of a training recipe
RECIPE = "Recipe"


@app.command(epilog=examples("detectors", "detectors --use-case gen --weights ~/weights", page="detectors.md"))
def detectors(
    use_case: Annotated[
        str | None,
        typer.Option(
            "--use-case",
            metavar="NAME",
            help="shapes, gen or av, or a use case TOML file.",
            show_default="all three",
            autocompletion=completion.use_cases,
        ),
    ] = None,
    weights: Weights = None,
    detectors: Annotated[
        str | None,
        typer.Option(
            "--detectors",
            metavar="FILE",
            help="A TOML file of detectors to list.",
            show_default="the built-in ones",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
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
        typer.echo(json.dumps([asdict(state) for state in states], indent=1))
        return
    for name in dict.fromkeys(state.use_case for state in states):
        _print_detectors(name, [state for state in states if state.use_case == name], folder)
    if any(state.weights is None and state.looked_for for state in states):
        typer.echo(
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


@app.command(
    epilog=examples(
        "train --detector atss --limit 64 --epochs 1", "train --detector config.py --use-case gen", page="training.md"
    )
)
def train(
    ctx: typer.Context,
    detector: Annotated[
        str,
        typer.Option(
            "--detector",
            metavar="NAME",
            help="A detector's name, or an mmdet config file.",
            show_default=False,
            rich_help_panel=WHAT,
            autocompletion=completion.detectors,
        ),
    ],
    use_case: UseCaseName = "shapes",
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            parser=Whole(1),
            help="Train on the first N images, to try it out.",
            show_default="all images",
            rich_help_panel=WHAT,
        ),
    ] = None,
    data: Data = None,
    weights: Weights = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            metavar="N",
            parser=Whole(1),
            help="Number of epochs; the recipe's schedule is stretched to fit.",
            show_default="the recipe's",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            "--batch-size",
            metavar="N",
            parser=Whole(1),
            help="Images per step over all workers; scales the learning rate.",
            show_default="the recipe's",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None,
        typer.Option(
            "--learning-rate",
            metavar="RATE",
            parser=Number(0, is_open=True),
            help="Learning rate.",
            show_default="the recipe's",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", parser=Whole(0), help="Random seed.", rich_help_panel=RECIPE)
    ] = 0,
    init: Annotated[
        Path | None,
        typer.Option(
            "--init",
            metavar="FILE",
            parser=local_path,
            help="Initial weights; those that fit are used.",
            show_default="random",
            rich_help_panel=RECIPE,
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option("--workers", metavar="N", parser=Whole(1), help="Parallel Ray workers.", rich_help_panel=CLUSTER),
    ] = 1,
    cpus_per_worker: Annotated[
        int,
        typer.Option(
            "--cpus-per-worker", metavar="N", parser=Whole(1), help="Cores per worker.", rich_help_panel=CLUSTER
        ),
    ] = 1,
    gpus_per_worker: Annotated[
        float | None,
        typer.Option(
            "--gpus-per-worker",
            metavar="N",
            parser=GpuShare(0),
            help="GPUs per worker.",
            show_default="1 if the cluster has GPUs",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    address: Address = None,
    as_json: Json = False,
) -> None:
    """Train a detector on a use case's train split.

    Run the same command again to resume after a kill.
    """
    from saod_ray.config import UseCase
    from saod_ray.detect.registry import weights_folder
    from saod_ray.train.training import TrainResources, name_and_config, prepare_training
    from saod_ray.workflow import draw_missing_scenes

    case = UseCase.load(use_case, data)
    name_and_config(case, detector)  # a mistake is found before scenes are drawn
    draw_missing_scenes(case, terminal.progress, with_train=True)
    with terminal.progress("reading annotations") as progress:
        training = prepare_training(
            case, detector, weights_folder(weights), workers, selected_params(OVERRIDES, ctx), progress
        )
    if training.begin():
        settings = training.settings
        typer.echo(
            f"training {settings.detector} ({settings.config}) on {settings.images:,} images of {settings.use_case}: "
            f"{settings.epochs} epochs, batches of {settings.batch_size}, {workers} workers",
            err=True,
        )
        with terminal.progress(lambda: f"training {settings.detector}{training.status}") as progress:
            training.run(TrainResources(address, cpus_per_worker, gpus_per_worker), progress)
    record = training.record()
    if as_json:
        typer.echo(json.dumps(record, indent=1, sort_keys=True))
        return
    first, last = record["loss"][0], record["loss"][-1]
    metrics = ", ".join(f"{name.upper()} {value:.3f}" for name, value in record["val"].items())
    typer.echo(f"{training.settings.detector}: {metrics} on val; the loss fell from {first:.3f} to {last:.3f}.")
    for suffix, what in (("safetensors", "weights"), ("png", "losses"), ("json", "record")):
        typer.echo(f"{what:<8} {training.file(suffix)}")


@app.command(epilog=examples("doctor", "doctor --json", page="start.md"))
def doctor(as_json: Json = False) -> None:
    """Show what this machine can run, and how to install the rest."""
    from dataclasses import asdict

    from saod_ray.detect.doctor import findings

    checks = findings()
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
        return
    from rich.text import Text

    console = terminal.stdout()
    width = max(len(check.what) for check in checks)
    for check in checks:
        mark = Text("✓", "green") if check.is_there else Text("✗", "red")
        remedy = f": {check.remedy}" if check.remedy else ""
        console.print(mark + f" {check.what:<{width}}  {check.detail}{remedy}", soft_wrap=True)
