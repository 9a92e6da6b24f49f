"""The experiments section of a report: a table, charts and text per experiment, provided by the caller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from saod_ray.report.cells import Sheet
from saod_ray.report.figures import Figure

LONG = 50  # a table with so many rows is omitted if the experiment has charts


@dataclass(frozen=True)
class Section:
    """One experiment of the report."""

    name: str
    title: str
    text: str
    sheet: Sheet
    figures: dict[str, Figure] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def omits_table(self) -> bool:
        """Whether only the charts are shown, because the table would take up too much of the page."""
        return bool(self.figures) and len(self.sheet.rows) >= LONG


@dataclass(frozen=True)
class Experiments:
    """The up-to-date experiments of a store, and the names of those with other detectors, detections or settings."""

    sections: tuple[Section, ...] = ()
    stale: tuple[str, ...] = ()

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """The name and figure of every chart."""
        for section in self.sections:
            yield from section.figures.items()
