"""What scoring need not compute twice: entries keyed by content, safe to delete, never trusted when damaged.

An entry holds its own key, so that one that is copied under another key counts as absent.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from typing import Any

import msgspec
import numpy as np

from saod_ray.errors import SaodError
from saod_ray.files import Folder


def cache_key(*parts: object) -> str:
    """The key of an entry: a digest of everything that its content depends on.

    Parts are compared as text. They name the kind of entry, the format numbers of the code that computes it, the
    settings, and the digests of the ground truth and the shards (`Store.content_digests`).
    """
    name = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=16).hexdigest()
    return f"{name[:2]}/{name}"


class Cache:
    """The folder `cache` of a store."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def arrays(self, key: str) -> dict[str, np.ndarray] | None:
        """Arrays, or None when they are absent, damaged or another key's."""
        data = self._get(f"cache/{key}.arrays")
        if not data or len(data) < 12 or int.from_bytes(data[:4], "little") != zlib.crc32(memoryview(data)[4:]):
            return None
        try:
            return _decoded(bytearray(data), key)  # arrays on it can be written to, as the kernels expect of all arrays
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError, OverflowError):
            return None

    def put_arrays(self, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep arrays: a checksum, a header with the key and what they are, and their bytes."""
        kinds = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
        header = msgspec.json.encode([key, kinds])
        contents = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
        parts: list[Any] = [len(header).to_bytes(8, "little"), header, *contents]
        check = 0
        for part in parts:
            check = zlib.crc32(part, check)
        self._put(f"cache/{key}.arrays", b"".join([check.to_bytes(4, "little"), *parts]))

    def value(self, key: str) -> Any | None:
        """A JSON value, or None when it is absent, damaged or another key's."""
        digest, _, text = (self._get(f"cache/{key}.json") or b"").partition(b"\n")
        return msgspec.json.decode(text) if text and digest == _digest(key, text) else None

    def put_value(self, key: str, value: Any) -> None:
        """Keep a JSON value."""
        text = msgspec.json.encode(value)
        self._put(f"cache/{key}.json", _digest(key, text) + b"\n" + text)

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


def _decoded(buffer: bytearray, key: str) -> dict[str, np.ndarray] | None:
    """The arrays of an entry's bytes; None when they are another key's, ValueError when they are not what they say."""
    at = 12 + int.from_bytes(buffer[4:12], "little")
    own_key, kinds = msgspec.json.decode(buffer[12:at], type=tuple[str, list[tuple[str, str, list[int]]]])
    if own_key != key:
        return None
    arrays = {}
    for name, kind, shape in kinds:
        if any(side < 0 for side in shape):
            raise ValueError("a shape is negative")
        arrays[name] = np.frombuffer(buffer, np.dtype(kind), math.prod(shape), at).reshape(shape)
        at += arrays[name].nbytes
    return arrays


def _digest(key: str, text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16, key=key.encode()[:64]).hexdigest().encode()
