"""The paper's own values as data: a TOML file an experiment, and where a store's use case and rows are the paper's.

A file has a table for each use case: `columns`, and `rows` that begin with their heads. Values are as printed, those
in percent in percent; "N/A" stands for one that the paper does not have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from saod_ray.config import ScoreSettings
from saod_ray.errors import join_truncated

Printed = dict[tuple[str, ...], dict[str, float | None]]


@cache
def printed(name: str, use_case: str) -> Printed:
    """An experiment's values in the paper by heads and column; empty where the paper has none."""
    file = files("saod_ray.experiment").joinpath("paper", f"{name}.toml")
    if not file.is_file():
        return {}
    table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get(use_case, {})
    columns = table.get("columns", [])
    found: Printed = {}
    for row in table.get("rows", []):
        heads, values = tuple(row[: -len(columns)]), row[-len(columns) :]
        numbers = [None if value == "N/A" else value for value in values]
        found[heads] = dict(zip(columns, numbers, strict=True))
    return found


def beside(
    name: str, use_case: str, heads: Sequence[tuple[str, ...]], columns: Sequence[str]
) -> list[list[float | None]]:
    """The paper's value for each row and column, or None; an empty list where it has none at all."""
    known = printed(name, use_case)
    values = [[known.get(row, {}).get(column) for column in columns] for row in heads]
    return values if any(value is not None for row in values for value in row) else []


def unlike(settings: ScoreSettings, partial: bool) -> list[str]:
    """A remark where what stands beside the paper's values was not computed as they were.

    >>> unlike(ScoreSettings(tau=0.5), partial=True)
    ["The paper's values are of all images under the default settings, these are of a partial store, with tau 0.5."]
    """
    given, default = settings.model_dump(mode="json"), ScoreSettings().model_dump(mode="json")
    others = [f"{name.replace('_', '-')} {given[name]}" for name in given if given[name] != default[name]]
    how = ["of a partial store"] * partial + [f"with {join_truncated(others, 9)}"] * bool(others)
    said = "The paper's values are of all images under the default settings"
    return [f"{said}, these are {', '.join(how)}."] if how else []


def columns(name: str, use_case: str) -> list[str]:
    """The titles of an experiment's columns in the paper, in its order."""
    first = next(iter(printed(name, use_case).values()), {})
    return list(first)
