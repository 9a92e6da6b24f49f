"""What an experiment declares, and what comes out of one: a table, remarks and charts as one JSON file in the store."""

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

FORMAT = 2  # of the files: raise it when what any experiment computes changes
Value = float | int | None
Spec = dict[str, Any]  # Vega-Lite; its `description` is the figure's caption


class Column(msgspec.Struct, frozen=True):
    """A column of figures: `%` is a fraction that is shown in percent, an empty unit a number that is shown as it is."""

    title: str
    unit: str = "%"
    rising: bool | None = None  # whether more is better; None: neither


class Row(msgspec.Struct, frozen=True):
    """Heads (the detector, and what else tells rows apart) and a value for each column; None where it is undefined."""

    heads: tuple[str, ...]
    values: tuple[Value, ...]


class Remark(str):
    """A sentence below the table, for what a reader would otherwise wonder about."""


class Outcome(msgspec.Struct, frozen=True):
    """What an experiment gave on a store. `printed` has the paper's values by row and column, in its own units."""

    name: str
    paper: str
    shows: str
    use_case: str
    settings: SettingsRecord
    detectors: list[str]
    partial: bool
    key: str
    heads: list[str]
    columns: list[Column]
    rows: list[Row]
    printed: list[list[Value]]
    remarks: list[str]
    charts: dict[str, Spec] = {}
    format: int = FORMAT

    def column(self, title: str) -> list[Value]:
        """The values of a column, from the first row to the last."""
        at = [column.title for column in self.columns].index(title)
        return [row.values[at] for row in self.rows]

    def cell(self, *heads: str, column: str) -> Value:
        """One value by its row's heads and its column's title."""
        at = [row.heads for row in self.rows].index(heads)
        return self.column(column)[at]

    def json(self) -> bytes:
        """The file's text: sorted keys, the same bytes for the same store."""
        return encode_json(msgspec.to_builtins(self))


@dataclass(frozen=True)
class Experiment:
    """A declaration; `shows` has the words of the paper's caption, `needs` says what a store must hold."""

    name: str
    paper: str
    shows: str
    needs: str
    columns: tuple[Column, ...] | Callable[[ExperimentContext], tuple[Column, ...]]
    rows: Callable[[ExperimentContext], Iterable[Row | Remark]]
    heads: tuple[str, ...] = ("detector",)
    charts: Callable[[ExperimentContext, Outcome], dict[str, Spec]] | None = None


def perform(experiment: Experiment, context: ExperimentContext) -> Outcome:
    """What the store holds of this experiment if nothing it depends on changed; else it is computed and put there."""
    key = key_of(experiment.name, context.store, context.settings, context.detectors, context.partial)
    known = read(context.store, experiment.name)
    if known is not None and known.key == key:
        return known
    made = _computed(experiment, context, key)
    context.store.folder.write_if_changed(_file(experiment.name), made.json())
    return made


def _computed(experiment: Experiment, context: ExperimentContext, key: str) -> Outcome:
    said = list(experiment.rows(context))
    rows = [each for each in said if isinstance(each, Row)]
    remarks = list(dict.fromkeys(str(each) for each in said if isinstance(each, Remark)))
    if not any(value is not None for row in rows for value in row.values):
        why = f" ({join_truncated(remark.rstrip('.') for remark in remarks)})" if remarks else ""
        raise SaodError(
            f"'{experiment.name}' cannot be done with {context.store.uri}{why}: it needs {experiment.needs}"
        )
    columns = experiment.columns(context) if callable(experiment.columns) else experiment.columns
    use_case = context.store.description.name
    printed = paper.beside(experiment.name, use_case, [row.heads for row in rows], [c.title for c in columns])
    if printed:
        remarks += paper.unlike(context.settings, context.partial)
    outcome = Outcome(
        name=experiment.name,
        paper=experiment.paper,
        shows=experiment.shows,
        use_case=use_case,
        settings=msgspec.convert(context.settings.model_dump(mode="json"), SettingsRecord),
        detectors=list(context.detectors),
        partial=context.partial,
        key=key,
        heads=list(experiment.heads),
        columns=list(columns),
        rows=rows,
        printed=printed,
        remarks=remarks,
    )
    if experiment.charts is None:
        return outcome
    drawn = json.loads(json.dumps(experiment.charts(context, outcome), allow_nan=False))
    return msgspec.structs.replace(outcome, charts=drawn)


def key_of(name: str, store: Store, settings: ScoreSettings, detectors: Sequence[str], partial: bool) -> str:
    """A digest of all that an outcome depends on: shards, ground truth, settings and what the code computes."""
    parts = ["experiment", FORMAT, SCORE_FORMAT, name, settings.model_dump_json(), partial]
    parts += [store.description.name, *store.description.manifests.values()]
    for detector in sorted(detectors):
        for split in [*store.splits, *store.extra_splits(detector)]:
            parts += [detector, split, *(shard.sha256 for shard in store.shards(detector, split))]
    return cache_key(*parts)[3:]


def read(store: Store, name: str) -> Outcome | None:
    """The outcome that the store holds; None where there is none that this version can read."""
    try:
        found = msgspec.json.decode(store.folder.read(_file(name)), type=Outcome)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.format == FORMAT else None


def _file(name: str) -> str:
    return f"experiments/{name}.json"
