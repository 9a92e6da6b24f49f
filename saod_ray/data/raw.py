"""The data root while raw downloads are read: progress over all files, and the digest of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from saod_ray.data.json_stream import JsonFile
from saod_ray.errors import SaodError
from saod_ray.files import Folder

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
Progress = Callable[[int, int], None]


class Raw:
    """Files below a folder or URI; `progress` counts the bytes of the files that will be read."""

    def __init__(self, root: str, names: Sequence[str] = (), progress: Progress | None = None) -> None:
        self.folder = Folder(root)
        self.digests: dict[str, str] = {}  # of what was read
        self._progress = progress or (lambda done, total: None)
        self._total = sum(self.folder.size(name) for name in names) if progress else 0
        self._done = 0

    @contextmanager
    def json(self, name: str, what: str) -> Iterator[JsonFile]:
        """A JSON file to be read in blocks; `what` says in errors what it should be."""
        try:
            with JsonFile.of(self.folder, name, what, self._advance) as file:
                yield file
                self.digests[name] = file.sha256
        except FileNotFoundError:
            raise self.absent(name) from None
        except OSError as error:
            raise SaodError(
                f"{self.folder.display_path(name)} cannot be read ({error}): check the file, or fetch it again."
            ) from None
        self._done += self.folder.size(name)

    @contextmanager
    def file(self, name: str) -> Iterator[Any]:
        """A file in which one can seek."""
        try:
            self.digests[name] = self.digest(name)
            with self.folder.open(name) as opened:
                yield opened
        except FileNotFoundError:
            raise self.absent(name) from None
        self._done += self.folder.size(name)
        self._advance(0, 0)

    def digest(self, name: str) -> str:
        """SHA-256 of a file's bytes, or of the names of the images below a folder (its name ends in a slash)."""
        digest = hashlib.sha256()
        if name.endswith("/"):
            return listing_digest(self.images(name))
        try:
            with self.folder.stream(name) as (stream, _):
                while piece := stream.read(1 << 22):
                    digest.update(piece)
        except FileNotFoundError:
            raise self.absent(name) from None
        return digest.hexdigest()

    def stamp(self, name: str) -> str:
        """What tells, without reading it, that a file is still the one it was; empty when it is absent."""
        try:
            return self.digest(name) if name.endswith("/") else self.folder.stamp(name)
        except SaodError:
            return ""

    def images(self, name: str) -> list[str]:
        """The names of the image files below a folder, relative to it, sorted."""
        place = self.folder.display_path(name).rstrip("/")
        try:
            found = self.folder.walk(name)
        except FileNotFoundError:
            raise SaodError(f"There is no folder {place}: check the use case's `images`, or give --data DIR.") from None
        names = [each for each in found if each.lower().endswith(IMAGE_ENDINGS) and "/." not in f"/{each}"]
        strange = [each for each in names if not each.isprintable() and _is_not_unicode(each)]
        if strange:
            raise SaodError(f"The file name {strange[0]!r} below {place} is not UTF-8: rename it.")
        if not names:
            raise SaodError(f"There is no image below {place}: check the use case's `images`, or give --data DIR.")
        self.digests[name] = listing_digest(names)
        return names

    def absent(self, name: str) -> SaodError:
        """What to say of a file that is not there."""
        return SaodError(
            f"There is no file {self.folder.display_path(name)}: check the use case's paths, or give --data DIR."
        )

    def _advance(self, done: int, size: int) -> None:
        self._progress(self._done + done, self._total)


def _is_not_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return True
    return False


def listing_digest(names: Sequence[str]) -> str:
    """SHA-256 of file names."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


class Elements:
    """Decodes the elements of one list, counting them so that a bad one can be named."""

    def __init__(self, kind: type, file: JsonFile, what: str, place: str = "$") -> None:
        self._lines: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._file = file.name
        self._what = what
        self._place = place
        self.count = 0

    def decode(self, block: bytes) -> list[Any]:
        """The elements of a newline-delimited block."""
        try:
            found = self._lines.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._explain(block, error) from None
        self.count += len(found)
        return found

    def _explain(self, block: bytes, error: Exception) -> SaodError:
        number = self.count
        for line in block.split(b"\n"):
            try:
                self._lines.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as mistake:
                error = mistake
                break
            number += 1
        where = f"{self._place}[{number}]"
        text = str(error).replace("`$", f"`{where}") if "`$" in str(error) else f"{error} - at `{where}`"
        return SaodError(f"{self._file} is not {self._what} ({text}): check the file, or fetch it again.")
