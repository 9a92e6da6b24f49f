"""The right to write one split of one detector, with a folder to spill into."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from saod_ray.errors import SaodError
from saod_ray.store.store import Store


@contextmanager
def writing(store: Store, detector: str, split: str) -> Iterator[Path]:
    """Hold the split's lock and yield an empty folder, beside the data where that is on disk.

    Whoever holds the lock may delete the split's shards that no ledger page lists: what a killed writer left is
    removed at the start, what a failed one wrote at the end. An object store has no lock: there the last of two
    writers wins, and `verify` names what is left over.
    """
    if not store.folder.is_local:
        with tempfile.TemporaryDirectory(prefix="saod-ray-") as name:
            yield Path(name)
        return
    name = f"writing-{detector}@{split}"
    base = Path(store.folder.path(f".{name}"))
    busy = f"Another process is writing '{detector}' on {split} into {store.uri}: wait until it is done."
    with store.folder.lock(name, busy):
        try:
            shutil.rmtree(base, ignore_errors=True)
            store.folder.sweep()
            store.remove_unlisted(detector, split)
            base.mkdir()
            yield base
        except BaseException as error:
            store.remove_unlisted(detector, split)
            if isinstance(error, OSError):
                reason = error.strerror or error
                raise SaodError(
                    f"'{detector}' on {split} cannot be written into {store.uri} ({reason}): mend that and run the same "
                    "command again."
                ) from None
            raise
        finally:
            shutil.rmtree(base, ignore_errors=True)
