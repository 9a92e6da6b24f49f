"""Mutations of files for attacks: flipped bits, cuts, swaps, and hostile JSON values."""

from __future__ import annotations

import copy
import random
from typing import Any

HOSTILE: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 1e308, -1e308, "", "0", "\0", "../../../etc/passwd", "/dev/zero", "=1+1", "os:system",
    "x" * 5000, "mine.toml", [], {}, [[]], {"": {}}, [1e308, -1e308], ["a", 7], "é\u202e", "NaN",
)  # fmt: skip


def flipped(data: bytes, rng: random.Random) -> bytes:
    """A copy with one flipped bit."""
    changed = bytearray(data)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mangled(data: bytes, rng: random.Random) -> bytes:
    """A copy that is flipped, truncated, lengthened, or has a part overwritten, repeated or removed."""
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice((1, 4, 64, 4096)))
    match rng.randrange(7):
        case 0:
            return data[:start]
        case 1:
            return data + bytes(rng.randrange(256) for _ in range(64))
        case 2:
            return data[:start] + rng.randbytes(stop - start) + data[stop:]
        case 3:
            return data[:stop] + data[start:]
        case 4:
            return data[:start] + data[stop:]
        case 5:
            return data[:start] + rng.choice((b"\0", b"\xff")) * (stop - start) + data[stop:]
        case _:
            return flipped(data, rng)


def mutated(value: Any, rng: random.Random) -> Any:
    """A copy of a JSON value with one of its parts replaced, removed, renamed or repeated."""
    changed = copy.deepcopy(value)
    parts = [(holder, key) for holder, key in _parts(changed)]
    holder, key = rng.choice(parts)
    match rng.randrange(5):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(("", "digest", f"{key}x", "__class__"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder.insert(key, copy.deepcopy(holder[key]))
        case 3 if isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
            holder[key] = rng.choice((holder[key] + 1, -holder[key], holder[key] * 1.5, holder[key] * 10**9))
        case _:
            holder[key] = copy.deepcopy(rng.choice(HOSTILE))
    return changed


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Every part of a value as (container, key); of long lists only the first and last three items."""
    keys: list[Any] = list(value) if isinstance(value, dict) else list(range(len(value)))
    if isinstance(value, list) and len(keys) > 6:
        keys = keys[:3] + keys[-3:]
    parts = [(value, key) for key in keys]
    for key in keys:
        if isinstance(value[key], dict | list):
            parts += _parts(value[key])
    return parts
