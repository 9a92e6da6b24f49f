"""`saod-ray data`: build, count and preview the images of a use case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import WHERE, FollowLinks, Json, Number, Whole, examples, local_path
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.store.build import UseCaseStatus

app = typer.Typer()
data = typer.Typer(no_args_is_help=True, help="Build, count and preview the images of a use case.")
app.add_typer(data, name="data")

UseCaseArgument = Annotated[
    str,
    typer.Argument(
        metavar="USE_CASE",
        help="shapes, gen or av, or a use case TOML file.",
        show_default=False,
        autocompletion=completion.use_cases,
    ),
]
Root = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder of the raw data.",
        show_default="the use case's own root",
        rich_help_panel=WHERE,
    ),
]


@data.command(epilog=examples("data build shapes", "data build gen --data ~/data", page="data.md"))
def build(
    use_case: UseCaseArgument,
    root: Root = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            parser=Whole(-(2**63)),
            help="Random seed of the scenes, for shapes.",
            show_default="0",
        ),
    ] = None,
    scale: Annotated[
        float | None,
        typer.Option(
            "--scale",
            metavar="FACTOR",
            parser=Number(0, 1000, is_open=True),
            help="Multiple of the default number of scenes, for shapes.",
            show_default="1",
        ),
    ] = None,
    unchecked: Annotated[
        bool, typer.Option("--unchecked", metavar="", help="Do not check that every image exists and is an image.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Turn raw downloads into manifests; the images of shapes are drawn.

    Images are never copied. The manifests are in DIR/manifests; all of them are written, or none.
    """
    from saod_ray.config import UseCase
    from saod_ray.store.build import build_manifests, use_case_status

    case = UseCase.load(use_case, root)
    if case.made_by is None and (seed, scale) != (None, None):
        raise SaodError(f"--seed and --scale are for use cases that are drawn, not for '{case.name}': leave them out.")
    if case.made_by is not None:
        from saod_ray.data import shapes

        with terminal.progress("drawing scenes") as progress:
            shapes.make(case.root, shapes.Recipe(seed or 0, 1.0 if scale is None else scale), progress)
    with terminal.stages() as stage:
        remarks = build_manifests(case, stage, not unchecked)
    for remark in remarks:
        typer.echo(f"note: {remark}", err=True)
    _show_status(use_case_status(case), as_json)


@data.command(epilog=examples("data status gen", "data status shapes --json", page="data.md"))
def status(use_case: UseCaseArgument, root: Root = None, as_json: Json = False) -> None:
    """Show which data of a use case exists, where it is expected, where to get it, and how sizes compare."""
    from saod_ray.config import UseCase
    from saod_ray.store.build import use_case_status

    _show_status(use_case_status(UseCase.load(use_case, root)), as_json)


@data.command(
    epilog=examples(
        "data preview shapes --split id-c5 --out preview.png",
        "data preview shapes --all-corruptions --out corruptions.png",
        page="data.md",
    )
)
def preview(
    use_case: UseCaseArgument,
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FILE", parser=local_path, help="PNG or JPEG file to write.", show_default=False),
    ],
    root: Root = None,
    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="SPLIT",
            help="train, val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.",
            show_default="val",
            autocompletion=completion.splits,
        ),
    ] = None,
    all_corruptions: Annotated[
        bool, typer.Option("--all-corruptions", metavar="", help="Show one ID image under all 15 corruptions instead.")
    ] = False,
    image: Annotated[
        int | None,
        typer.Option(
            "--image",
            metavar="ID",
            parser=Whole(0),
            help="Image of --all-corruptions.",
            show_default="the first",
        ),
    ] = None,
    images: Annotated[int, typer.Option("--images", metavar="N", parser=Whole(1, 600), help="Number of images.")] = 24,
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", parser=Whole(-(2**63)), help="Random seed of the corruptions.")
    ] = 0,
    follow_links: FollowLinks = False,
) -> None:
    """Write a contact sheet of a split, with boxes and the names of corruptions."""
    import io

    from saod_ray.config import UseCase
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import Folder, check_target
    from saod_ray.report.preview import Preview
    from saod_ray.store.store import check_split

    check_target(out)
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise SaodError(f"'{out}' is neither PNG nor JPEG: give --out a name that ends in .png or .jpg.")
    if all_corruptions and split is not None:
        raise SaodError("--all-corruptions shows an image of id: leave --split out.")
    if image is not None and not all_corruptions:
        raise SaodError("--image is for --all-corruptions: add it, or leave --image out.")
    case = UseCase.load(use_case, root)
    split = split or "val"
    check_split(split, ["train", *case.split_names()], [subset.name for subset in case.splits.ood])
    with terminal.progress("drawing the sheet") as progress:
        contact_sheet = Preview(case, ImageLimits(follow_links=follow_links))
        if all_corruptions:
            sheet = contact_sheet.all_corruptions(image, seed, progress)
        else:
            sheet = contact_sheet.sheet(split, images, seed, progress)
    sink = io.BytesIO()
    sheet.save(sink, "PNG" if out.suffix.lower() == ".png" else "JPEG")
    Folder(str(out.parent)).put(out.name, sink.getvalue())
    typer.echo(str(out))


def _show_status(data_status: UseCaseStatus, as_json: bool) -> None:
    from dataclasses import asdict

    from saod_ray.report.sources import remarks, source_table

    if as_json:
        typer.echo(json.dumps(asdict(data_status), indent=1))
        return
    console = terminal.stdout()
    console.print(source_table(data_status))
    for line in remarks(data_status):
        console.print(line, soft_wrap=True)
