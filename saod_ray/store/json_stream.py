"""Reading a JSON list of objects of any size in blocks of bounded memory.

A byte scanner finds where elements end and turns the separators between them into newlines; what comes out are
blocks of newline-delimited JSON, which pyarrow's reader turns into columns.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numba import njit

from saod_ray.errors import SaodError

BLOCK = 8 << 20
LONGEST_ELEMENT = 64 << 20
# what may stand next outside of an element
BEGIN, FIRST, SEPARATOR, ELEMENT, END = range(5)


@njit(cache=True, nogil=True)
def scan(data: np.ndarray, start: int, state: np.ndarray) -> tuple[int, int]:
    """Walk over bytes in place; returns (end of the last whole element, position of a mistake or -1).

    `state` is depth, in a string, after a backslash, what may stand next; it carries over to the next call.
    """
    depth, in_string, escaped, expected = state
    whole, mistake = 0, -1
    for i in range(start, data.size):
        c = data[i]
        if in_string:
            if escaped:
                escaped = 0
            elif c == 92:  # backslash
                escaped = 1
            elif c == 34:  # quote
                in_string = 0
            continue
        if c == 32 or c == 9 or c == 10 or c == 13:
            data[i] = 32
        elif depth >= 2:
            if c == 34:
                in_string = 1
            elif c == 123 or c == 91:  # { [
                depth += 1
            elif c == 125 or c == 93:  # } ]
                depth -= 1
                if depth == 1:
                    expected = SEPARATOR
                    whole = i + 1
        elif c == 123 and (expected == FIRST or expected == ELEMENT):
            depth = 2
        elif c == 44 and expected == SEPARATOR:  # comma
            data[i] = 10
            expected = ELEMENT
        elif c == 93 and (expected == SEPARATOR or expected == FIRST):
            data[i] = 10
            depth, expected = 0, END
        elif c == 91 and expected == BEGIN:
            data[i] = 32
            depth, expected = 1, FIRST
        else:
            mistake = i
            break
    state[0], state[1], state[2], state[3] = depth, in_string, escaped, expected
    return whole, mistake


class JsonList:
    """The elements of a JSON list in a file, as newline-delimited blocks; `sha256` is the file's once all are read."""

    def __init__(self, path: Path, progress: Callable[[int, int], None] | None = None) -> None:
        self.path = path
        self.bytes = path.stat().st_size
        self._progress = progress or (lambda done, total: None)
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """The digest of the file's bytes."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """Blocks of whole elements, one a line."""
        state = np.array([0, 0, 0, BEGIN], np.int64)
        rest, consumed = b"", 0
        with self.path.open("rb") as file:
            for piece in self._unpacked(file):
                if not consumed and not rest:
                    piece = piece.removeprefix(b"\xef\xbb\xbf")  # a byte order mark
                data = bytearray(rest + piece)
                whole, mistake = scan(np.frombuffer(data, np.uint8), len(rest), state)
                if mistake >= 0:
                    raise self._malformed(consumed + mistake, state)
                if whole:
                    yield bytes(data[:whole])
                rest, consumed = bytes(data[whole:]), consumed + whole
                if len(rest) > LONGEST_ELEMENT:
                    raise SaodError(f"{self.path} is not a list of detections: one element is over 64 MB long.")
        if state[3] != END:
            raise SaodError(
                f"{self.path} ends in the middle after {consumed + len(rest):,} bytes: it was cut off, fetch or write it again."
            )

    def _unpacked(self, file: BinaryIO) -> Iterator[bytes]:
        packed = self.path.name.lower().endswith(".gz")
        raw: Any = _Counted(file, self._digest)
        stream = gzip.GzipFile(fileobj=raw) if packed else raw
        try:
            while piece := stream.read(BLOCK):
                self._progress(file.tell(), self.bytes)
                yield piece
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SaodError(f"{self.path} is not a whole gzip file ({error}): fetch or write it again.") from None

    def _malformed(self, position: int, state: np.ndarray) -> SaodError:
        if state[3] == BEGIN:
            return SaodError(f"{self.path} is not a JSON list of detections: it must begin with '['.")
        return SaodError(
            f"{self.path} is not a JSON list of detections: byte {position:,} is a mistake; mend or write it again."
        )


class _Counted:
    """A file that is hashed while it is read."""

    def __init__(self, file: BinaryIO, digest: hashlib._Hash) -> None:
        self._file = file
        self._digest = digest

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        self._digest.update(data)
        return data
