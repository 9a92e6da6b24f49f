"""Errors that a user can fix. The command line prints each as one sentence and exits with its `code`.

- `SaodError`: the base class of all of them.
- `ShardGoneError`: a shard disappeared while it was being read.
- `saod_ray.files.BadNameError`: a file name that can never be read.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterable
from pathlib import Path

_REMEDIES = {
    errno.ENOENT: "check the path, or give another",
    errno.EACCES: "change its permissions, or give another path",
    errno.EPERM: "change its permissions, or give another path",
    errno.ENOSPC: "free some space and run the same command again",
    errno.EDQUOT: "free some space and run the same command again",
    errno.EROFS: "give a path on a disk that can be written to",
    errno.EISDIR: "give the path of a file",
    errno.ENOTDIR: "give a path whose parents are folders",
    errno.EEXIST: "remove it, or give another path",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.EMFILE: "raise the limit of open files with `ulimit -n 65536`",
    errno.ENOMEM: "free some memory and run the same command again",
}
_INTERNAL = re.compile(r"\.(writing-.+|.+\.lock)")  # names of locks and of writers' folders


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


def os_reason(error: BaseException) -> str:
    """Why the operating system refused something, in words and without paths.

    >>> os_reason(FileNotFoundError(2, "cannot open local file '/x/.a.json.tmp'"))
    'No such file or directory'
    """
    while isinstance(error, SaodError) and error.__cause__ is not None:
        error = error.__cause__
    number = getattr(error, "errno", None)
    if number:
        return os.strerror(number)
    text = (str(error).splitlines() or [""])[0].rstrip(".: ")
    return re.sub(r"\[[Ee]rrno \d+\] *", "", text) or type(error).__name__


def os_remedy(error: BaseException) -> str:
    """What a user can do when the operating system refused something."""
    return _REMEDIES.get(getattr(error, "errno", None) or 0, "fix that and run the same command again")


def os_error_sentence(error: OSError | UnicodeError) -> str:
    """An error of the operating system as one sentence: the user's path, the reason in words, and what to do next.

    >>> os_error_sentence(IsADirectoryError(21, "Is a directory", "runs/.a.lock"))
    'runs cannot be used (Is a directory): give the path of a file.'
    """
    if isinstance(error, UnicodeEncodeError):
        text = error.object[error.start : error.end].encode("ascii", "backslashreplace").decode()
        return f"The output cannot hold the characters '{text}': set PYTHONUTF8=1 and run the same command again."
    if isinstance(error, UnicodeError):
        return f"A file or a name is not valid UTF-8 text ({error}): correct it and run the same command again."
    name = error.filename2 or error.filename
    if name is None or isinstance(name, int):
        if isinstance(error, FileNotFoundError) and not _has_current_folder():
            return (
                "The current folder does not exist any more: change to another folder and run the same command again."
            )
        return f"The operating system refused this ({os_reason(error)}): {os_remedy(error)}."
    return f"{_user_path(os.fsdecode(name))} cannot be used ({os_reason(error)}): {os_remedy(error)}."


def _has_current_folder() -> bool:
    try:
        return bool(Path.cwd())
    except OSError:
        return False


def _user_path(name: str) -> str:
    """A path without the names of temporary and lock files, which users have not chosen."""
    import socket

    path = Path(name)
    for part in (path, *path.parents):
        if _INTERNAL.fullmatch(part.name):
            path = part.parent
    temporary = rf"\.(?P<name>.+)\.{re.escape(socket.gethostname())}-\d+-[0-9a-f]{{8}}\.tmp"
    match = re.fullmatch(temporary, path.name)
    return str(path.with_name(match["name"]) if match else path)
