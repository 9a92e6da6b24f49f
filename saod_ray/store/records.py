"""Small JSON records that know their own digest, so that a flipped byte is noticed when they are read."""

from __future__ import annotations

import hashlib
from typing import TypeVar

import msgspec

from saod_ray.errors import SaodError
from saod_ray.files import Folder


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is kept as a JSON file; `digest` is of all the rest."""

    format: int = 1
    digest: str = ""


R = TypeVar("R", bound=Record)


def write(folder: Folder, name: str, record: Record) -> None:
    """Commit a record."""
    sealed = msgspec.structs.replace(record, digest=_digest(record))
    folder.put(name, msgspec.json.format(msgspec.json.encode(sealed), indent=1) + b"\n")


def read(folder: Folder, name: str, kind: type[R], remedy: str) -> R:
    """A record; FileNotFoundError when it is absent, `remedy` says what to do when it is damaged."""
    data = folder.read(name)
    try:
        record = msgspec.json.decode(data, type=kind)
        whole = record.digest == _digest(record)
        reason = "its digest does not fit"
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        whole, reason = False, str(error)
    if not whole:
        raise SaodError(f"{folder.uri.rstrip('/')}/{name} is damaged ({reason}): {remedy}.")
    return record


def _digest(record: Record) -> str:
    return hashlib.sha256(msgspec.json.encode(msgspec.structs.replace(record, digest=""))).hexdigest()
