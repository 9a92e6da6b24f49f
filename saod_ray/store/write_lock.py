"""The lock on one split of one detector, with a temporary folder for its holder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saod_ray.errors import SaodError, os_reason, os_remedy
from saod_ray.store.store import Store


@contextmanager
def lock_for_writing(store: Store, detector: str, split: str) -> Iterator[Path]:
    """Hold the split's lock and yield an empty temporary folder, on the disk of the store if it is local.

    The holder may delete the split's shards that no ledger page lists. Those of a killed writer are removed first, those
    of a failed one at the end. An object store has no locks: the last of two writers wins, and `verify` lists the
    leftover files.

    Raises SaodError if another process holds the lock, or if the disk cannot be written to.
    """
    if not store.folder.is_local:
        with tempfile.TemporaryDirectory(prefix="saod-ray-") as name:
            yield Path(name)
        return
    name = f"writing-{detector}@{split}"
    temporary = Path(store.folder.path(f".{name}"))
    busy = f"Another process is writing '{detector}' on {split} into {store.uri}: wait until it is done."
    with store.folder.lock(name, busy):
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            store.folder.sweep()
            store.remove_unlisted(detector, split)
            temporary.mkdir()
            yield temporary
        except BaseException as error:
            store.remove_unlisted(detector, split)
            if isinstance(error, OSError):
                raise SaodError(
                    f"'{detector}' on {split} cannot be written into {store.uri} ({os_reason(error)}): "
                    f"{os_remedy(error)}."
                ) from error
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
