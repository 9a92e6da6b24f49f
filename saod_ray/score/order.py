"""The order of detections by class, then by descending score; ties keep their order."""

from __future__ import annotations

import numpy as np
from numba import njit

Array = np.ndarray
_BITS = 11
_DIGITS = 6
_SIZE = 1 << _BITS


@njit(cache=True, nogil=True)
def class_order(label: Array, score: Array, classes: int) -> tuple[Array, Array]:
    """Indices (n,) sorted by label, then descending score (stable, NaN last), and where each class starts.

    Detections are distributed to their classes. Then each class is radix-sorted by the bits of its scores, skipping digits
    that are equal for all scores (for instance the lower bits of scores that were float32).
    """
    n = label.size
    start = np.zeros(classes + 1, np.int64)
    for i in range(n):
        start[label[i] + 1] += 1
    for c in range(classes):
        start[c + 1] += start[c]
    order, key = np.empty(n, np.int32), np.empty(n, np.uint64)
    at = start.copy()
    top = np.uint64(1) << np.uint64(63)
    bits = (score + 0.0).view(np.uint64)  # + 0.0: minus zero is zero
    for i in range(n):
        if np.isnan(score[i]):
            k = ~np.uint64(0)
        elif bits[i] & top:
            k = bits[i]
        else:
            k = ~(bits[i] | top)
        order[at[label[i]]] = i
        key[at[label[i]]] = k
        at[label[i]] += 1
    longest = 0
    for c in range(classes):
        longest = max(longest, start[c + 1] - start[c])
    spare, spare_key = np.empty(longest, np.int32), np.empty(longest, np.uint64)
    for c in range(classes):
        a, b = start[c], start[c + 1]
        _radix_sort(order[a:b], key[a:b], spare[: b - a], spare_key[: b - a])
    return order, start


@njit(cache=True, nogil=True)
def _radix_sort(order: Array, key: Array, spare: Array, spare_key: Array) -> None:
    """Sort `order` by ascending `key` in place, stable; the spare arrays are overwritten."""
    mask = np.uint64(_SIZE - 1)
    differing = np.uint64(0)
    for i in range(1, key.size):
        differing |= key[i] ^ key[0]
    in_place = True
    for digit in range(_DIGITS):
        shift = np.uint64(digit * _BITS)
        if (differing >> shift) & mask == 0:
            continue
        at = np.zeros(_SIZE + 1, np.int64)
        for i in range(key.size):
            at[((key[i] >> shift) & mask) + np.uint64(1)] += 1
        for v in range(_SIZE):
            at[v + 1] += at[v]
        for i in range(key.size):
            v = (key[i] >> shift) & mask
            spare[at[v]] = order[i]
            spare_key[at[v]] = key[i]
            at[v] += 1
        order, spare, key, spare_key, in_place = spare, order, spare_key, key, not in_place
    if not in_place:
        spare[:] = order
