"""Errors that a user can fix. The command line prints each as one sentence and exits with its `code`.

- `SaodError`: the base class of all of them.
- `ShardGoneError`: a shard disappeared while it was being read.
- `saod_ray.files.BadNameError`: a file name that can never be read.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SaodError(Exception):
    """An error that the user can fix. The message says what is wrong, where, and what to do next."""

    code = 1  # exit code of the command line


class ShardGoneError(SaodError):
    """A shard that the ledger lists, or listed a moment ago, does not exist."""


def join_truncated(items: Iterable[object], limit: int = 5) -> str:
    """Join the first items with commas, and say how many more there are.

    >>> join_truncated(range(8))
    '0, 1, 2, 3, 4 and 3 more'
    """
    texts = [str(item) for item in items]
    joined = ", ".join(texts[:limit])
    return f"{joined} and {len(texts) - limit} more" if len(texts) > limit else joined


def did_you_mean(word: str, candidates: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty string if no candidate is similar.

    >>> did_you_mean("isotnic", ["linear", "isotonic"])
    " (did you mean 'isotonic'?)"
    """
    similar = difflib.get_close_matches(word, list(candidates), n=1)
    return f" (did you mean '{similar[0]}'?)" if similar else ""
