"""`saod-ray import`, `export` and `verify`: commands about the contents of stores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import (
    ADVANCED,
    Data,
    Detectors,
    Json,
    Split,
    StoreArgument,
    Whole,
    examples,
    local_path,
    split_names,
)
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.store.ledger import Page

app = typer.Typer()


@app.command(
    "import",
    epilog=examples(
        "import runs/mine --use-case gen --detector mine --split id --detections id.json",
        "import runs/mine --use-case gen --detector mine --split id-c1 --detections c1.json.gz --replace",
        page="own.md",
    ),
)
def import_command(
    store: StoreArgument,
    use_case: Annotated[
        str,
        typer.Option(
            "--use-case",
            metavar="NAME",
            help="shapes, gen or av, or a use case TOML file.",
            show_default=False,
            autocompletion=completion.use_cases,
        ),
    ],
    detector: Annotated[
        str, typer.Option("--detector", metavar="NAME", help="Name of the detector in the store.", show_default=False)
    ],
    split: Split,
    detections: Annotated[
        Path,
        typer.Option(
            "--detections",
            metavar="FILE",
            parser=local_path,
            help="A COCO result list, JSON or gzipped JSON: image_id, category_id, bbox, score, optional uncertainty.",
            show_default=False,
        ),
    ],
    data: Data = None,
    replace: Annotated[
        bool, typer.Option("--replace", metavar="", help="Replace the store's detections on this split.")
    ] = False,
    shard_images: Annotated[
        int,
        typer.Option(
            "--shard-images", metavar="N", parser=Whole(1), help="Images per shard.", rich_help_panel=ADVANCED
        ),
    ] = 4096,
    as_json: Json = False,
) -> None:
    """Import detections of any tool into a store.

    Either the whole file is imported, or nothing.
    """
    from saod_ray.config import UseCase
    from saod_ray.store.coco_import import import_results

    case = UseCase.load(use_case, data)
    before = _pages(store, detector, split)
    with terminal.progress(f"importing {detections.name}") as progress:
        page = import_results(store, case, detector, split, detections, replace, shard_images, progress)
    if page in before and not replace:
        typer.echo(f"{detections.name} is already imported as {detector} on {split}: nothing to do.", err=True)
    counts = {key: sum(getattr(shard, key) for shard in page.shards) for key in ("images", "detections", "empty")}
    if as_json:
        typer.echo(json.dumps({"detector": detector, "split": split, **counts, "shards": len(page.shards)}))
        return
    typer.echo(
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


@app.command(
    epilog=examples(
        "export runs/shapes --detector atss --split id --out atss.json",
        "export runs/shapes --detector atss --split ood/near --out near.json.gz",
        page="store.md",
    )
)
def export(
    store: StoreArgument,
    detector: Annotated[
        str,
        typer.Option("--detector", metavar="NAME", help="A detector of the store.", show_default=False),
    ],
    split: Split,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            metavar="FILE",
            parser=local_path,
            help="JSON file to write; gzipped if it ends in .gz.",
            show_default=False,
        ),
    ],
    as_json: Json = False,
) -> None:
    """Write a split's detections as a COCO result list."""
    from saod_ray.store.coco_export import export_results
    from saod_ray.store.store import Store

    with terminal.progress(f"exporting {detector} on {split}") as progress:
        count = export_results(Store.open(store), detector, split, out, progress)
    line = json.dumps({"detector": detector, "split": split, "detections": count, "file": str(out)})
    typer.echo(line if as_json else f"{detector} on {split}: {count:,} detections in {out}.")


@app.command(epilog=examples("verify runs/shapes", "verify runs/shapes --detectors atss --json", page="store.md"))
def verify(store: StoreArgument, detectors: Detectors = "all", as_json: Json = False) -> None:
    """Check that every shard is intact and every image accounted for.

    The exit code is 1 if there are problems.
    """
    from dataclasses import asdict

    from saod_ray.store.store import Store
    from saod_ray.store.verify import verify as verify_store

    opened = Store.open(store)
    names = opened.choose(split_names(detectors))
    with terminal.progress("verifying") as progress:
        verdict = verify_store(opened, names, progress)
    if as_json:
        typer.echo(json.dumps(asdict(verdict), indent=1))
    else:
        for note in verdict.notes:
            typer.echo(f"note: {note}", err=True)
        for problem in verdict.problems:
            typer.echo(f"{problem.where} {problem.what}; repair: {problem.repair}")
    if verdict.problems:
        count = len(verdict.problems)
        repair = "repair it with the command above" if count == 1 else "repair them with the commands above"
        raise SaodError(f"{store} has {count} problem{'s' * (count > 1)}: {repair}, then verify again.")
    if not as_json:
        typer.echo(
            f"{store} is intact: {verdict.shards:,} shards, {verdict.images:,} images, {verdict.detections:,} detections "
            f"of {', '.join(names)}."
        )
