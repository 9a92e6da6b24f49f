"""The paper's values: one TOML file per experiment.

A file has one table per use case with `columns` and `rows`; a row starts with its headers. Values are as printed, so
those in percent are in percent; "N/A" marks a value that the paper does not have.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from saod_ray.config import ScoreSettings
from saod_ray.errors import join_truncated

PaperTable = dict[tuple[str, ...], dict[str, float | None]]


@cache
def table(name: str, use_case: str) -> PaperTable:
    """The paper's values of an experiment by row headers and column title; empty if the paper has none."""
    file = files("saod_ray.experiment").joinpath("paper", f"{name}.toml")
    if not file.is_file():
        return {}
    content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8")).get(use_case, {})
    titles = content.get("columns", [])
    rows: PaperTable = {}
    for row in content.get("rows", []):
        headers, values = tuple(row[: -len(titles)]), row[-len(titles) :]
        numbers = [None if value == "N/A" else value for value in values]
        rows[headers] = dict(zip(titles, numbers, strict=True))
    return rows


def lookup(
    name: str, use_case: str, rows: Sequence[tuple[str, ...]], columns: Sequence[str]
) -> list[list[float | None]]:
    """The paper's value, or None, for each row (by its headers) and column; an empty list if the paper has none."""
    in_paper = table(name, use_case)
    values = [[in_paper.get(row, {}).get(column) for column in columns] for row in rows]
    return values if any(value is not None for row in values for value in row) else []


def settings_remarks(settings: ScoreSettings, partial: bool) -> list[str]:
    """A remark if the values were computed with other settings or images than the paper's.

    >>> settings_remarks(ScoreSettings(tau=0.5), partial=True)
    ["The paper's values are for all images with the default settings; these are for a partial store, with tau 0.5."]
    """
    values, defaults = settings.model_dump(mode="json"), ScoreSettings().model_dump(mode="json")
    changed = [f"{name.replace('_', '-')} {values[name]}" for name in values if values[name] != defaults[name]]
    differences = ["for a partial store"] * partial + [f"with {join_truncated(changed, 9)}"] * bool(changed)
    reference = "The paper's values are for all images with the default settings"
    return [f"{reference}; these are {', '.join(differences)}."] if differences else []


def columns(name: str, use_case: str) -> list[str]:
    """The titles of an experiment's columns in the paper, in its order."""
    first = next(iter(table(name, use_case).values()), {})
    return list(first)
