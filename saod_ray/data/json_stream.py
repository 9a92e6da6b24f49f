"""Reads JSON files of any size in bounded memory. A file is a list of objects, or an object of such lists.

A byte scanner finds where elements end and replaces the commas between them by newlines. The result is blocks of
newline-delimited JSON, which a parser then decodes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from saod_ray.errors import SaodError
from saod_ray.files import Folder

BLOCK = 8 << 20  # bytes read at a time
MAX_ELEMENT = 64 << 20  # bytes
# what the scanner expects outside of an element
BEGIN, FIRST, SEPARATOR, ELEMENT, END = range(5)
_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


@njit(cache=True, nogil=True)
def scan(data: np.ndarray, start: int, state: np.ndarray) -> tuple[int, int, int]:
    """Scan a list from `start`, replacing separators in `data` (uint8) in place.

    Returns the end of the last complete element, the position at which scanning stopped, and the position of a syntax
    error or -1. `state` is (nesting depth, inside a string, after a backslash, what is expected next), int64; it is
    updated for the next call.
    """
    depth, in_string, escaped, expected = state
    complete, mistake = 0, -1
    i = start
    while i < data.size and expected != END:
        c = data[i]
        if in_string:
            if escaped:
                escaped = 0
            elif c == 92:  # backslash
                escaped = 1
            elif c == 34:  # quote
                in_string = 0
        elif c == 32 or c == 9 or c == 10 or c == 13:
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
                    complete = i + 1
        elif c == 123 and (expected == FIRST or expected == ELEMENT):
            depth = 2
        elif c == 44 and expected == SEPARATOR:  # comma
            data[i] = 10
            expected = ELEMENT
        elif c == 93 and (expected == SEPARATOR or expected == FIRST):
            depth, expected = 0, END
        elif c == 91 and expected == BEGIN:
            data[i] = 32
            depth, expected = 1, FIRST
        else:
            mistake = i
            break
        i += 1
    state[0], state[1], state[2], state[3] = depth, in_string, escaped, expected
    return complete, i, mistake


@njit(cache=True, nogil=True)
def skip(data: np.ndarray, start: int, state: np.ndarray) -> tuple[int, bool]:
    """Scan over a value of any type. Returns where scanning stopped and whether the value ended there.

    `state` is that of `scan`.
    """
    depth, in_string, escaped, _ = state
    i = start
    while i < data.size:
        c = data[i]
        if in_string:
            if escaped:
                escaped = 0
            elif c == 92:
                escaped = 1
            elif c == 34:
                in_string = 0
        elif depth == 0 and (c == 44 or c == 125):  # the comma or } after the value
            return i, True
        elif c == 34:
            in_string = 1
        elif c == 123 or c == 91:
            depth += 1
        elif c == 125 or c == 93:
            depth -= 1
        i += 1
    state[0], state[1], state[2] = depth, in_string, escaped
    return i, False


class JsonFile:
    """A JSON file that is read once, from beginning to end; gzip if its name ends in .gz.

    `description` says in errors what the file should be, and `progress` is called with the bytes read and the file's
    size. All methods raise SaodError if the file is malformed or incomplete.
    """

    def __init__(self, file: Any, size: int, name: str, description: str, progress: Callable[[int, int], None]) -> None:
        self.name = name
        self._description = description
        self._digest = hashlib.sha256()
        self._pieces = self._decompress(_HashingReader(file, self._digest), size, progress)
        self._buffer = bytearray()
        self._consumed = 0  # bytes before the buffer

    @classmethod
    @contextmanager
    def from_path(
        cls, path: Path, description: str, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[JsonFile]:
        """Open a file on disk."""
        with path.open("rb") as file:
            yield cls(file, path.stat().st_size, str(path), description, progress or _ignore_progress)

    @classmethod
    @contextmanager
    def from_folder(
        cls, folder: Folder, name: str, description: str, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[JsonFile]:
        """Open a file below a folder or URI."""
        with folder.stream(name) as (file, size):
            yield cls(file, size, folder.display_path(name), description, progress or _ignore_progress)

    @property
    def sha256(self) -> str:
        """The digest of the bytes read so far: of the whole file after the last block."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """The elements of a file that is a list of objects, in blocks with one element per line."""
        if self._peek() not in (b"[", b""):
            raise SaodError(f"{self.name} is not {self._description}: it must begin with '['; check the file.")
        yield from self._list()
        self._expect_end()

    def lists(self, keys: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The lists with these keys in a file that is an object, as (key, block), in the file's order."""
        self._expect(b"{")
        first = True
        while self._peek() != b"}":
            if not first:
                self._expect(b",")
                self._peek()
            key, first = self._key(), False
            self._expect(b":")
            if key in keys:
                self._peek()
                yield key, b""  # so that an empty list is reported too
                for block in self._list():
                    yield key, block
            else:
                self._skip()
        self._expect(b"}")
        self._expect_end()

    def _list(self) -> Iterator[bytes]:
        state = np.array([0, 0, 0, BEGIN], np.int64)
        at = 0
        while True:
            complete, at, mistake = scan(np.frombuffer(self._buffer, np.uint8), at, state)
            if mistake >= 0:
                raise self._malformed(mistake)
            if complete:
                yield bytes(self._buffer[:complete])
            self._drop(complete)
            at -= complete
            if state[3] == END:
                self._drop(at)
                return
            if len(self._buffer) > MAX_ELEMENT:
                raise SaodError(
                    f"{self.name} is not {self._description}: one element is over 64 MB long; check the file."
                )
            self._fill_or_fail()

    def _skip(self) -> None:
        state = np.zeros(4, np.int64)
        is_over = False
        while not is_over:
            at, is_over = skip(np.frombuffer(self._buffer, np.uint8), 0, state)
            self._drop(at)
            if not is_over:
                self._fill_or_fail()

    def _key(self) -> str:
        while not (match := _KEY.match(self._buffer)):
            if not self._buffer.startswith(b'"') or len(self._buffer) > MAX_ELEMENT:
                raise self._malformed(0)
            self._fill_or_fail()
        try:
            key = json.loads(match[0])
        except ValueError:
            raise self._malformed(0) from None
        length = match.end()
        del match  # while it exists, the buffer cannot be resized
        self._drop(length)
        return str(key)

    def _expect(self, token: bytes) -> None:
        byte = self._peek()
        if not byte:
            raise self._truncated()
        if byte != token:
            raise self._malformed(0)
        self._drop(1)

    def _peek(self) -> bytes:
        """The next byte that is not white space, which the buffer then begins with; empty at the end of the file."""
        while True:
            match = _SPACE.match(self._buffer)
            length = match.end() if match else 0
            del match  # while it exists, the buffer cannot be resized
            self._drop(length)
            if self._buffer:
                return bytes(self._buffer[:1])
            if not self._fill():
                return b""

    def _expect_end(self) -> None:
        if self._peek():
            raise self._malformed(0)

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._consumed += count

    def _fill_or_fail(self) -> None:
        if not self._fill():
            raise self._truncated()

    def _fill(self) -> bool:
        piece = next(self._pieces, b"")
        self._buffer += piece
        return bool(piece)

    def _decompress(self, file: Any, size: int, progress: Callable[[int, int], None]) -> Iterator[bytes]:
        stream = gzip.GzipFile(fileobj=file) if self.name.lower().endswith(".gz") else file
        try:
            piece = stream.read(BLOCK).removeprefix(b"\xef\xbb\xbf")  # a byte order mark
            while piece:
                progress(file.count, size)
                yield piece
                piece = stream.read(BLOCK)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SaodError(f"{self.name} is not a complete gzip file ({error}): fetch or write it again.") from error

    def _malformed(self, position: int) -> SaodError:
        offset = self._consumed + position
        return SaodError(
            f"{self.name} is not {self._description}: syntax error at byte {offset:,}; fix it, or write it again."
        )

    def _truncated(self) -> SaodError:
        length = self._consumed + len(self._buffer)
        return SaodError(
            f"{self.name} ends in the middle after {length:,} bytes: it was cut off; fetch or write it again."
        )


def _ignore_progress(done: int, total: int) -> None:
    """Show nothing."""


class _HashingReader:
    """A file whose bytes are hashed and counted while they are read."""

    def __init__(self, file: Any, digest: hashlib._Hash) -> None:
        self._file = file
        self._digest = digest
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._digest.update(data)
        self.count += len(data)
        return data
