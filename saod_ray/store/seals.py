"""Digests of the JSON files that a store gives away: results.json and self-aware detectors.

`digest` is of all the rest of the file, so that a change is noticed wherever the file is read. It is no signature: whoever
changes a file on purpose can write the digest that fits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saod_ray.store.store import Store

KEY = "digest"


def sealed(value: dict[str, Any]) -> dict[str, Any]:
    """A JSON object with the digest of all its other keys.

    >>> is_intact(sealed({"u": 0.5}))
    True
    """
    return {**value, KEY: _digest(value)}


def is_intact(value: dict[str, Any]) -> bool:
    """Whether a JSON object is what was sealed.

    >>> is_intact({**sealed({"u": 0.5}), "u": 0.25}), is_intact({"u": 0.5})
    (False, False)
    """
    return value.get(KEY) == _digest(value)


def _digest(value: dict[str, Any]) -> str:
    rest = {key: part for key, part in value.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def detections_digest(store: Store, detector: str, splits: Sequence[str]) -> dict[str, str]:
    """For each split that has shards, one digest of their contents."""
    shards = {split: [shard.sha256 for shard in store.shards(detector, split)] for split in splits}
    return {split: hashlib.sha256("\n".join(each).encode()).hexdigest() for split, each in shards.items() if each}


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """The JSON object of a file if it is what was sealed, or has no digest at all; None otherwise."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or (KEY in value and not is_intact(value)):
        return None
    return value
