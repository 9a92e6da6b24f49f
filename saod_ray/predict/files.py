"""From command-line arguments to image files: names, folders, patterns, or a list on standard input."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from saod_ray.data.source_files import IMAGE_ENDINGS
from saod_ray.errors import SaodError
from saod_ray.files import Folder


def resolve_inputs(arguments: Sequence[str], stdin_lines: Iterable[str]) -> list[str]:
    """The files that arguments stand for, in their order and without duplicates.

    A folder stands for the images in it, at any depth and sorted by name; `-` stands for the files and folders in
    `stdin_lines`. A file that does not exist is kept, and becomes a failed image. Raises SaodError if there is no file.
    """
    files_by_path: dict[str, str] = {}
    for argument in arguments:
        if argument == "-":
            lines = [line.rstrip("\r\n") for line in stdin_lines]
            files = [file for line in lines if line for file in _expand_folder(line)]
        else:
            files = [file for name in _expand_pattern(argument) for file in _expand_folder(name)]
        for file in files:
            files_by_path.setdefault(os.path.normpath(Path(file).absolute()), file)  # links are not resolved
    if not files_by_path:
        raise SaodError("There is no image to look at: give files, folders, patterns, or - for a list on stdin.")
    return list(files_by_path.values())


def _expand_pattern(argument: str) -> list[str]:
    """The files that match a pattern which the shell did not expand; a file of that very name comes first."""
    if not glob.has_magic(argument) or os.path.lexists(argument):
        return [argument]
    names = sorted(glob.glob(argument, recursive=True))  # noqa: PTH207
    if not names:
        raise SaodError(f"No file matches '{argument}': check the pattern.")
    return names


def _expand_folder(name: str) -> Iterator[str]:
    if not Path(name).is_dir():
        yield name
        return
    for file in Folder(name).walk(""):
        if file.lower().endswith(IMAGE_ENDINGS) and "/." not in f"/{file}":
            yield str(Path(name) / file)
