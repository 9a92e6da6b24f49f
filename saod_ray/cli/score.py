"""`saod-ray score` and `report`: from a store to results and a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import BOOTSTRAP_SEED, DETECTORS, FOLLOW_LINKS, MAX_PIXELS, parse_weights

if TYPE_CHECKING:
    from saod_ray.workflow import ScoredStore

# the names in config.py, repeated here so that --help need not import it
CALIBRATORS = click.Choice(["linear", "isotonic", "histogram", "platt", "temperature", "none"])


@click.command()
@click.argument("store")
@DETECTORS
@click.option("--calibrator", type=CALIBRATORS, default="linear", show_default=True,
              help="Calibrator per class.")  # fmt: skip
@click.option("--uncertainty", default="score", show_default=True, metavar="KIND",
              help="score, entropy, ds, avg-entropy, max-class-entropy, determinant, trace, gaussian-entropy, "
              "joint-entropy[-balanced|-normalised].")  # fmt: skip
@click.option("--aggregate", default="top-3", show_default=True, metavar="RULE", help="top-N, min, mean or sum.")
@click.option("--image-threshold", default="pseudo-ood", show_default=True, metavar="RULE",
              help="pseudo-ood, tpr-0.95 or a value.")  # fmt: skip
@click.option("--detection-threshold", default="lrp", show_default=True, metavar="RULE", help="lrp or a value.")
@click.option("--tau", type=float, default=0.1, show_default=True, help="Smallest IoU of a true positive.")
@click.option("--bins", type=int, default=25, show_default=True, help="Bins of LaECE and of the histogram calibrator.")
@click.option("--conventions", type=click.Choice(["official", "paper"]), default="official", show_default=True,
              help="As in the published code, or as in the paper's text.")  # fmt: skip
@click.option(
    "--daq-weights", default="1,1,1", callback=parse_weights, show_default=True, help="Weights of BA, IDQ and IDQ_T."
)
@click.option(
    "--idq-weights", default="0.5,0.5", callback=parse_weights, show_default=True, help="Weights of 1-LRP and 1-LaECE."
)
@click.option("--metric", "metrics", multiple=True, metavar="MODULE:FUNCTION",
              help="Add a metric of your own, declared with @saod_ray.metric; may be repeated.")  # fmt: skip
@click.option("--partial", is_flag=True, help="Score a store in which images are missing; the results are marked.")
@click.option("--bootstrap", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals; 1000 is usual.")  # fmt: skip
@BOOTSTRAP_SEED
@click.option("--address", metavar="ADDR", help="Score on a Ray cluster (auto, ray://…); in this process by default.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Results file, instead of STORE/results.json."
)
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a table.")
def score(
    store: str,
    detectors: list[str] | None,
    metrics: tuple[str, ...],
    partial: bool,
    address: str | None,
    bootstrap: int,
    bootstrap_seed: int,
    out: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compute every metric from STORE's detections. No inference."""
    import gc

    gc.disable()  # arrays need no cycle collection, which would take a tenth of the time

    from saod_ray.config import ScoreSettings
    from saod_ray.files import Folder, check_target
    from saod_ray.score.benchmark import Benchmark
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.score.metrics import find_metric
    from saod_ray.store.store import Store
    from saod_ray.workflow import score_to_files

    custom_metrics = [find_metric(target) for target in metrics]
    score_settings = ScoreSettings.from_options(**settings)
    if out is not None:
        check_target(out)
    opened = Store.open(store)
    names = opened.choose(detectors)
    benchmark = Benchmark(opened, score_settings, partial, Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None)
    target = (opened.folder, "results.json") if out is None else (Folder(str(out.parent)), out.name)
    with terminal.progress(f"scoring {', '.join(names)}") as progress:
        scored = score_to_files(benchmark, names, target, metrics=custom_metrics, address=address, progress=progress)
    print_results(scored, as_json)


def print_results(scored: ScoredStore, as_json: bool) -> None:
    """Print the leaderboard, or results.json, on stdout; failed and missing images on stderr."""
    if as_json:
        click.echo(scored.content, nl=False)
        return
    from saod_ray.report.table import result_table

    terminal.stdout().print(result_table(scored.results))
    for name, result in scored.results.detectors.items():
        failed = {split: counts.failed for split, counts in result.coverage.items() if counts.failed}
        missing = {split: counts.missing_count for split, counts in result.coverage.items() if counts.missing_count}
        for status, counts in (("failed", failed), ("missing", missing)):
            if counts:
                listed = ", ".join(f"{count:,} of {split}" for split, count in counts.items())
                click.echo(f"{name}: images {status}: {listed}.", err=True)
    click.echo(f"All results: {scored.path}", err=True)


@click.command()
@click.argument("store")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE.html",
    help="HTML file to write.  [default: STORE/report.html]",
)
@click.option(
    "--data", metavar="DIR|URI", help="Folder of the images, for pictures; the use case's own root by default."
)
@click.option("--figures", type=click.Path(path_type=Path), metavar="DIR",
              help="Folder for the charts as SVG and PDF and the tables as LaTeX.")  # fmt: skip
@FOLLOW_LINKS
@MAX_PIXELS
def report(
    store: str, out: Path | None, data: str | None, figures: Path | None, follow_links: bool, max_pixels: int
) -> None:
    """Write STORE's results as one HTML file that needs no network.

    It shows tables, charts, pictures and provenance.
    """
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import check_target
    from saod_ray.store.store import Store
    from saod_ray.workflow import write_report

    if out is not None:
        check_target(out)
    limits = ImageLimits(max_pixels, follow_links)
    with terminal.progress("writing the report") as progress:
        path = write_report(Store.open(store), out, data, figures, progress=progress, limits=limits)
    click.echo(path)
