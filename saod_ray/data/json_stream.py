"""Reading JSON files of any size in blocks of bounded memory: a list of objects, or an object of such lists.

A byte scanner finds where elements end and turns the separators between them into newlines; what comes out are
blocks of newline-delimited JSON for a real parser.
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

BLOCK = 8 << 20
LONGEST_ELEMENT = 64 << 20
# what may stand next outside of an element
BEGIN, FIRST, SEPARATOR, ELEMENT, END = range(5)
_SPACE = re.compile(rb"[ \t\r\n]*")
_KEY = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


@njit(cache=True, nogil=True)
def scan(data: np.ndarray, start: int, state: np.ndarray) -> tuple[int, int, int]:
    """Walk over a list in place; returns (end of the last whole element, where it stopped, position of a mistake or -1).

    `state` is depth, in a string, after a backslash, what may stand next; it carries over to the next call.
    """
    depth, in_string, escaped, expected = state
    whole, mistake = 0, -1
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
                    whole = i + 1
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
    return whole, i, mistake


@njit(cache=True, nogil=True)
def skip(data: np.ndarray, start: int, state: np.ndarray) -> tuple[int, bool]:
    """Walk over a value of any kind; returns (where it stopped, whether the value is over). A state as in `scan`."""
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
        elif depth == 0 and (c == 44 or c == 125):  # a comma or } that is not the value's
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
    """A JSON file that is read once; `sha256` is of its bytes once all are read. `what` names it in errors."""

    def __init__(self, file: Any, size: int, name: str, what: str, progress: Callable[[int, int], None]) -> None:
        self.name = name
        self._what = what
        self._digest = hashlib.sha256()
        self._pieces = self._unpacked(_Hashed(file, self._digest), size, progress)
        self._buffer = bytearray()
        self._consumed = 0  # bytes before the buffer

    @classmethod
    @contextmanager
    def at(cls, path: Path, what: str, progress: Callable[[int, int], None] | None = None) -> Iterator[JsonFile]:
        """A file on disk."""
        with path.open("rb") as file:
            yield cls(file, path.stat().st_size, str(path), what, progress or _silent)

    @classmethod
    @contextmanager
    def of(
        cls, folder: Folder, name: str, what: str, progress: Callable[[int, int], None] | None = None
    ) -> Iterator[JsonFile]:
        """A file below a folder or URI."""
        with folder.stream(name) as (file, size):
            yield cls(file, size, folder.display_path(name), what, progress or _silent)

    @property
    def sha256(self) -> str:
        """The digest of the file's bytes."""
        return self._digest.hexdigest()

    def blocks(self) -> Iterator[bytes]:
        """The file is a list of objects: blocks of whole elements, one a line."""
        if self._peek() not in (b"[", b""):
            raise SaodError(f"{self.name} is not {self._what}: it must begin with '['; check the file.")
        yield from self._list()
        self._end()

    def lists(self, wanted: Collection[str]) -> Iterator[tuple[str, bytes]]:
        """The file is an object: blocks of the lists that have these keys, in the file's order."""
        self._expect(b"{")
        first = True
        while self._peek() != b"}":
            if not first:
                self._expect(b",")
                self._peek()
            key, first = self._key(), False
            self._expect(b":")
            if key in wanted:
                self._peek()
                yield key, b""  # an empty list is there too
                for block in self._list():
                    yield key, block
            else:
                self._skip()
        self._expect(b"}")
        self._end()

    def _list(self) -> Iterator[bytes]:
        state = np.array([0, 0, 0, BEGIN], np.int64)
        at = 0
        while True:
            whole, at, mistake = scan(np.frombuffer(self._buffer, np.uint8), at, state)
            if mistake >= 0:
                raise self._malformed(mistake)
            if whole:
                yield bytes(self._buffer[:whole])
            self._drop(whole)
            at -= whole
            if state[3] == END:
                self._drop(at)
                return
            if len(self._buffer) > LONGEST_ELEMENT:
                raise SaodError(f"{self.name} is not {self._what}: one element is over 64 MB long.")
            self._need()

    def _skip(self) -> None:
        state = np.zeros(4, np.int64)
        over = False
        while not over:
            at, over = skip(np.frombuffer(self._buffer, np.uint8), 0, state)
            self._drop(at)
            if not over:
                self._need()

    def _key(self) -> str:
        while not (match := _KEY.match(self._buffer)):
            if not self._buffer.startswith(b'"') or len(self._buffer) > LONGEST_ELEMENT:
                raise self._malformed(0)
            self._need()
        try:
            key = json.loads(match[0])
        except ValueError:
            raise self._malformed(0) from None
        length = match.end()
        del match  # it holds the buffer
        self._drop(length)
        return str(key)

    def _expect(self, token: bytes) -> None:
        found = self._peek()
        if not found:
            raise self._cut()
        if found != token:
            raise self._malformed(0)
        self._drop(1)

    def _peek(self) -> bytes:
        """The next byte that is not space, at which the buffer then begins; empty at the end of the file."""
        while True:
            match = _SPACE.match(self._buffer)
            length = match.end() if match else 0
            del match  # it holds the buffer
            self._drop(length)
            if self._buffer:
                return bytes(self._buffer[:1])
            if not self._fill():
                return b""

    def _end(self) -> None:
        if self._peek():
            raise self._malformed(0)

    def _drop(self, count: int) -> None:
        del self._buffer[:count]
        self._consumed += count

    def _need(self) -> None:
        if not self._fill():
            raise self._cut()

    def _fill(self) -> bool:
        piece = next(self._pieces, b"")
        self._buffer += piece
        return bool(piece)

    def _unpacked(self, file: Any, size: int, progress: Callable[[int, int], None]) -> Iterator[bytes]:
        stream = gzip.GzipFile(fileobj=file) if self.name.lower().endswith(".gz") else file
        try:
            piece = stream.read(BLOCK).removeprefix(b"\xef\xbb\xbf")  # a byte order mark
            while piece:
                progress(file.count, size)
                yield piece
                piece = stream.read(BLOCK)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise SaodError(f"{self.name} is not a whole gzip file ({error}): fetch or write it again.") from None

    def _malformed(self, position: int) -> SaodError:
        where = self._consumed + position
        return SaodError(f"{self.name} is not {self._what}: byte {where:,} is a mistake; mend or write it again.")

    def _cut(self) -> SaodError:
        length = self._consumed + len(self._buffer)
        return SaodError(
            f"{self.name} ends in the middle after {length:,} bytes: it was cut off, fetch or write it again."
        )


def _silent(done: int, total: int) -> None:
    """No progress is shown."""


class _Hashed:
    """A file that is hashed and counted while it is read."""

    def __init__(self, file: Any, digest: hashlib._Hash) -> None:
        self._file = file
        self._digest = digest
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data: bytes = self._file.read(size)
        self._digest.update(data)
        self.count += len(data)
        return data
