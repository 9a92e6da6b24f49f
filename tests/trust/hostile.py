"""Stores with one thing changed, and the digests recomputed where whoever changed it would do so."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from saod_ray.store import records
from saod_ray.store.ledger import Page
from saod_ray.store.store import Store


def copy_store(store: Store, target: Path, cache: bool = False) -> Store:
    """A copy that a test may change; without the cache, unless that is what the test changes."""
    ignored = shutil.ignore_patterns() if cache else shutil.ignore_patterns("cache")
    shutil.copytree(store.uri, target, ignore=ignored)
    return Store.open(str(target))


def page_file(store: Store, detector: str, split: str, unit: str = "all") -> Path:
    """Where a page lies."""
    return Path(store.folder.path(f"ledger/{detector}/{split}/{unit}.json"))


def forge_page(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a page's JSON and give it the digest that fits."""
    value = json.loads(path.read_text())
    change(value)
    value["digest"] = ""
    try:
        plain = msgspec.json.decode(msgspec.json.encode(value), type=_Lax)
        value["digest"] = records._digest(plain)
    except msgspec.ValidationError:
        pass  # a page that no digest would save
    path.write_text(json.dumps(value))


class _LaxShard(msgspec.Struct, frozen=True):
    """A shard's entry whose fields are not checked."""

    name: Any
    sha256: Any
    footer: Any
    bytes: Any
    images: Any
    detections: Any
    empty: Any
    failed: Any


class _Lax(Page, frozen=True):
    """A page whose shards are not checked."""

    shards: list[_LaxShard]  # type: ignore[assignment]
