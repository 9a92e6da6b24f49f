"""Digests of the JSON files that users share: results.json and self-aware detectors.

The key `digest` covers all other keys, so that a change is detected wherever the file is read. It is not a signature:
whoever changes a file on purpose can write the matching digest.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

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
    """Whether a JSON object has the digest of its other keys.

    >>> is_intact({**sealed({"u": 0.5}), "u": 0.25}), is_intact({"u": 0.5})
    (False, False)
    """
    return value.get(KEY) == _digest(value)


def _digest(value: dict[str, Any]) -> str:
    rest = {key: part for key, part in value.items() if key != KEY}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def encode_json(value: msgspec.Struct | dict[str, Any]) -> bytes:
    """Readable JSON text with sorted keys: equal values give equal bytes. ValueError for NaN."""
    plain = msgspec.to_builtins(value)
    return (json.dumps(plain, sort_keys=True, indent=1, allow_nan=False, ensure_ascii=False) + "\n").encode()


def origins(store: Store, detector: str, split: str) -> dict[str, str]:
    """Digests of the inputs of a split's detections, by unit. They do not depend on the cut into shards."""
    return {page.unit: page.origin.sha256 for page in store.pages(detector, split)}


def origin_digests(store: Store, detector: str, splits: Sequence[str]) -> dict[str, str]:
    """One digest of the inputs of the detections per split; splits without detections are left out."""
    by_split = {split: sorted(origins(store, detector, split).items()) for split in splits}
    return {split: hashlib.sha256(json.dumps(units).encode()).hexdigest() for split, units in by_split.items() if units}


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """The JSON object of a file; None if it is damaged or its digest does not match. A digest may be absent."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or (KEY in value and not is_intact(value)):
        return None
    return value
