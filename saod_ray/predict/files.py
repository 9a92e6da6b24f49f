"""Which files are meant: by name, by folder, by pattern, or listed on standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from saod_ray.data.source_files import IMAGE_ENDINGS
from saod_ray.errors import SaodError
from saod_ray.files import Folder


def meant(words: Sequence[str], listed: Iterable[str]) -> list[str]:
    """The files meant by words, in their order and each once; the word `-` stands for the lines of `listed`.

    A folder stands for the images below it, by name. A name of nothing stays, and is a failed image later.
    """
    found: dict[str, str] = {}
    for word in words:
        if word == "-":
            lines = [line.rstrip("\r\n") for line in listed]
            files = [file for line in lines if line for file in _below(line)]
        else:
            files = [file for name in _matching(word) for file in _below(name)]
        for file in files:
            found.setdefault(os.path.normpath(Path(file).absolute()), file)  # a link is a file of its own
    if not found:
        raise SaodError("There is no image to look at: give files, folders, patterns, or - for a list on stdin.")
    return list(found.values())


def _matching(word: str) -> list[str]:
    """A pattern that the shell did not expand, expanded; a file may be called like one."""
    if not glob.has_magic(word) or os.path.lexists(word):
        return [word]
    names = sorted(glob.glob(word, recursive=True))  # noqa: PTH207
    if not names:
        raise SaodError(f"No file is matched by '{word}': check the pattern.")
    return names


def _below(name: str) -> Iterator[str]:
    if not Path(name).is_dir():
        yield name
        return
    for file in Folder(name).walk(""):
        if file.lower().endswith(IMAGE_ENDINGS) and "/." not in f"/{file}":
            yield str(Path(name) / file)
