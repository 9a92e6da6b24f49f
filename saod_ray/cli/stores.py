"""`saod-ray import`, `export`, `diff` and `verify`: commands about the contents of stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import BOOTSTRAP_SEED, DETECTORS, JSON, ROOT, SPLIT, parse_names
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.store.ledger import Page


@click.command("import")
@click.argument("store")
@click.option("--use-case", required=True, metavar="NAME|FILE", help="gen, av, shapes, or a use case TOML file.")
@click.option("--detector", required=True, metavar="NAME", help="Name of the detector in the store.")
@SPLIT
@click.option("--detections", required=True, type=click.Path(path_type=Path), metavar="FILE.json[.gz]",
              help="A COCO result list: image_id, category_id, bbox, score, optional uncertainty.")  # fmt: skip
@ROOT
@click.option("--replace", is_flag=True, help="Replace the store's detections on this split.")
@click.option("--shard-images", type=click.IntRange(1), default=4096, show_default=True, help="Images per shard.")
@JSON
def import_command(
    store: str,
    use_case: str,
    detector: str,
    split: str,
    detections: Path,
    data: str | None,
    replace: bool,
    shard_images: int,
    as_json: bool,
) -> None:
    """Import detections of any tool into STORE, a folder or URI. Either the whole file is imported, or nothing."""
    from saod_ray.config import UseCase
    from saod_ray.store.coco_import import import_results

    case = UseCase.load(use_case, data)
    before = _pages(store, detector, split)
    with terminal.progress(f"importing {detections.name}") as progress:
        page = import_results(store, case, detector, split, detections, replace, shard_images, progress)
    if page in before and not replace:
        click.echo(f"{detections.name} is already imported as {detector} on {split}: nothing to do.", err=True)
    counts = {key: sum(getattr(shard, key) for shard in page.shards) for key in ("images", "detections", "empty")}
    if as_json:
        click.echo(json.dumps({"detector": detector, "split": split, **counts, "shards": len(page.shards)}))
        return
    click.echo(
        f"{detector} on {split}: {counts['detections']:,} detections on {counts['images']:,} images, "
        f"{counts['empty']:,} of them without any."
    )


def _pages(uri: str, detector: str, split: str) -> list[Page]:
    """The ledger pages of a split; none if there is no store yet, or if it is damaged."""
    from saod_ray.store.store import Store

    try:
        return Store.open(uri).pages(detector, split.partition("/")[0])
    except SaodError:
        return []


@click.command()
@click.argument("store")
@click.option("--detector", required=True, metavar="NAME")
@SPLIT
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.json[.gz]")
@JSON
def export(store: str, detector: str, split: str, out: Path, as_json: bool) -> None:
    """Write a split's detections as a COCO result list."""
    from saod_ray.store.coco_export import export_results
    from saod_ray.store.store import Store

    with terminal.progress(f"exporting {detector} on {split}") as progress:
        count = export_results(Store.open(store), detector, split, out, progress)
    line = json.dumps({"detector": detector, "split": split, "detections": count, "file": str(out)})
    click.echo(line if as_json else f"{detector} on {split}: {count:,} detections in {out}.")


@click.command()
@click.argument("store_a")
@click.argument("store_b", required=False)
@click.option("--detectors", callback=parse_names, metavar="A,B",
              help="Of one store, the two detectors to compare; of two stores, by default all that both have.")  # fmt: skip
@click.option("--bootstrap", type=click.IntRange(0), default=1000, show_default=True, metavar="N",
              help="Resample the images N times, alike on both sides, for 95 % intervals.")  # fmt: skip
@BOOTSTRAP_SEED
@click.option("--partial", is_flag=True, help="Accept stores in which images are missing.")
@JSON
def diff(
    store_a: str,
    store_b: str | None,
    detectors: list[str] | None,
    bootstrap: int,
    bootstrap_seed: int,
    partial: bool,
    as_json: bool,
) -> None:
    """Show what changed between two stores, or between two detectors of one.

    Each store is scored with the settings of its results.json, or with the defaults. Only caches are written.
    """
    from saod_ray.report import diff as store_diff
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.store.store import Store

    resamples = Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None
    first, second = Store.open(store_a), Store.open(store_b or store_a)
    store_diff.refuse_incomparable(first, second)
    pairs = store_diff.detector_pairs(first, second, detectors)
    with terminal.stages() as stage:
        a, b = (
            store_diff.DiffSide.from_store(
                store,
                list(names),
                partial=partial,
                resamples=resamples,
                progress=stage(f"scoring {', '.join(names)}"),
            )
            for store, names in zip((first, second), zip(*pairs, strict=True), strict=True)
        )
    difference = store_diff.compare(a, b, pairs, resamples)
    if as_json:
        click.echo(json.dumps(difference.to_json(), indent=1, sort_keys=True, ensure_ascii=False))
        return
    console = terminal.stdout()
    for pair in difference.pairs:
        console.print(store_diff.diff_table(pair, difference))
    for line in store_diff.remarks(difference):
        click.echo(line)


@click.command()
@click.argument("store")
@DETECTORS
@JSON
def verify(store: str, detectors: list[str] | None, as_json: bool) -> None:
    """Check that every shard is intact and every image accounted for.

    The exit code is 1 if there are problems.
    """
    from dataclasses import asdict

    from saod_ray.store.store import Store
    from saod_ray.store.verify import verify as verify_store

    opened = Store.open(store)
    names = opened.choose(detectors)
    with terminal.progress("verifying") as progress:
        verdict = verify_store(opened, names, progress)
    if as_json:
        click.echo(json.dumps(asdict(verdict), indent=1))
    else:
        for note in verdict.notes:
            click.echo(f"note: {note}", err=True)
        for problem in verdict.problems:
            click.echo(f"{problem.where} {problem.what}; repair: {problem.repair}")
    if verdict.problems:
        count = len(verdict.problems)
        repair = "repair it with the command above" if count == 1 else "repair them with the commands above"
        raise SaodError(f"{store} has {count} problem{'s' * (count > 1)}: {repair}, then verify again.")
    if not as_json:
        click.echo(
            f"{store} is intact: {verdict.shards:,} shards, {verdict.images:,} images, {verdict.detections:,} detections "
            f"of {', '.join(names)}."
        )
