"""Cached intermediate results of scoring, keyed by content. The cache is safe to delete.

An entry that is damaged counts as absent. It holds its own key, so that a copy under another key is absent, too.
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
        """Cached arrays by name; None if the entry is absent, damaged or of another key."""
        data = self._get(f"cache/{key}.arrays")
        if not data or len(data) < 12 or int.from_bytes(data[:4], "little") != zlib.crc32(memoryview(data)[4:]):
            return None
        try:
            return _decode_arrays(bytearray(data), key)  # writable, as the compiled kernels expect
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError, ValueError, OverflowError):
            return None

    def put_arrays(self, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Cache arrays as a checksum, a header (key, names, dtypes, shapes) and their bytes."""
        kinds = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
        header = msgspec.json.encode([key, kinds])
        contents = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
        parts: list[Any] = [len(header).to_bytes(8, "little"), header, *contents]
        check = 0
        for part in parts:
            check = zlib.crc32(part, check)
        self._put(f"cache/{key}.arrays", b"".join([check.to_bytes(4, "little"), *parts]))

    def value(self, key: str) -> Any | None:
        """A cached JSON value; None if the entry is absent, damaged or of another key."""
        digest, _, text = (self._get(f"cache/{key}.json") or b"").partition(b"\n")
        return msgspec.json.decode(text) if text and digest == _digest(key, text) else None

    def put_value(self, key: str, value: Any) -> None:
        """Cache a JSON value."""
        text = msgspec.json.encode(value)
        self._put(f"cache/{key}.json", _digest(key, text) + b"\n" + text)

    def _get(self, name: str) -> bytes | None:
        try:
            return self._folder.read(name)
        except (FileNotFoundError, SaodError):
            return None

    def _put(self, name: str, data: bytes | memoryview) -> None:
        """Write an entry. Failures are ignored: the value is computed again next time."""
        try:
            self._folder.put(name, data, durable=False)
        except (SaodError, OSError):  # the folder can be deleted at any time
            return


def _decode_arrays(buffer: bytearray, key: str) -> dict[str, np.ndarray] | None:
    """Arrays from the bytes of an entry; None if it has another key, ValueError if it is inconsistent."""
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
