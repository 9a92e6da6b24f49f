"""Folders and URIs, and the commit protocol: a file is absent or whole."""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import re
import secrets
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from saod_ray.errors import SaodError

_HOST = socket.gethostname()
_LEFTOVER = re.compile(rf"\.{re.escape(_HOST)}-(?P<pid>\d+)-[0-9a-f]{{8}}\.tmp$")


class BadNameError(SaodError):
    """A file that no second try would reach, because its name can be none."""


class Folder:
    """A folder on any filesystem that pyarrow opens. Paths are relative to it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri
        if "://" in uri:
            try:
                self._filesystem, base = pafs.FileSystem.from_uri(uri)
            except (pa.ArrowException, OSError) as error:
                raise SaodError(f"{uri} cannot be opened ({error}): check the URI.") from None
        else:
            self._filesystem, base = pafs.LocalFileSystem(), str(Path(uri).absolute())
        self._base = base.rstrip("/")
        self.is_local = isinstance(self._filesystem, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        """The filesystem's own path of a name; an absolute one stays what it is."""
        if name.startswith("/"):
            return name
        return f"{self._base}/{name}" if name not in ("", "./") else self._base

    def shown(self, name: str) -> str:
        """A name as messages show it."""
        return name if name.startswith("/") else f"{self.uri.partition('?')[0].rstrip('/')}/{name}"

    def below(self, name: str) -> Folder:
        """A folder in this one; a URI's options stay behind its path."""
        place, mark, options = self.uri.partition("?")
        return Folder(f"{place.rstrip('/')}/{name}{mark}{options}")

    def read(self, name: str) -> bytes:
        """The whole file; FileNotFoundError when it is absent."""
        with self._guard("read", name):
            if self.is_local:  # pyarrow opens names in UTF-8 alone
                with self._open_regular(name) as file:
                    return file.read()
            with self._filesystem.open_input_stream(self.path(name), compression=None) as stream:
                data: bytes = stream.read()
                return data

    def read_inside(self, name: str, *, follow_links: bool = False, max_bytes: int = 1 << 30) -> bytes:
        """The whole file, whose name may come from anyone.

        BadNameError for a name that leads out of the folder (through a link only without `follow_links`), for what is not
        a regular file, and for one of more than `max_bytes`.
        """
        if not is_plain(name):
            raise BadNameError(f"{name!r} leads out of {self.uri}: give names of files below it.")
        if self.is_local and not follow_links and not self._holds_target(name):
            raise BadNameError(
                f"{self.shown(name)} is a link that leads out of {self.uri}: add --follow-links to follow it."
            )
        size = self.size(name)
        if size > max_bytes:
            raise BadNameError(f"{self.shown(name)} has {size:,} bytes, more than {max_bytes:,}: give a smaller file.")
        return self.read(name)

    def _holds_target(self, name: str) -> bool:
        """Whether a name leads, through all links, to a place in the folder."""
        with self._guard("read", name):
            return Path(os.path.realpath(self.path(name))).is_relative_to(os.path.realpath(self._base))

    def _open_regular(self, name: str) -> io.FileIO:
        """A file on disk; a device or a pipe, which may have no end, is refused."""
        path = self.path(name)
        self._refuse_special(name, Path(path).stat().st_mode)
        file = io.FileIO(path, opener=lambda place, flags: os.open(place, flags | os.O_NONBLOCK))
        self._refuse_special(name, os.fstat(file.fileno()).st_mode)  # what is there may have changed since
        return file

    def _refuse_special(self, name: str, mode: int) -> None:
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise BadNameError(f"{self.shown(name)} is not a regular file: name another.")

    def open(self, name: str) -> pa.NativeFile:
        """A seekable file for reading; local ones are mapped into memory."""
        with self._guard("read", name):
            if self.is_local:
                return pa.memory_map(self.path(name))
            return self._filesystem.open_input_file(self.path(name))

    @contextmanager
    def stream(self, name: str) -> Iterator[tuple[pa.NativeFile, int]]:
        """A file to be read from its beginning, and its size in bytes."""
        with self._guard("read", name):
            size = self._filesystem.get_file_info(self.path(name)).size
            stream = self._filesystem.open_input_stream(self.path(name), compression=None, buffer_size=0)
        with stream:
            yield stream, size or 0

    def head(self, name: str, count: int) -> bytes:
        """The first bytes of a file; FileNotFoundError when it is absent."""
        with self._guard("read", name):
            if self.is_local:
                with self._open_regular(name) as file:
                    return file.read(count)
            with self._filesystem.open_input_file(self.path(name)) as source:
                found: bytes = source.read(count)
                return found

    def exists(self, name: str) -> bool:
        """Whether a file or folder of that name is there."""
        with self._guard("read", name):
            return bool(self._filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def list(self, name: str, folders: bool = False) -> list[str]:
        """The names of the files (or folders) in a folder, sorted; empty when it is absent."""
        wanted = pafs.FileType.Directory if folders else pafs.FileType.File
        with self._guard("listed", name):
            found = self._filesystem.get_file_info(pafs.FileSelector(self.path(name), allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == wanted and not info.base_name.startswith("."))

    def walk(self, name: str) -> builtins.list[str]:
        """The files below a folder, at any depth, relative to it and sorted; FileNotFoundError when it is absent."""
        base = self.path(name).rstrip("/")
        with self._guard("listed", name):
            if self.is_local:
                return sorted(_walk(Path(base)))
            found = self._filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
        return sorted(info.path[len(base) + 1 :] for info in found if info.type == pafs.FileType.File)

    def size(self, name: str) -> int:
        """A file's bytes; 0 when it is absent, or a folder."""
        with self._guard("read", name):
            return self._filesystem.get_file_info(self.path(name)).size or 0

    def stamp(self, name: str) -> str:
        """Size and time of a file's last change; empty when it is absent."""
        with self._guard("read", name):
            info = self._filesystem.get_file_info(self.path(name))
        return f"{info.size} {info.mtime_ns}" if info.type == pafs.FileType.File else ""

    def put(self, name: str, data: bytes | memoryview | pa.Buffer, durable: bool = True) -> None:
        """Commit a file: readers see all of it or nothing.

        On disk it is written beside, flushed, renamed, and the folder is flushed (not flushed unless `durable`: then
        a power cut may lose it); an object store's put is atomic by itself.
        """
        with self._guard("written to", name):
            if self.is_local:
                self._put_on_disk(Path(self.path(name)), data, durable)
            else:
                with self._filesystem.open_output_stream(self.path(name), compression=None) as stream:
                    stream.write(data)

    def _put_on_disk(self, target: Path, data: bytes | memoryview | pa.Buffer, durable: bool) -> None:
        self._make_folder(target.parent)
        beside = beside_of(target)
        try:
            with beside.open("wb") as file:
                file.write(data)
            if durable:
                commit(beside, target)
            else:
                beside.replace(target)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def _make_folder(self, folder: Path) -> None:
        if not folder.exists():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _flush_folder(folder.parent)

    def put_if_other(self, name: str, data: bytes) -> None:
        """Commit a file unless these bytes are there already."""
        try:
            if self.read(name) == data:
                return
        except FileNotFoundError:
            pass
        self.put(name, data)

    def delete(self, name: str) -> None:
        """Remove a file; nothing happens when it is absent. A name that leads out of the folder is refused."""
        self._refuse_outside(name, "deleted")
        with self._guard("deleted from", name):
            if self._filesystem.get_file_info(self.path(name)).type == pafs.FileType.File:
                self._filesystem.delete_file(self.path(name))

    def _refuse_outside(self, name: str, verb: str) -> None:
        """Refuse a name that leads out of the folder, by itself or through a link to another folder."""
        inside = is_plain(name)
        if inside and self.is_local:
            parent = os.path.realpath(Path(self.path(name)).parent)
            inside = Path(parent).is_relative_to(os.path.realpath(self._base))
        if not inside:
            raise BadNameError(f"{self.shown(name)!r} is not {verb}: it leads out of {self.uri}. Remove what names it.")

    def sweep(self) -> int:
        """Remove what a killed writer of this machine left beside; returns how many files."""
        if not self.is_local:
            return 0
        count = 0
        for path in Path(self.path("")).rglob(".*.tmp"):
            match = _LEFTOVER.search(path.name)
            if match and not _alive(int(match["pid"])):
                path.unlink(missing_ok=True)
                count += 1
        return count

    @contextmanager
    def lock(self, name: str, refusal: str | None = None) -> Iterator[None]:
        """Hold a lock of that name; when another holds it, wait, or refuse with a sentence.

        A killed holder's lock is free by itself. An object store has no locks: there this does nothing.
        """
        if not self.is_local:
            yield
            return
        path = Path(self.path(f".{name}.lock"))
        with self._guard("written to", path.name):
            self._make_folder(path.parent)
            descriptor = _locked(path, refusal)
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
            os.close(descriptor)

    @contextmanager
    def _guard(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, ValueError, pa.ArrowException) as error:
            errno = getattr(error, "errno", None)
            reason = os.strerror(errno) if errno else str(error).splitlines()[0]
            kind = BadNameError if isinstance(error, ValueError) else SaodError  # for instance a null byte in a name
            raise kind(
                f"{self.shown(name)} cannot be {verb} ({reason}): mend that and run the same command again."
            ) from None


def is_plain(name: str) -> bool:
    r"""Whether a name is a relative path that stays below its folder, as far as its text tells.

    >>> is_plain("val/1.jpg"), is_plain("../1.jpg"), is_plain("/1.jpg"), is_plain("a\0b")
    (True, False, False, False)
    """
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def _walk(base: Path) -> Iterator[str]:
    """The files below, links followed; a folder that links lead to again is not entered again."""
    if not base.is_dir():
        raise FileNotFoundError(base)
    seen = set()
    for place, folders, files in os.walk(base, followlinks=True):
        status = Path(place).stat()
        if (status.st_dev, status.st_ino) in seen:
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        prefix = os.path.relpath(place, base)
        yield from (file if prefix == "." else f"{prefix}/{file}" for file in files)


def _locked(path: Path, refusal: str | None) -> int:
    """Take a lock. One whose file was removed meanwhile is none: try again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError:
            os.close(descriptor)
            raise SaodError(refusal or "") from None
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def check_target(out: Path) -> None:
    """Refuse to write where something other than a file is: a folder, a device, a pipe."""
    if not out.name or (out.exists() and not out.is_file()):
        raise SaodError(f"'{out}' is not a file: give --out the path of a file to write.")


def beside_of(target: Path) -> Path:
    """Where a file is written before it gets its name; `sweep` knows whose it is."""
    return target.with_name(f".{target.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def commit(beside: Path, target: Path) -> None:
    """Flush a finished file to disk, give it its name, and flush the folder."""
    descriptor = os.open(beside, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    beside.replace(target)
    _flush_folder(target.parent)


def _flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
