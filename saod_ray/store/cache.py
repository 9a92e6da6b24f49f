"""What scoring need not compute twice: entries keyed by content, safe to delete, never trusted when damaged."""

from __future__ import annotations

import hashlib
import io
from typing import Any

import msgspec
import numpy as np

from saod_ray.errors import SaodError
from saod_ray.store.files import Folder


def content_key(*parts: str) -> str:
    """A key that is a function of what went in."""
    name = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return f"{name[:2]}/{name}"


class Cache:
    """The folder `cache` of a store."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def arrays(self, key: str) -> dict[str, np.ndarray] | None:
        """Arrays, or None when they are absent or damaged (numpy's archive carries checksums)."""
        data = self._get(f"cache/{key}.npz")
        try:
            return dict(np.load(io.BytesIO(data), allow_pickle=False)) if data else None
        except Exception:  # zipfile and numpy raise many kinds on damaged bytes, and all mean the same here
            return None

    def put_arrays(self, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep arrays."""
        sink = io.BytesIO()
        np.savez(sink, **arrays)  # type: ignore[arg-type]
        self._put(f"cache/{key}.npz", sink.getbuffer())

    def value(self, key: str) -> Any | None:
        """A JSON value, or None when it is absent or damaged."""
        digest, _, text = (self._get(f"cache/{key}.json") or b"").partition(b"\n")
        return msgspec.json.decode(text) if text and digest == _digest(text) else None

    def put_value(self, key: str, value: Any) -> None:
        """Keep a JSON value."""
        text = msgspec.json.encode(value)
        self._put(f"cache/{key}.json", _digest(text) + b"\n" + text)

    def _get(self, name: str) -> bytes | None:
        try:
            return self._folder.read(name)
        except (FileNotFoundError, SaodError):
            return None

    def _put(self, name: str, data: bytes | memoryview) -> None:
        """A cache that cannot be written costs time, not the result; losing an entry is no loss."""
        try:
            self._folder.put(name, data, durable=False)
        except (SaodError, OSError):  # the folder may be deleted at any time
            return


def _digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()
