"""`saod-ray data`: build, count and preview the images of a use case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import FOLLOW_LINKS, JSON, FiniteFloat, OrderedGroup
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.store.build import UseCaseStatus


@click.group(cls=OrderedGroup)
def data() -> None:
    """Build, count and preview the images of a use case."""


DATA = click.option("--data", "root", metavar="DIR", help="Folder of the raw data; the use case's own root by default.")
USE_CASE = click.argument("use_case", metavar="USE_CASE")


@data.command()
@USE_CASE
@DATA
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed of the scenes, for shapes.")
@click.option("--scale", type=FiniteFloat(0, 1000, min_open=True), default=1.0, show_default=True,
              help="Multiple of the default number of scenes, for shapes.")  # fmt: skip
@click.option("--unchecked", is_flag=True, help="Do not check that every image exists and is an image.")
@JSON
def build(use_case: str, root: str | None, seed: int, scale: float, unchecked: bool, as_json: bool) -> None:
    """Turn raw downloads into manifests: gen, av, shapes (whose images are drawn), or a use case TOML file.

    Images are never copied. The manifests are in DIR/manifests; all of them are written, or none.
    """
    from saod_ray.config import UseCase
    from saod_ray.store.build import build_manifests, use_case_status

    case = UseCase.load(use_case, root)
    if case.made_by is None and not (_is_default("seed") and _is_default("scale")):
        raise SaodError(f"--seed and --scale are for use cases that are drawn, not for '{case.name}': leave them out.")
    if case.made_by is not None:
        from saod_ray.data import shapes

        with terminal.progress("drawing scenes") as progress:
            shapes.make(case.root, shapes.Recipe(seed, scale), progress)
    with terminal.stages() as stage:
        remarks = build_manifests(case, stage, not unchecked)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    _show_status(use_case_status(case), as_json)


@data.command()
@USE_CASE
@DATA
@JSON
def status(use_case: str, root: str | None, as_json: bool) -> None:
    """Show which data of a use case exists, where it is expected, where to get it, and how sizes compare."""
    from saod_ray.config import UseCase
    from saod_ray.store.build import use_case_status

    _show_status(use_case_status(UseCase.load(use_case, root)), as_json)


@data.command()
@USE_CASE
@DATA
@click.option("--split", default="val", show_default=True,
              help="train, val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")  # fmt: skip
@click.option("--all-corruptions", is_flag=True, help="Show one ID image under all 15 corruptions instead.")
@click.option("--image", type=int, metavar="ID", help="Image of --all-corruptions; the first by default.")
@click.option("--images", type=click.IntRange(1, 600), default=24, show_default=True, help="Number of images.")
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed for image corruptions.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.png")
@FOLLOW_LINKS
def preview(
    use_case: str,
    root: str | None,
    split: str,
    all_corruptions: bool,
    image: int | None,
    images: int,
    seed: int,
    out: Path,
    follow_links: bool,
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
    if all_corruptions and not _is_default("split"):
        raise SaodError("--all-corruptions shows an image of id: leave --split out.")
    if image is not None and not all_corruptions:
        raise SaodError("--image is for --all-corruptions: add it, or leave --image out.")
    case = UseCase.load(use_case, root)
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
    click.echo(str(out))


def _is_default(option: str) -> bool:
    """Whether an option of the current command was left out."""
    return click.get_current_context().get_parameter_source(option) == click.core.ParameterSource.DEFAULT


def _show_status(data_status: UseCaseStatus, as_json: bool) -> None:
    from dataclasses import asdict

    from saod_ray.report.sources import remarks, source_table

    if as_json:
        click.echo(json.dumps(asdict(data_status), indent=1))
        return
    console = terminal.stdout()
    console.print(source_table(data_status))
    for line in remarks(data_status):
        console.print(line, soft_wrap=True)
