"""What scoring need not compute twice: entries keyed by content, safe to delete, never trusted when damaged."""

from __future__ import annotations

import hashlib
import math
import zlib
from typing import Any

import msgspec
import numpy as np

from saod_ray.errors import SaodError
from saod_ray.files import Folder


def content_key(*parts: str) -> str:
    """A key that is a function of what went in."""
    name = hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest()
    return f"{name[:2]}/{name}"


class Cache:
    """The folder `cache` of a store."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def arrays(self, key: str) -> dict[str, np.ndarray] | None:
        """Arrays, or None when they are absent or damaged."""
        data = self._get(f"cache/{key}.arrays")
        if not data or len(data) < 12 or int.from_bytes(data[:4], "little") != zlib.crc32(memoryview(data)[4:]):
            return None
        buffer = bytearray(data)  # arrays on it can be written to, as the kernels expect of all arrays
        length = int.from_bytes(buffer[4:12], "little")
        arrays, at = {}, 12 + length
        for name, kind, shape in msgspec.json.decode(buffer[12:at]):
            dtype = np.dtype(kind)
            arrays[name] = np.frombuffer(buffer, dtype, math.prod(shape), at).reshape(shape)
            at += arrays[name].nbytes
        return arrays

    def put_arrays(self, key: str, arrays: dict[str, np.ndarray]) -> None:
        """Keep arrays: a checksum, a header that says what they are, and their bytes."""
        header = msgspec.json.encode([(name, array.dtype.str, array.shape) for name, array in arrays.items()])
        contents = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays.values()]
        parts: list[Any] = [len(header).to_bytes(8, "little"), header, *contents]
        check = 0
        for part in parts:
            check = zlib.crc32(part, check)
        self._put(f"cache/{key}.arrays", b"".join([check.to_bytes(4, "little"), *parts]))

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
