"""`saod-ray report`, `diff` and `leaderboard`: show and compare results, of stores and of results files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import (
    MAX_PIXELS,
    OUTPUT,
    SCORING,
    WHERE,
    BootstrapSeed,
    Data,
    FollowLinks,
    Json,
    MaxPixels,
    Partial,
    Whole,
    examples,
    local_path,
    split_names,
)
from saod_ray.errors import SaodError

app = typer.Typer()

ResultsArgument = Annotated[
    str,
    typer.Argument(
        metavar="RESULTS", help="A store or a results file.", show_default=False, autocompletion=completion.stores
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="DIR",
        help="Store of a results file.",
        show_default="the one it was scored from",
        rich_help_panel=WHERE,
        autocompletion=completion.stores,
    ),
]


@app.command(epilog=examples("report runs/shapes --open", "report iso/results.json --figures figures", page="start.md"))
def report(
    results: ResultsArgument,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=local_path,
            help="HTML file to write.",
            show_default="report.html beside the results",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures",
            metavar="DIR",
            parser=local_path,
            help="Folder for the charts as SVG and PDF and the tables as LaTeX.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    is_opened: Annotated[
        bool, typer.Option("--open", metavar="", help="Open the report in the browser.", rich_help_panel=OUTPUT)
    ] = False,
    store: StoreOption = None,
    data: Data = None,
    follow_links: FollowLinks = False,
    max_pixels: MaxPixels = MAX_PIXELS,
) -> None:
    """Write results as one HTML file that needs no network.

    It shows tables, charts, pictures and provenance.
    """
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import check_target
    from saod_ray.report.results_source import ResultsSource
    from saod_ray.workflow import write_report

    if out is not None:
        check_target(out)
    source = ResultsSource.open(results, store)
    limits = ImageLimits(max_pixels, follow_links)
    with terminal.progress("writing the report") as progress:
        path = write_report(source, out, data, figures, progress=progress, limits=limits)
    typer.echo(path)
    if is_opened:
        _open_in_browser(path)


@app.command(
    epilog=examples("diff runs/shapes iso/results.json", "diff runs/shapes --detectors atss,d-detr", page="store.md")
)
def diff(
    results: ResultsArgument,
    other: Annotated[
        str | None,
        typer.Argument(
            metavar="OTHER",
            help="Another store or results file.",
            show_default="the same",
            autocompletion=completion.stores,
        ),
    ] = None,
    detectors: Annotated[
        str | None,
        typer.Option(
            "--detectors",
            metavar="NAMES",
            help="With one store: the two to compare. With two: those to compare in both.",
            show_default="all that both have",
            autocompletion=completion.detectors,
        ),
    ] = None,
    bootstrap: Annotated[
        int,
        typer.Option(
            "--bootstrap",
            metavar="N",
            parser=Whole(0),
            help="Resample the images N times, alike on both sides, for 95 % intervals.",
            rich_help_panel=SCORING,
        ),
    ] = 1000,
    bootstrap_seed: BootstrapSeed = 0,
    partial: Partial = False,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show what changed between two results, or between two detectors of one.

    Each side is scored with the settings of its results, or with the defaults. Only caches are written.
    """
    from saod_ray.report import diff as store_diff
    from saod_ray.score.bootstrap import Bootstrap

    resamples = Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None
    first, second = store_diff.open_sides(results, other, store)
    pairs = store_diff.detector_pairs(first, second, split_names(detectors))
    with terminal.stages() as stage:
        a, b = (
            store_diff.DiffSide.from_store(
                side,
                list(names),
                partial=partial,
                resamples=resamples,
                progress=stage(f"scoring {', '.join(names)}"),
            )
            for side, names in zip((first, second), zip(*pairs, strict=True), strict=True)
        )
    difference = store_diff.compare(a, b, pairs, resamples)
    if as_json:
        typer.echo(json.dumps(difference.to_json(), indent=1, sort_keys=True, ensure_ascii=False))
        return
    console = terminal.stdout()
    for pair in difference.pairs:
        console.print(store_diff.diff_table(pair, difference))
    for line in store_diff.remarks(difference):
        typer.echo(line)


@app.command(
    epilog=examples(
        "leaderboard runs/shapes iso/results.json",
        "leaderboard runs/shapes runs/other --out leaderboard.html --open",
        page="leaderboard.md",
    )
)
def leaderboard(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="RESULTS",
            help="Stores and results files of one use case.",
            show_default=False,
            autocompletion=completion.stores,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=local_path,
            help="HTML page to write.",
            show_default="none",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    is_opened: Annotated[
        bool,
        typer.Option("--open", metavar="", help="Open the page in the browser; with --out.", rich_help_panel=OUTPUT),
    ] = False,
    as_json: Json = False,
) -> None:
    """Join the results of many stores into one table and one page.

    A warning names the rows whose seeds, versions, conventions or settings differ.
    """
    from saod_ray.files import check_target
    from saod_ray.report.leaderboard import Leaderboard

    if out is not None:
        check_target(out)
    elif is_opened:
        raise SaodError("--open needs a page: add --out leaderboard.html.")
    board = Leaderboard.open(places)
    if as_json:
        typer.echo(json.dumps(board.to_json(), indent=1, sort_keys=True, ensure_ascii=False))
    else:
        terminal.stdout().print(board.table())
    for warning in board.warnings:
        typer.echo(f"warning: {warning}", err=True)
    if out is None:
        return
    typer.echo(f"Page: {board.to_html(out)}", err=True)
    if is_opened:
        _open_in_browser(str(out))


def _open_in_browser(path: str) -> None:
    """Open a local file; a note says so if that is not possible."""
    if "://" in path or typer.launch(Path(path).absolute().as_uri()) != 0:
        typer.echo(f"note: {path} cannot be opened here: open it yourself.", err=True)
