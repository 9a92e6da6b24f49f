"""The ledger: which shards exist, what they hold and what they were made from.

It is a folder of small JSON pages, `ledger/DETECTOR/SPLIT/UNIT.json`, each committed after the shards it lists.
A shard that no page lists does not exist. A page is replaced in one rename, so a unit changes all at once.
"""

from __future__ import annotations

import msgspec

from saod_ray.errors import SaodError
from saod_ray.store.files import Folder


class Shard(msgspec.Struct, frozen=True):
    """A committed shard."""

    name: str
    sha256: str
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


class Page(msgspec.Struct, frozen=True):
    """The shards of one unit of work."""

    detector: str
    split: str
    unit: str
    origin: Origin
    shards: list[Shard]
    format: int = 1


def page_name(detector: str, split: str, unit: str) -> str:
    """Where a page lies."""
    return f"ledger/{detector}/{split}/{unit}.json"


def write_page(folder: Folder, page: Page) -> None:
    """Commit a page: from here on its shards exist."""
    text = msgspec.json.format(msgspec.json.encode(page), indent=1)
    folder.put(page_name(page.detector, page.split, page.unit), text + b"\n")


def read_page(folder: Folder, name: str) -> Page | None:
    """The page, or None when there is none."""
    try:
        return msgspec.json.decode(folder.read(name), type=Page)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        place = f"{folder.uri.rstrip('/')}/{name}"
        raise SaodError(
            f"The ledger page {place} is damaged ({error}): delete it and import that split again."
        ) from None


def pages(folder: Folder, detector: str, split: str) -> list[Page]:
    """The pages of a detector's split, by name."""
    base = f"ledger/{detector}/{split}"
    found = (read_page(folder, f"{base}/{name}") for name in folder.list(base) if name.endswith(".json"))
    return [page for page in found if page is not None]
