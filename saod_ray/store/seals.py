"""Digests of the JSON files that a store gives away: results.json and self-aware detectors.

`digest` is of all the rest of the file, so that a change is noticed wherever the file is read. It is no signature: whoever
changes a file on purpose can write the digest that fits.
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
    """Whether a JSON object is what was sealed.

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
    """What a split's detections were made from, by unit; how they are spread over shards does not matter."""
    return {page.unit: page.origin.sha256 for page in store.pages(detector, split)}


def origin_digests(store: Store, detector: str, splits: Sequence[str]) -> dict[str, str]:
    """For each split that has detections, one digest of what they were made from."""
    named = {split: sorted(origins(store, detector, split).items()) for split in splits}
    return {split: hashlib.sha256(json.dumps(units).encode()).hexdigest() for split, units in named.items() if units}


def read_sealed(data: bytes) -> dict[str, Any] | None:
    """The JSON object of a file if it is what was sealed, or has no digest at all; None otherwise."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or (KEY in value and not is_intact(value)):
        return None
    return value
