"""The annotation files and image folders below a data root: reading them, their digests, and progress over all."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from saod_ray.data.json_stream import JsonFile
from saod_ray.errors import SaodError, os_reason
from saod_ray.files import Folder

IMAGE_ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".ppm")
Progress = Callable[[int, int], None]  # called with what is done and the total


class SourceFiles:
    """The files below a data root (a folder or URI).

    `names` are the files that will be read: `progress` is called with the bytes read so far and their total size.
    `digests` collects the SHA-256 of every file that was read.
    """

    def __init__(self, root: str, names: Sequence[str] = (), progress: Progress | None = None) -> None:
        self.folder = Folder(root)
        self.digests: dict[str, str] = {}
        self._progress = progress or (lambda done, total: None)
        self._total = sum(self.folder.size(name) for name in names) if progress else 0
        self._done = 0

    @contextmanager
    def json(self, name: str, description: str) -> Iterator[JsonFile]:
        """Open a JSON file for reading in blocks; errors say that it is not a file of this `description`."""
        try:
            with JsonFile.from_folder(self.folder, name, description, self._advance) as file:
                yield file
                self.digests[name] = file.sha256
        except FileNotFoundError:
            raise self.missing_error(name) from None
        except OSError as error:
            raise SaodError(
                f"{self.folder.display_path(name)} cannot be read ({os_reason(error)}): check the file, or fetch it again."
            ) from error
        self._done += self.folder.size(name)

    @contextmanager
    def file(self, name: str) -> Iterator[Any]:
        """Open a seekable binary file."""
        try:
            self.digests[name] = self.digest(name)
            with self.folder.open(name) as opened:
                yield opened
        except FileNotFoundError:
            raise self.missing_error(name) from None
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
            raise self.missing_error(name) from None
        return digest.hexdigest()

    def stamp(self, name: str) -> str:
        """A text that changes when the file changes, found without reading the file; empty if it is missing."""
        try:
            return self.digest(name) if name.endswith("/") else self.folder.stamp(name)
        except SaodError:
            return ""

    def images(self, name: str) -> list[str]:
        """The names of the image files below a folder, relative to it, sorted. SaodError if there are none."""
        location = self.folder.display_path(name).rstrip("/")
        try:
            paths = self.folder.walk(name)
        except FileNotFoundError:
            raise SaodError(
                f"There is no folder {location}: check the use case's `images`, or give --data DIR."
            ) from None
        names = [path for path in paths if path.lower().endswith(IMAGE_ENDINGS) and "/." not in f"/{path}"]
        undecodable = [path for path in names if not path.isprintable() and _is_not_unicode(path)]
        if undecodable:
            raise SaodError(f"The file name {undecodable[0]!r} below {location} is not UTF-8: rename it.")
        if not names:
            raise SaodError(f"There is no image below {location}: check the use case's `images`, or give --data DIR.")
        self.digests[name] = listing_digest(names)
        return names

    def missing_error(self, name: str) -> SaodError:
        """The error for a file that does not exist."""
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


class ElementDecoder:
    """Decodes the elements of one JSON list as `kind`, counting them so that errors can name a bad element.

    `path` is the JSON path of the list (`$.images`), and `description` what the file should be.
    """

    def __init__(self, kind: type, file: JsonFile, description: str, path: str = "$") -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(kind)
        self._file = file.name
        self._description = description
        self._path = path
        self.count = 0

    def decode(self, block: bytes) -> list[Any]:
        """The elements of a newline-delimited block. SaodError names the first element that does not decode."""
        try:
            elements = self._decoder.decode_lines(block)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._explain(block, error) from error
        self.count += len(elements)
        return elements

    def _explain(self, block: bytes, error: Exception) -> SaodError:
        number = self.count
        for line in block.split(b"\n"):
            try:
                self._decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as cause:
                error = cause
                break
            number += 1
        path = f"{self._path}[{number}]"
        text = str(error).replace("`$", f"`{path}") if "`$" in str(error) else f"{error} - at `{path}`"
        return SaodError(f"{self._file} is not {self._description} ({text}): check the file, or fetch it again.")
