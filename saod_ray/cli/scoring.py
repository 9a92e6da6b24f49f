"""From a store to results and a report: score, report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import BOOTSTRAP_SEED, DETECTORS, FOLLOW_LINKS, MAX_PIXELS, numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saod_ray.config import ScoreSettings
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import Folder
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.score.metrics import CustomMetric
    from saod_ray.score.results import BenchmarkResult
    from saod_ray.store.store import Store


# what may be asked of `score`, as written in config.py; repeated here so that --help need not import it
CALIBRATORS = click.Choice(["linear", "isotonic", "histogram", "platt", "temperature", "none"])


@click.command()
@click.argument("store")
@DETECTORS
@click.option("--calibrator", type=CALIBRATORS, default="linear", show_default=True)
@click.option("--uncertainty", default="score", show_default=True, metavar="KIND",
              help="score, entropy, ds, avg-entropy, max-class-entropy, determinant, trace, gaussian-entropy, "
              "joint-entropy[-balanced|-normalised].")  # fmt: skip
@click.option("--aggregate", default="top-3", show_default=True, metavar="RULE", help="top-N, min, mean or sum.")
@click.option("--image-threshold", default="pseudo-ood", show_default=True, metavar="RULE",
              help="pseudo-ood, tpr-0.95 or a value.")  # fmt: skip
@click.option("--detection-threshold", default="lrp", show_default=True, metavar="RULE", help="lrp or a value.")
@click.option("--tau", type=float, default=0.1, show_default=True, help="The IoU from which a detection is a TP.")
@click.option("--bins", type=int, default=25, show_default=True, help="Bins of LaECE and of histogram binning.")
@click.option("--conventions", type=click.Choice(["official", "paper"]), default="official", show_default=True,
              help="As published, or as the paper defines it.")  # fmt: skip
@click.option("--daq-weights", default="1,1,1", callback=numbers, show_default=True, help="Of BA, IDQ and IDQ_T.")
@click.option("--idq-weights", default="0.5,0.5", callback=numbers, show_default=True, help="Of 1-LRP and 1-LaECE.")
@click.option("--metric", "metrics", multiple=True, metavar="MODULE:FUNCTION",
              help="Add a metric of your own, declared with @saod_ray.metric; may be repeated.")  # fmt: skip
@click.option("--partial", is_flag=True, help="Score a store in which images are missing, and say so.")
@click.option("--bootstrap", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals; 1000 are usual.")  # fmt: skip
@BOOTSTRAP_SEED
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…) to score on; this process by default.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of STORE/results.json."
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

    gc.disable()  # arrays go when their last reference does; looking for cycles would take a tenth of a scoring

    from saod_ray.config import ScoreSettings
    from saod_ray.files import Folder, check_target
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.score.metrics import find_metric
    from saod_ray.store.store import Store

    own_metrics = [find_metric(target) for target in metrics]
    chosen = ScoreSettings.of(**settings)
    if out is not None:
        check_target(out)
    opened = Store.open(store)
    resamples = Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None
    target = (opened.folder, "results.json") if out is None else (Folder(str(out.parent)), out.name)
    scored(opened, opened.choose(detectors), chosen, partial, target, as_json, resamples, address, own_metrics)


def scored(
    opened: Store,
    names: list[str],
    chosen: ScoreSettings,
    partial: bool,
    target: tuple[Folder, str],
    as_json: bool,
    resamples: Bootstrap | None = None,
    address: str | None = None,
    metrics: Sequence[CustomMetric] = (),
) -> None:
    """Score (on a cluster, where there is one), write and show."""
    from saod_ray.api import score_benchmark
    from saod_ray.report.results import encoded
    from saod_ray.score.benchmark import Benchmark

    with terminal.progress(f"scoring {', '.join(names)}") as progress:
        if address is not None:
            from saod_ray.engine.cluster import connected
            from saod_ray.engine.scoring import score_ahead

            with connected(address):
                score_ahead(opened, names, chosen, partial, resamples, progress)
        benchmark = Benchmark(opened, chosen, partial, resamples)
        value, scored = score_benchmark(benchmark, names, metrics, progress)
    text = encoded(value)
    folder, file = target
    folder.put_if_other(file, text)
    for name, entry in scored.items():
        folder.put_if_other(f"selfaware/{name}.json", encoded(entry.selfaware))
    if as_json:
        click.echo(text, nl=False)
        return
    _print_results(value, f"{folder.uri.rstrip('/')}/{file}")


def _print_results(results: BenchmarkResult, path: str) -> None:
    from saod_ray.report.table import result_table

    console = terminal.stdout()
    console.print(result_table(results))
    for name, result in results.detectors.items():
        failed = {split: counts.failed for split, counts in result.coverage.items() if counts.failed}
        missing = {split: counts.missing_count for split, counts in result.coverage.items() if counts.missing_count}
        for what, counts in (("failed", failed), ("missing", missing)):
            if counts:
                listed = ", ".join(f"{count:,} of {split}" for split, count in counts.items())
                click.echo(f"{name}: images {what}: {listed}.", err=True)
    click.echo(f"All results: {path}", err=True)


@click.command()
@click.argument("store")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.html", help="[default: STORE/report.html]")
@click.option(
    "--data", metavar="DIR|URI", help="Where the images lie, for pictures; the use case's own root by default."
)
@click.option("--figures", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the charts there too, as SVG and PDF, and the tables as LaTeX.")  # fmt: skip
@FOLLOW_LINKS
@MAX_PIXELS
def report(
    store: str, out: Path | None, data: str | None, figures: Path | None, follow_links: bool, max_pixels: int
) -> None:
    """Write STORE's results as one HTML file that needs no network.

    It has tables, charts, pictures and provenance.
    """
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import check_target
    from saod_ray.store.store import Store

    if out is not None:
        check_target(out)
    click.echo(reported(Store.open(store), out, data, figures, ImageLimits(max_pixels, follow_links)))


def reported(
    opened: Store, out: Path | None, data: str | None, figures: Path | None, limits: ImageLimits | None = None
) -> str:
    """Write the report and say where it is."""
    from saod_ray.api import write_report

    with terminal.progress("making the report") as progress:
        return write_report(opened, out, data, figures, progress, limits)
