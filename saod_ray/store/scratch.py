"""A place to spill while writing, which remembers what must be undone if the writer does not finish."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

from saod_ray.store.store import Store


class Scratch:
    """A folder beside the store's data (or in the temporary folder when the store is not on disk).

    Files are announced before they are written. Leaving with an exception, or the next writer after a kill,
    removes the announced files that no ledger page lists. A held lock tells a living writer from a killed one.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        local = store.folder.is_local
        self._base = Path(store.folder.path(".scratch")) if local else Path(tempfile.gettempdir()) / "saod-ray"

    def __enter__(self) -> Scratch:
        self._base.mkdir(parents=True, exist_ok=True)
        for leftover in self._base.iterdir():
            self._undo_abandoned(leftover)
        self.folder = Path(tempfile.mkdtemp(dir=self._base))
        self._lock = (self.folder / "lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        return self

    def announce(self, file: str) -> None:
        """Say that a file of the store is about to be written."""
        with (self.folder / "announced").open("a") as out:
            out.write(file + "\n")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._undo(self.folder)
        self._lock.close()
        self._remove(self.folder)

    def _undo_abandoned(self, folder: Path) -> None:
        try:
            descriptor = os.open(folder / "lock", os.O_RDWR)
        except OSError:
            if time.time() - folder.stat().st_mtime > 3600:  # killed before it had a lock
                self._remove(folder)
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return  # a living writer
        else:
            self._undo(folder)
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(descriptor)

    def _undo(self, folder: Path) -> None:
        announced = folder / "announced"
        if self._store.folder.is_local and announced.exists():
            for file in announced.read_text().splitlines():
                if file.count("/") == 3 and not self._store.listed(file):
                    self._store.folder.delete(file)

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        if self._base.is_dir() and not any(self._base.iterdir()):
            self._base.rmdir()
