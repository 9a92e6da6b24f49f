"""The declaration of an experiment, and its outcome: a table, remarks and charts in one JSON file of the store.

The file's keys are older than some of the attribute names; `rename` maps the ones to the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from saod_ray.errors import SaodError, join_truncated
from saod_ray.experiment import paper
from saod_ray.score.results import SettingsRecord
from saod_ray.score.split import FORMAT as SCORE_FORMAT
from saod_ray.store.cache import cache_key
from saod_ray.store.seals import encode_json

if TYPE_CHECKING:
    from saod_ray.config import ScoreSettings
    from saod_ray.experiment.context import ExperimentContext
    from saod_ray.store.store import Store

FORMAT = 2  # of the files; increment it when any experiment computes something else
Value = float | int | None
Spec = dict[str, Any]  # a Vega-Lite specification, whose `description` is the caption


class Column(msgspec.Struct, frozen=True, rename={"higher_is_better": "rising"}):
    """A column of values. The unit `%` means fractions that are displayed in percent; an empty unit means numbers."""

    title: str
    unit: str = "%"
    higher_is_better: bool | None = None  # None if neither is better


class Row(msgspec.Struct, frozen=True, rename={"headers": "heads"}):
    """Row headers (the detector, and whatever else identifies the row) and one value per column, None if undefined."""

    headers: tuple[str, ...]
    values: tuple[Value, ...]


class Remark(str):
    """A sentence that is shown below the table."""


class Outcome(msgspec.Struct, frozen=True, rename={"headers": "heads", "paper_values": "printed"}):
    """The outcome of an experiment on a store.

    `headers` are the titles of the row headers. `paper_values` has the paper's values by row and column, as printed
    there; it is empty if the paper has none.
    """

    name: str
    paper: str
    shows: str
    use_case: str
    settings: SettingsRecord
    detectors: list[str]
    partial: bool
    key: str
    headers: list[str]
    columns: list[Column]
    rows: list[Row]
    paper_values: list[list[Value]]
    remarks: list[str]
    charts: dict[str, Spec] = {}
    format: int = FORMAT

    def column(self, title: str) -> list[Value]:
        """The values of a column, one per row."""
        index = [column.title for column in self.columns].index(title)
        return [row.values[index] for row in self.rows]

    def cell(self, *headers: str, column: str) -> Value:
        """The value in the row with these headers and the column with this title."""
        index = [row.headers for row in self.rows].index(headers)
        return self.column(column)[index]

    def json(self) -> bytes:
        """The content of the file: sorted keys, and the same bytes for the same store."""
        return encode_json(msgspec.to_builtins(self))


@dataclass(frozen=True)
class Experiment:
    """The declaration of an experiment.

    `paper` names the table or figure, `shows` follows its caption, and `needs` says what the store must contain.
    `rows` computes the table; `charts` draws it.
    """

    name: str
    paper: str
    shows: str
    needs: str
    columns: tuple[Column, ...] | Callable[[ExperimentContext], tuple[Column, ...]]
    rows: Callable[[ExperimentContext], Iterable[Row | Remark]]
    headers: tuple[str, ...] = ("detector",)
    charts: Callable[[ExperimentContext, Outcome], dict[str, Spec]] | None = None


def perform(experiment: Experiment, context: ExperimentContext) -> Outcome:
    """The outcome stored in the store if it is up to date; otherwise compute and store it.

    Raises:
        SaodError: No detector has what the experiment needs.
    """
    key = outcome_key(experiment.name, context.store, context.settings, context.detectors, context.partial)
    stored = read_outcome(context.store, experiment.name)
    if stored is not None and stored.key == key:
        return stored
    outcome = _compute(experiment, context, key)
    context.store.folder.write_if_changed(_file(experiment.name), outcome.json())
    return outcome


def _compute(experiment: Experiment, context: ExperimentContext, key: str) -> Outcome:
    lines = list(experiment.rows(context))
    rows = [line for line in lines if isinstance(line, Row)]
    remarks = list(dict.fromkeys(str(line) for line in lines if isinstance(line, Remark)))
    if not any(value is not None for row in rows for value in row.values):
        reason = f" ({join_truncated(remark.rstrip('.') for remark in remarks)})" if remarks else ""
        raise SaodError(
            f"'{experiment.name}' cannot be computed from {context.store.uri}{reason}: it needs {experiment.needs}"
        )
    columns = experiment.columns(context) if callable(experiment.columns) else experiment.columns
    use_case = context.store.description.name
    titles = [column.title for column in columns]
    paper_values = paper.lookup(experiment.name, use_case, [row.headers for row in rows], titles)
    if paper_values:
        remarks += paper.settings_remarks(context.settings, context.partial)
    outcome = Outcome(
        name=experiment.name,
        paper=experiment.paper,
        shows=experiment.shows,
        use_case=use_case,
        settings=msgspec.convert(context.settings.model_dump(mode="json"), SettingsRecord),
        detectors=list(context.detectors),
        partial=context.partial,
        key=key,
        headers=list(experiment.headers),
        columns=list(columns),
        rows=rows,
        paper_values=paper_values,
        remarks=remarks,
    )
    if experiment.charts is None:
        return outcome
    charts = json.loads(json.dumps(experiment.charts(context, outcome), allow_nan=False))
    return msgspec.structs.replace(outcome, charts=charts)


def outcome_key(name: str, store: Store, settings: ScoreSettings, detectors: Sequence[str], partial: bool) -> str:
    """A digest of everything an outcome depends on: shards, ground truth, settings and the version of the code."""
    parts = ["experiment", FORMAT, SCORE_FORMAT, name, settings.model_dump_json(), partial]
    parts += [store.description.name, *store.description.manifests.values()]
    for detector in sorted(detectors):
        for split in [*store.splits, *store.extra_splits(detector)]:
            parts += [detector, split, *(shard.sha256 for shard in store.shards(detector, split))]
    return cache_key(*parts)[3:]


def read_outcome(store: Store, name: str) -> Outcome | None:
    """The stored outcome of an experiment; None if there is none that this version can read."""
    try:
        outcome = msgspec.json.decode(store.folder.read(_file(name)), type=Outcome)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return outcome if outcome.format == FORMAT else None


def _file(name: str) -> str:
    return f"experiments/{name}.json"
