"""Folders on disk and in object stores, with atomic writes: a file is complete or absent."""

from __future__ import annotations

import builtins
import fcntl
import io
import os
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from saod_ray.errors import SaodError, os_reason, os_remedy

_HOST = socket.gethostname()
_LEFTOVER = re.compile(rf"\.{re.escape(_HOST)}-(?P<pid>\d+)-[0-9a-f]{{8}}\.tmp$")


class BadNameError(SaodError):
    """A file name that is not allowed or not possible, so that trying again is useless."""


class Folder:
    """A folder on any filesystem that pyarrow opens. File names are relative to it.

    Failures raise SaodError with the path and the reason, except FileNotFoundError for an absent file.
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        if "://" in uri:
            try:
                self._filesystem, base = pafs.FileSystem.from_uri(uri)
            except (pa.ArrowException, OSError) as error:
                raise SaodError(f"{uri} cannot be opened ({os_reason(error)}): check the URI.") from error
        else:
            self._filesystem, base = pafs.LocalFileSystem(), str(Path(uri).absolute())
        self._base = base.rstrip("/")
        self.is_local = isinstance(self._filesystem, pafs.LocalFileSystem)

    def path(self, name: str) -> str:
        """The path of a name for the filesystem. An absolute name is returned unchanged."""
        if name.startswith("/"):
            return name
        return f"{self._base}/{name}" if name not in ("", "./") else self._base

    def display_path(self, name: str) -> str:
        """The path of a name for messages."""
        return name if name.startswith("/") else f"{self.uri.partition('?')[0].rstrip('/')}/{name}".rstrip("/")

    def below(self, name: str) -> Folder:
        """A folder in this one. The options of a URI (`?...`) are kept."""
        path, mark, options = self.uri.partition("?")
        return Folder(f"{path.rstrip('/')}/{name}{mark}{options}")

    def read(self, name: str) -> bytes:
        """The content of a file; FileNotFoundError if it is absent."""
        with self._guard("read", name):
            if self.is_local:  # pyarrow opens only names that are valid UTF-8
                with self._open_regular(name) as file:
                    return file.read()
            with self._filesystem.open_input_stream(self.path(name), compression=None) as stream:
                data: bytes = stream.read()
                return data

    def read_inside(self, name: str, *, follow_links: bool = False, max_bytes: int = 1 << 30) -> bytes:
        """The content of a file whose name is not trusted.

        Args:
            name: The name, relative to the folder.
            follow_links: Allow links that lead out of the folder.
            max_bytes: The largest size that is read.

        Raises:
            BadNameError: The name leads out of the folder, or the file is not a regular file, or it is too large.
        """
        if not is_plain(name):
            raise BadNameError(f"{name!r} leads out of {self.uri}: name a file inside it.")
        if self.is_local and not follow_links and not self._holds_target(name):
            raise BadNameError(
                f"{self.display_path(name)} is a link that leads out of {self.uri}: add --follow-links to follow it."
            )
        size = self.size(name)
        if size > max_bytes:
            raise BadNameError(
                f"{self.display_path(name)} has {size:,} bytes, more than {max_bytes:,}: give a smaller file."
            )
        return self.read(name)

    def _holds_target(self, name: str) -> bool:
        """Whether a name, with all links resolved, is inside the folder."""
        with self._guard("read", name):
            return Path(os.path.realpath(self.path(name))).is_relative_to(os.path.realpath(self._base))

    def _open_regular(self, name: str) -> io.FileIO:
        """Open a file on disk. A device or a pipe is refused, because it may never end."""
        path = self.path(name)
        self._refuse_special(name, Path(path).stat().st_mode)
        file = io.FileIO(path, opener=lambda target, flags: os.open(target, flags | os.O_NONBLOCK))
        self._refuse_special(name, os.fstat(file.fileno()).st_mode)  # it may have been replaced since
        return file

    def _refuse_special(self, name: str, mode: int) -> None:
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise BadNameError(f"{self.display_path(name)} is not a regular file: name another.")

    def open(self, name: str) -> pa.NativeFile:
        """Open a seekable file for reading; a local file is memory-mapped."""
        with self._guard("read", name):
            if self.is_local:
                return pa.memory_map(self.path(name))
            return self._filesystem.open_input_file(self.path(name))

    @contextmanager
    def stream(self, name: str) -> Iterator[tuple[pa.NativeFile, int]]:
        """Open a file for sequential reading; yields the stream and the size in bytes."""
        with self._guard("read", name):
            size = self._filesystem.get_file_info(self.path(name)).size
            stream = self._filesystem.open_input_stream(self.path(name), compression=None, buffer_size=0)
        with stream:
            yield stream, size or 0

    def head(self, name: str, count: int) -> bytes:
        """The first `count` bytes of a file; FileNotFoundError if it is absent."""
        with self._guard("read", name):
            if self.is_local:
                with self._open_regular(name) as file:
                    return file.read(count)
            with self._filesystem.open_input_file(self.path(name)) as source:
                data: bytes = source.read(count)
                return data

    def exists(self, name: str) -> bool:
        """Whether a file or folder of that name exists."""
        with self._guard("read", name):
            return bool(self._filesystem.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def list(self, name: str, folders: bool = False) -> list[str]:
        """The names of the files (or folders) in a folder, sorted; empty if it is absent."""
        kind = pafs.FileType.Directory if folders else pafs.FileType.File
        with self._guard("listed", name):
            entries = self._filesystem.get_file_info(pafs.FileSelector(self.path(name), allow_not_found=True))
        return sorted(info.base_name for info in entries if info.type == kind and not info.base_name.startswith("."))

    def walk(self, name: str) -> builtins.list[str]:
        """The files in a folder at any depth, relative to it and sorted; FileNotFoundError if it is absent."""
        base = self.path(name).rstrip("/")
        with self._guard("listed", name):
            if self.is_local:
                return sorted(_walk(Path(base)))
            entries = self._filesystem.get_file_info(pafs.FileSelector(base, recursive=True))
        return sorted(info.path[len(base) + 1 :] for info in entries if info.type == pafs.FileType.File)

    def size(self, name: str) -> int:
        """The size of a file in bytes; 0 if it is absent or a folder."""
        with self._guard("read", name):
            return self._filesystem.get_file_info(self.path(name)).size or 0

    def stamp(self, name: str) -> str:
        """Size and modification time of a file as text; empty if it is absent."""
        with self._guard("read", name):
            info = self._filesystem.get_file_info(self.path(name))
        return f"{info.size} {info.mtime_ns}" if info.type == pafs.FileType.File else ""

    def put(self, name: str, data: bytes | memoryview | pa.Buffer, durable: bool = True) -> None:
        """Write a file atomically: readers see all of it or nothing.

        On disk, a temporary file is written, flushed and renamed, and the folder is flushed. Without `durable` nothing is
        flushed, and a power failure can lose the file. In an object store, a put is atomic.
        """
        with self._guard("written to", name):
            if self.is_local:
                self._put_on_disk(Path(self.path(name)), data, durable)
            else:
                with self._filesystem.open_output_stream(self.path(name), compression=None) as stream:
                    stream.write(data)

    def _put_on_disk(self, target: Path, data: bytes | memoryview | pa.Buffer, durable: bool) -> None:
        self._make_folder(target.parent)
        temporary = temp_path(target)
        try:
            with temporary.open("wb") as file:
                file.write(data)
            if durable:
                commit(temporary, target)
            else:
                temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    def refuse_unwritable(self, name: str) -> None:
        """Raise SaodError if a file on disk cannot be written; for work that takes long before it writes."""
        if self.is_local:
            place = self.display_path(name)
            _refuse_unwritable(
                Path(self.path(name)), place, f"{place} is not a file: remove it, or use another folder."
            )

    def _make_folder(self, folder: Path) -> None:
        if not folder.exists():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _flush_folder(folder.parent)

    def write_if_changed(self, name: str, data: bytes) -> None:
        """Write a file atomically, unless it has this content already."""
        try:
            if self.read(name) == data:
                return
        except FileNotFoundError:
            pass
        self.put(name, data)

    def delete(self, name: str) -> None:
        """Delete a file, if it exists. A name that leads out of the folder is refused."""
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
            raise BadNameError(
                f"{self.display_path(name)!r} is not {verb}: it leads out of {self.uri}. Remove the entry that names it."
            )

    def sweep(self) -> int:
        """Remove temporary files that killed writers of this machine left; returns their number."""
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
        """Hold the lock of that name. While another process holds it: wait, or raise SaodError(refusal) if that is given.

        The lock of a killed process is released. An object store has no locks: there this does nothing.
        """
        if not self.is_local:
            yield
            return
        path = Path(self.path(f".{name}.lock"))
        with self._guard("written to", ""):  # users do not know the lock file
            self._make_folder(path.parent)
            descriptor = _acquire_lock(path, refusal)
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
        except (OSError, ValueError, pa.ArrowException) as error:
            if isinstance(error, FileNotFoundError) and verb != "written to":
                raise
            kind = BadNameError if isinstance(error, ValueError) else SaodError  # for instance a null byte in a name
            place = self.display_path(name)
            raise kind(f"{place} cannot be {verb} ({os_reason(error)}): {os_remedy(error)}.") from error


def is_plain(name: str) -> bool:
    r"""Whether a name is a relative path that stays inside its folder. Links are not resolved.

    >>> is_plain("val/1.jpg"), is_plain("../1.jpg"), is_plain("/1.jpg"), is_plain("a\0b")
    (True, False, False, False)
    """
    return not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def _walk(base: Path) -> Iterator[str]:
    """The files in a folder at any depth, following links. Each folder is entered once, so that cycles end."""
    if not base.is_dir():
        raise FileNotFoundError(base)
    visited = set()
    for folder, subfolders, files in os.walk(base, followlinks=True):
        status = Path(folder).stat()
        if (status.st_dev, status.st_ino) in visited:
            subfolders.clear()
            continue
        visited.add((status.st_dev, status.st_ino))
        prefix = os.path.relpath(folder, base)
        yield from (file if prefix == "." else f"{prefix}/{file}" for file in files)


def _acquire_lock(path: Path, refusal: str | None) -> int:
    """Acquire a lock. If its file was removed meanwhile, the lock is void: try again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            os.close(descriptor)
            raise SaodError(refusal or "") from error
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)


def check_target(out: Path, option: str = "--out") -> None:
    """Raise SaodError if `out`, the value of `option`, is not a file that can be written.

    It may be a folder, a device or a pipe, or in a folder that cannot be created or written to. Nothing is left behind.
    """
    _refuse_unwritable(out, str(out), f"'{out}' is not a file: give {option} the path of a file to write.")


def check_folder(folder: Path, option: str) -> None:
    """Raise SaodError if `folder`, the value of `option`, cannot be created or written to. Nothing is left behind."""
    with suppress(OSError):  # a name that is too long
        if folder.exists() and not folder.is_dir():
            raise SaodError(f"'{folder}' is not a folder: give {option} the path of a folder to write into.")
    _refuse_unwritable(folder / "x", str(folder), "")


def _refuse_unwritable(target: Path, place: str, not_a_file: str) -> None:
    try:
        if not target.name or (target.exists() and not target.is_file()):
            raise SaodError(not_a_file)
        existing = next(parent for parent in target.absolute().parents if parent.exists())
        if not existing.is_dir():
            raise SaodError(f"{place} cannot be written to ({existing} is a file, not a folder): give another path.")
        with suppress(FileNotFoundError):
            temp_path(target).lstat()  # its name may be too long
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        raise SaodError(f"{place} cannot be written to ({os_reason(error)}): give another path.") from error


def temp_path(target: Path) -> Path:
    """Where a file is written before it is renamed. The name holds host and process, for `Folder.sweep`."""
    return target.with_name(f".{target.name}.{_HOST}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def commit(temporary: Path, target: Path) -> None:
    """Flush a finished file to disk, rename it, and flush the folder."""
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(target)
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
