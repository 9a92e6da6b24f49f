"""What a report shows of experiments: a table, charts and words of each, made by whoever did them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from saod_ray.report.cells import Sheet
from saod_ray.report.figures import Figure

LONG = 50  # rows from which a table is left out where there are charts


@dataclass(frozen=True)
class Section:
    """One experiment."""

    name: str
    title: str
    text: str
    sheet: Sheet
    figures: dict[str, Figure] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()

    def is_drawn_only(self) -> bool:
        """Whether the charts say it all: a table that long would be a large part of the page."""
        return bool(self.figures) and len(self.sheet.rows) >= LONG


@dataclass(frozen=True)
class Experiments:
    """Those that the store's detections and the report's settings give, and the names of those made from others."""

    sections: tuple[Section, ...] = ()
    stale: tuple[str, ...] = ()

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """The charts of all of them."""
        for section in self.sections:
            yield from section.figures.items()
