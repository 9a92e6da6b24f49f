"""The right to write one split of one detector, with a folder to spill into."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from saod_ray.errors import SaodError
from saod_ray.store.store import Store


@contextmanager
def writing(store: Store, detector: str, split: str) -> Iterator[Path]:
    """Hold the split's lock and yield an empty folder, beside the data where that is on disk.

    Whoever holds the lock may delete the split's shards that no ledger page lists: what a killed writer left is
    removed at the start, what a failed one wrote at the end. A killed writer's lock is free by itself. An object store
    has no lock: there the last of two writers wins, and `verify` names what is left over.
    """
    if not store.folder.is_local:
        with tempfile.TemporaryDirectory(prefix="saod-ray-") as name:
            yield Path(name)
        return
    base = Path(store.folder.path(f".writing-{detector}-{split}"))
    descriptor = _lock(base.with_name(f"{base.name}.lock"), f"'{detector}' on {split}")
    try:
        shutil.rmtree(base, ignore_errors=True)
        store.folder.sweep(f"detections/{detector}/{split}")
        store.remove_unlisted(detector, split)
        base.mkdir()
        yield base
    except BaseException:
        store.remove_unlisted(detector, split)
        raise
    finally:
        shutil.rmtree(base, ignore_errors=True)
        with suppress(OSError):
            base.with_name(f"{base.name}.lock").unlink()
        os.close(descriptor)


def _lock(path: Path, what: str) -> int:
    """Take the lock, or refuse. A lock whose file was removed meanwhile is not one: try again."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise SaodError(f"Another process is writing {what} at {path.parent}: wait until it is done.") from None
        with suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)
