"""`saod-ray experiment`: the paper's experiments, from a store."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import OUTPUT, Detectors, Json, Partial, examples, local_path, split_names
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.experiment.experiment import Experiment, Outcome

app = typer.Typer()
logger = logging.getLogger(__name__)


@app.command(epilog=examples("experiment list", "experiment ablation runs/shapes", page="experiments.md"))
def experiment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="An experiment, all, or list to list them.",
            show_default=False,
            autocompletion=completion.experiments,
        ),
    ],
    store: Annotated[
        str | None,
        typer.Argument(
            metavar="STORE", help="Folder or URI of a store.", show_default=False, autocompletion=completion.stores
        ),
    ] = None,
    detectors: Detectors = "all",
    partial: Partial = False,
    as_json: Json = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            parser=local_path,
            help="Also write the table as CSV, in full precision.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    latex: Annotated[
        Path | None,
        typer.Option(
            "--latex",
            metavar="FILE",
            parser=local_path,
            help="Also write the table as LaTeX.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="DIR",
            parser=local_path,
            help="Folder for the charts as SVG and PDF.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
) -> None:
    """Reproduce an experiment of the paper, without inference.

    The settings are those of the store's results.json. Outcomes are saved in STORE/experiments and shown in the store's
    next report.
    """
    from saod_ray import experiment as experiments
    from saod_ray.files import Folder, check_folder, check_target

    if name == "list":
        _print_experiments(as_json)
        return
    selected = experiments.select(name, store)
    if name == "all" and (csv or latex):
        raise SaodError("--csv and --latex are for one table: name one experiment, or use `report --figures DIR`.")
    for option, out in (("--csv", csv), ("--latex", latex)):
        if out is not None:
            check_target(out, option)
    if figures is not None:
        check_folder(figures, "--figures")
    outcomes, refused = _perform(selected, str(store), split_names(detectors), partial, figures)
    if name != "all":
        _write_tables(outcomes[0], csv, latex)
    if as_json:
        texts = [json.loads(outcome.json()) for outcome in outcomes]
        value = {"outcomes": texts, "refused": refused} if name == "all" else texts[0]
        typer.echo(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False))
        return
    for outcome in outcomes:
        _print_experiment(outcome)
    for sentence in refused.values():
        typer.echo(f"not done: {sentence}", err=True)
    typer.echo(
        f"Saved in {Folder(str(store)).display_path('experiments')}: the store's next report shows it.", err=True
    )


def _perform(
    selected: list[Experiment], store: str, detectors: list[str] | None, partial: bool, figures: Path | None
) -> tuple[list[Outcome], dict[str, str]]:
    """The outcomes of experiments, and by name why others were refused. Raises SaodError if all of them were."""
    from saod_ray.files import Folder
    from saod_ray.report.diff import last_settings
    from saod_ray.store.store import Store

    try:
        from saod_ray.experiment.context import ExperimentContext
        from saod_ray.experiment.experiment import perform
        from saod_ray.experiment.render import figure_files
    except ModuleNotFoundError as error:
        raise SaodError(f"Experiments need {error.name}: install it with `pip install 'saod-ray[report]'`.") from error
    opened = Store.open(store)
    outcomes, refused = [], {}
    current = ""
    with terminal.progress(lambda: f"experiment {current}") as progress:
        context = ExperimentContext(opened, last_settings(opened), opened.choose(detectors), partial)
        for done, experiment in enumerate(selected):
            current = experiment.name
            progress(done, len(selected))
            try:
                outcomes.append(perform(experiment, context))
            except SaodError as error:
                logger.debug("The experiment '%s' was refused.", current, exc_info=error)
                refused[current] = str(error)
                continue
            for file, content in figure_files(outcomes[-1], context) if figures is not None else ():
                Folder(str(figures)).write_if_changed(f"{current}/{file}", content)
    if not outcomes:
        raise SaodError(next(iter(refused.values())))
    return outcomes, refused


def _write_tables(outcome: Outcome, csv: Path | None, latex: Path | None) -> None:
    from saod_ray.experiment.render import sheet
    from saod_ray.files import Folder
    from saod_ray.report import export

    for out, write in ((csv, export.comma_separated), (latex, export.latex)):
        if out is not None:
            Folder(str(out.parent)).write_if_changed(out.name, write(sheet(outcome)).encode())


def _print_experiment(outcome: Outcome) -> None:
    from saod_ray.experiment.render import terminal_tables

    console = terminal.stdout()
    for table in terminal_tables(outcome, console.width):
        console.print(table)
    typer.echo(outcome.shows)
    for remark in outcome.remarks:
        typer.echo(f"note: {remark}", err=True)
    typer.echo()


def _print_experiments(as_json: bool) -> None:
    from rich import box
    from rich.table import Table

    from saod_ray import experiment as experiments

    listed = experiments.all_experiments()
    if as_json:
        keys = ("name", "paper", "shows", "needs")
        typer.echo(json.dumps([{key: getattr(entry, key) for key in keys} for entry in listed], indent=1))
        return
    table = Table("experiment", "the paper's", "what it shows, and what it needs", box=box.SIMPLE_HEAD, pad_edge=False)
    for entry in listed:
        table.add_row(entry.name, entry.paper, f"{entry.shows}\nneeds {entry.needs}")
    terminal.stdout().print(table)
