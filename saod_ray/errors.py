"""The one family of errors that a user can cause. The CLI prints each as one sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SaodError(Exception):
    """Something the user can mend; the message says what, where and what to do next."""

    code = 1  # the exit code


class ShardGoneError(SaodError):
    """A shard that the ledger lists, or listed a moment ago, is not there."""


def some(items: Iterable[object], most: int = 5) -> str:
    """The first few items, and how many more there are.

    >>> some(range(8))
    '0, 1, 2, 3, 4 and 3 more'
    """
    listed = [str(item) for item in items]
    text = ", ".join(listed[:most])
    return f"{text} and {len(listed) - most} more" if len(listed) > most else text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name, or an empty string.

    >>> did_you_mean("isotnic", ["linear", "isotonic"])
    " (did you mean 'isotonic'?)"
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean '{near[0]}'?)" if near else ""
