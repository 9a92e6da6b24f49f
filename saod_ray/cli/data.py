"""saod-ray data: the images of a use case."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import FOLLOW_LINKS, JSON, Commands, Number
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.store.building import Status


@click.group(cls=Commands)
def data() -> None:
    """The images of a use case: build, count and look at them."""


DATA = click.option("--data", "root", metavar="DIR", help="Where the raw data is, instead of the use case's root.")
USE_CASE = click.argument("use_case", metavar="USE_CASE")


@data.command()
@USE_CASE
@DATA
@click.option("--seed", type=int, default=0, show_default=True, help="shapes: what its scenes are drawn from.")
@click.option("--scale", type=Number(0, 1000, min_open=True), default=1.0, show_default=True,
              help="shapes: how many times the default number of scenes.")  # fmt: skip
@click.option("--unchecked", is_flag=True, help="Do not look whether every image is there and is an image.")
@JSON
def build(use_case: str, root: str | None, seed: int, scale: float, unchecked: bool, as_json: bool) -> None:
    """Turn raw downloads into manifests: gen, av, shapes (which is drawn here), or a use case TOML file.

    Images are never copied. The manifests lie in DIR/manifests; all of them are written, or none.
    """
    from saod_ray.config import UseCase
    from saod_ray.store import building

    case = UseCase.load(use_case, root)
    given = {click.get_current_context().get_parameter_source(name) for name in ("seed", "scale")}
    if case.made_by is None and given != {click.core.ParameterSource.DEFAULT}:
        raise SaodError(
            f"--seed and --scale are for use cases that are drawn here, not for '{case.name}': leave them out."
        )
    if case.made_by is not None:
        from saod_ray.data import shapes

        with terminal.progress("drawing scenes") as progress:
            shapes.make(case.root, shapes.Recipe(seed, scale), progress)
    with terminal.stages() as stage:
        remarks = building.build(case, stage, not unchecked)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    _show_status(building.status(case), as_json)


@data.command()
@USE_CASE
@DATA
@JSON
def status(use_case: str, root: str | None, as_json: bool) -> None:
    """Say what is there of a use case, where it is looked for, where to get it, and how sizes compare."""
    from saod_ray.config import UseCase
    from saod_ray.store import building

    _show_status(building.status(UseCase.load(use_case, root)), as_json)


@data.command()
@USE_CASE
@DATA
@click.option("--split", default="val", show_default=True,
              help="train, val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")  # fmt: skip
@click.option("--all-corruptions", is_flag=True, help="Show one ID image under all 15 corruptions instead.")
@click.option("--image", type=int, metavar="ID", help="Which image --all-corruptions shows; the first by default.")
@click.option("--images", type=click.IntRange(1, 600), default=24, show_default=True, help="How many images.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the corruptions.")
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
    """Write a contact sheet of a split with boxes and the corruption's name, to look at the data yourself."""
    import io

    from saod_ray.config import UseCase
    from saod_ray.data.images import ImageLimits
    from saod_ray.files import Folder, check_target
    from saod_ray.report.preview import Preview
    from saod_ray.store.store import check_split

    check_target(out)
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise SaodError(f"'{out}' is neither PNG nor JPEG: give --out a name that ends in .png or .jpg.")
    given = click.get_current_context().get_parameter_source
    if all_corruptions and given("split") != click.core.ParameterSource.DEFAULT:
        raise SaodError("--all-corruptions shows an image of id: leave --split out.")
    if image is not None and not all_corruptions:
        raise SaodError("--image is for --all-corruptions: add it, or leave --image out.")
    case = UseCase.load(use_case, root)
    check_split(split, ["train", *case.splits_of()], [subset.name for subset in case.splits.ood])
    with terminal.progress("drawing the sheet") as progress:
        shown = Preview(case, ImageLimits(follow_links=follow_links))
        sheet = (
            shown.all_corruptions(image, seed, progress)
            if all_corruptions
            else shown.sheet(split, images, seed, progress)
        )
    sink = io.BytesIO()
    sheet.save(sink, "PNG" if out.suffix.lower() == ".png" else "JPEG")
    Folder(str(out.parent)).put(out.name, sink.getvalue())
    click.echo(str(out))


def _show_status(found: Status, as_json: bool) -> None:
    from dataclasses import asdict

    from saod_ray.report.sources import remarks, source_table

    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    console = terminal.stdout()
    console.print(source_table(found))
    for line in remarks(found):
        console.print(line, soft_wrap=True)
