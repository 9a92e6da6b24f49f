"""Small JSON records that hold their own digest, so that a flipped byte is detected when they are read."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from saod_ray.errors import SaodError
from saod_ray.files import Folder


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is stored as a JSON file. `digest` covers all other fields."""

    format: int = 1
    digest: str = ""


R = TypeVar("R", bound=Record)


def write(folder: Folder, name: str, record: Record) -> None:
    """Write a record atomically, with its digest."""
    sealed = msgspec.structs.replace(record, digest=_digest(record))
    folder.put(name, msgspec.json.format(msgspec.json.encode(sealed), indent=1) + b"\n")


def read(folder: Folder, name: str, kind: type[R], remedy: str) -> R:
    """Read a record of type `kind`.

    Raises FileNotFoundError if it is absent, and SaodError with `remedy` if it is damaged.
    """
    data = folder.read(name)
    try:
        record = msgspec.json.decode(data, type=kind)
        is_intact = record.digest == _digest(record)
        reason = "its digest does not match"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        is_intact, reason = False, str(error)
    if not is_intact:
        raise SaodError(f"{folder.display_path(name)} is damaged ({reason}): {remedy}.")
    return record


def _digest(record: Record) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(record, digest=""))).hexdigest()
