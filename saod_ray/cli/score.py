"""`saod-ray score`: from the detections of a store to results."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import terminal
from saod_ray.cli.options import (
    ADVANCED,
    CLUSTER,
    OUTPUT,
    SCORING,
    Detectors,
    Number,
    OneOf,
    Partial,
    StoreArgument,
    Whole,
    examples,
    local_path,
    parse_weights,
    split_names,
)

if TYPE_CHECKING:
    from saod_ray.workflow import ScoredStore

app = typer.Typer()
# the names in config.py, repeated here so that --help need not import it
CALIBRATOR = OneOf("linear", "isotonic", "histogram", "platt", "temperature", "none")
CONVENTIONS = OneOf("official", "paper")


@app.command(
    epilog=examples(
        "score runs/shapes", "score runs/shapes --calibrator isotonic --out iso/results.json", page="metrics.md"
    )
)
def score(
    store: StoreArgument,
    detectors: Detectors = "all",
    calibrator: Annotated[
        str,
        typer.Option(
            "--calibrator",
            metavar="NAME",
            parser=CALIBRATOR,
            autocompletion=CALIBRATOR.complete,
            help="Calibrator per class: linear, isotonic, histogram, platt, temperature or none.",
            rich_help_panel=SCORING,
        ),
    ] = "linear",
    uncertainty: Annotated[
        str,
        typer.Option(
            "--uncertainty",
            metavar="NAME",
            help="score, entropy, ds, avg-entropy, max-class-entropy, determinant, trace, gaussian-entropy, "
            "joint-entropy, joint-entropy-balanced or joint-entropy-normalised.",
            rich_help_panel=SCORING,
        ),
    ] = "score",
    aggregate: Annotated[
        str,
        typer.Option(
            "--aggregate",
            metavar="RULE",
            help="Image-level uncertainty: top-N, min, mean or sum.",
            rich_help_panel=SCORING,
        ),
    ] = "top-3",
    image_threshold: Annotated[
        str,
        typer.Option(
            "--image-threshold", metavar="RULE", help="pseudo-ood, tpr-0.95 or a value.", rich_help_panel=SCORING
        ),
    ] = "pseudo-ood",
    detection_threshold: Annotated[
        str,
        typer.Option("--detection-threshold", metavar="RULE", help="lrp or a value.", rich_help_panel=SCORING),
    ] = "lrp",
    tau: Annotated[
        float,
        typer.Option(
            "--tau", metavar="IOU", parser=Number(), help="Smallest IoU of a true positive.", rich_help_panel=SCORING
        ),
    ] = 0.1,
    bins: Annotated[
        int,
        typer.Option(
            "--bins",
            metavar="N",
            parser=Whole(1),
            help="Bins of LaECE and of the histogram calibrator.",
            rich_help_panel=SCORING,
        ),
    ] = 25,
    conventions: Annotated[
        str,
        typer.Option(
            "--conventions",
            metavar="NAME",
            parser=CONVENTIONS,
            autocompletion=CONVENTIONS.complete,
            help="official (the published code) or paper (its text).",
            rich_help_panel=SCORING,
        ),
    ] = "official",
    bootstrap: Annotated[
        int | None,
        typer.Option(
            "--bootstrap",
            metavar="N",
            parser=Whole(0),
            help="Resample the images N times for 95 % intervals; 1000 is usual, 0 is none.",
            show_default="as in the store's results",
            rich_help_panel=SCORING,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=local_path,
            help="Results file.",
            show_default="STORE/results.json",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", metavar="", help="Print results.json instead of a table.", rich_help_panel=OUTPUT)
    ] = False,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            help="Ray cluster to score on: auto, HOST:PORT or ray://HOST:PORT.",
            show_default="this process",
            rich_help_panel=CLUSTER,
        ),
    ] = None,
    partial: Partial = False,
    daq_weights: Annotated[
        str,
        typer.Option("--daq-weights", metavar="W,W,W", help="Weights of BA, IDQ and IDQ_T.", rich_help_panel=ADVANCED),
    ] = "1,1,1",
    idq_weights: Annotated[
        str,
        typer.Option("--idq-weights", metavar="W,W", help="Weights of 1-LRP and 1-LaECE.", rich_help_panel=ADVANCED),
    ] = "0.5,0.5",
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            metavar="MODULE:FUNCTION",
            help="Add a metric of your own, declared with @saod_ray.metric; may be repeated.",
            show_default=False,
            rich_help_panel=ADVANCED,
        ),
    ] = None,
    bootstrap_seed: Annotated[
        int | None,
        typer.Option(
            "--bootstrap-seed",
            metavar="N",
            parser=Whole(0),
            help="Random seed of the resamples.",
            show_default="that of resamples that are kept, else 0",
            rich_help_panel=ADVANCED,
        ),
    ] = None,
) -> None:
    """Compute every metric from a store's detections, without inference."""
    import gc

    gc.disable()  # arrays need no cycle collection, which would take a tenth of the time

    from saod_ray.config import ScoreSettings
    from saod_ray.files import Folder, check_target
    from saod_ray.score.benchmark import Benchmark
    from saod_ray.score.metrics import find_metric
    from saod_ray.store.store import Store
    from saod_ray.workflow import choose_resamples, score_to_files

    custom_metrics = [find_metric(target) for target in metrics or ()]
    score_settings = ScoreSettings.from_options(
        calibrator=calibrator,
        uncertainty=uncertainty,
        aggregate=aggregate,
        image_threshold=image_threshold,
        detection_threshold=detection_threshold,
        tau=tau,
        bins=bins,
        conventions=conventions,
        daq_weights=parse_weights("--daq-weights", daq_weights, 3),
        idq_weights=parse_weights("--idq-weights", idq_weights, 2),
    )
    if out is not None:
        check_target(out)
    opened = Store.open(store)
    names = opened.choose(split_names(detectors))
    benchmark = Benchmark(opened, score_settings, partial, choose_resamples(opened, bootstrap, bootstrap_seed))
    target = (opened.folder, "results.json") if out is None else (Folder(str(out.parent)), out.name)
    with terminal.progress(f"scoring {', '.join(names)}") as progress:
        scored = score_to_files(benchmark, names, target, metrics=custom_metrics, address=address, progress=progress)
    print_results(scored, as_json)
    if scored.changes:
        typer.echo(scored.changes, err=True)


def print_results(scored: ScoredStore, as_json: bool) -> None:
    """Print the leaderboard, or results.json, on stdout; failed and missing images on stderr."""
    if as_json:
        typer.echo(scored.content, nl=False)
        return
    from saod_ray.report.table import result_table

    terminal.stdout().print(result_table(scored.results))
    for name, result in scored.results.detectors.items():
        failed = {split: counts.failed for split, counts in result.coverage.items() if counts.failed}
        missing = {split: counts.missing_count for split, counts in result.coverage.items() if counts.missing_count}
        for status, counts in (("failed", failed), ("missing", missing)):
            if counts:
                listed = ", ".join(f"{count:,} of {split}" for split, count in counts.items())
                typer.echo(f"{name}: images {status}: {listed}.", err=True)
    typer.echo(f"All results: {scored.path}", err=True)
