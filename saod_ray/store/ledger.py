"""The ledger: which shards exist, what they hold and what they were made from.

It is a folder of small JSON pages, `ledger/DETECTOR/SPLIT/UNIT.json`, each committed after the shards it lists.
A shard that no page lists does not exist. A page is replaced in one rename, so a unit changes all at once.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import PurePath

import msgspec

from saod_ray.files import Folder
from saod_ray.store import records
from saod_ray.store.records import Record
from saod_ray.store.units import is_of_run


class Shard(msgspec.Struct, frozen=True):
    """A committed shard; `footer` is a digest of its Parquet footer, which page checksums do not cover."""

    name: str
    sha256: str
    footer: str
    bytes: int
    images: int
    detections: int
    empty: int
    failed: int


class Origin(msgspec.Struct, frozen=True):
    """What a page's shards were made from."""

    kind: str
    file: str
    sha256: str


class Page(Record, frozen=True):
    """The shards of one unit of work."""

    detector: str
    split: str
    unit: str
    origin: Origin
    shards: list[Shard]


def page_name(detector: str, split: str, unit: str) -> str:
    """Where a page lies."""
    return f"ledger/{detector}/{split}/{unit}.json"


def write_page(folder: Folder, page: Page) -> None:
    """Commit a page: from here on its shards exist."""
    records.write(folder, page_name(page.detector, page.split, page.unit), page)


def pages(folder: Folder, detector: str, split: str) -> list[Page]:
    """The pages of a detector's split, by name; read again when another run puts shards together meanwhile."""
    base = f"ledger/{detector}/{split}"
    while True:
        names = [f"{base}/{name}" for name in folder.list(base) if name.endswith(".json")]
        with suppress(FileNotFoundError):
            return [records.read(folder, name, Page, _remedy(name)) for name in names]


def find_page(folder: Folder, detector: str, split: str, unit: str) -> Page | None:
    """The page of one unit, where there is one."""
    name = page_name(detector, split, unit)
    try:
        return records.read(folder, name, Page, _remedy(name))
    except FileNotFoundError:
        return None


def _remedy(name: str) -> str:
    """What to do about a damaged page: a run makes its own again."""
    again = "run the same command" if is_of_run(PurePath(name).stem) else "import that split"
    return f"delete it and {again} again"
