"""The ledger: which shards exist, what they contain and which inputs they were computed from.

It is a folder of small JSON pages, `ledger/DETECTOR/SPLIT/UNIT.json`, each written after the shards it lists. A shard that
no page lists does not exist. A page is replaced in one rename, so that a unit changes atomically.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import PurePath
from typing import Annotated

import msgspec

from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.store import records
from saod_ray.store.records import Record
from saod_ray.store.units import RUN, Unit, is_of_run

# a shard's name is a BLAKE2b digest, so that it can never be a path
ShardName = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]+\Z", max_length=128)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class Shard(msgspec.Struct, frozen=True):
    """A committed shard. `footer` is the digest of its Parquet footer, which page checksums do not cover."""

    name: ShardName
    sha256: Digest
    footer: Digest
    bytes: Count
    images: Count
    detections: Count
    empty: Count
    failed: Count


class Origin(msgspec.Struct, frozen=True):
    """The inputs of a page's shards."""

    kind: str  # run or import
    file: str  # name of the imported file, or fingerprint of the detector
    sha256: str  # of the imported file, or key of the unit


class Page(Record, frozen=True):
    """The shards of one unit of work."""

    detector: str
    split: str
    unit: str
    origin: Origin
    shards: list[Shard]


def page_name(detector: str, split: str, unit: str) -> str:
    """The path of a page, relative to the store."""
    return f"ledger/{detector}/{split}/{unit}.json"


def write_page(folder: Folder, page: Page) -> None:
    """Write a page atomically. From then on its shards exist."""
    records.write(folder, page_name(page.detector, page.split, page.unit), page)


def pages(folder: Folder, detector: str, split: str) -> list[Page]:
    """The pages of a detector's split, by name. They are read again if another run merges shards meanwhile.

    All pages are read here. SaodError for a page that is damaged or does not belong to its path.
    """
    base = f"ledger/{detector}/{split}"
    while True:
        names = [name for name in folder.list(base) if name.endswith(".json")]
        with suppress(FileNotFoundError):
            listed = [_read_page(folder, detector, split, name.removesuffix(".json")) for name in names]
            _refuse_repeated_shards(folder, base, listed)
            return listed


def _read_page(folder: Folder, detector: str, split: str, unit: str) -> Page:
    """Read a page and check that it agrees with its path and with itself."""
    name = page_name(detector, split, unit)
    page = records.read(folder, name, Page, _remedy(name))
    fault = _fault(page, detector, split, unit)
    if fault:
        raise SaodError(f"{folder.display_path(name)} {fault}: {_remedy(name)}.")
    return page


def _fault(page: Page, detector: str, split: str, unit: str) -> str | None:
    """What is impossible in a page, or None."""
    if (page.detector, page.split, page.unit) != (detector, split, unit):
        return f"is a copy of the page of '{page.detector}' on {page.split} ({page.unit})"
    if any(shard.empty + shard.failed > shard.images for shard in page.shards):
        return "counts more empty and failed images than a shard has"
    images = sum(shard.images for shard in page.shards)
    if page.origin.kind == RUN and is_of_run(unit) and images != Unit.from_name(split, unit).image_count:
        return f"counts {images:,} images where its name says {Unit.from_name(split, unit).image_count:,}"
    return None


def _refuse_repeated_shards(folder: Folder, base: str, listed: list[Page]) -> None:
    """Raise SaodError for a shard that is listed twice: its images would count twice."""
    counts = Counter(shard.name for page in listed for shard in page.shards)
    for page in listed:
        repeated = [shard.name for shard in page.shards if counts[shard.name] > 1]
        if repeated:
            name = f"{base}/{page.unit}.json"
            raise SaodError(
                f"{folder.display_path(name)} lists the shard {repeated[0]}, which is listed more than once: {_remedy(name)}."
            )


def find_page(folder: Folder, detector: str, split: str, unit: str) -> Page | None:
    """The page of one unit; None if there is none."""
    try:
        return _read_page(folder, detector, split, unit)
    except FileNotFoundError:
        return None


def _remedy(name: str) -> str:
    """What to do about a damaged page. A run writes its own pages again."""
    again = "run the same command" if is_of_run(PurePath(name).stem) else "import that split"
    return f"delete it and {again} again"
