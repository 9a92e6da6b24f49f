"""A unit of work: consecutive images of one split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from saod_ray.splits import SplitName

if TYPE_CHECKING:
    from saod_ray.store.ledger import Page

RUN = "run"  # the kind of what a run made; an import has other units
_NAME = re.compile(r"(\d{8})-(\d{8})")


class Unit(NamedTuple):
    """The images from `start` up to `stop` of a split's manifest."""

    split: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Its name in the ledger.

        >>> Unit("id-c3", 0, 128).name
        '00000000-00000128'
        """
        return f"{self.start:08d}-{self.stop:08d}"

    @property
    def image_count(self) -> int:
        """How many images it has.

        >>> Unit("id", 128, 200).image_count
        72
        """
        return self.stop - self.start

    @classmethod
    def named(cls, split: str, name: str) -> Unit:
        """The unit of a ledger page of a run."""
        found = _NAME.fullmatch(name)
        return cls(split, int(found[1]), int(found[2])) if found else cls(split, 0, 1 << 62)

    @property
    def severity(self) -> int:
        """The severity of the corruption of its images; 0 if they are not corrupted."""
        return SplitName(self.split).severity


def is_of_run(name: str) -> bool:
    """Whether a page's name is that of a run's unit.

    >>> is_of_run("00000000-00000128"), is_of_run("all")
    (True, False)
    """
    return _NAME.fullmatch(name) is not None


def superseded(pages: Sequence[Page]) -> list[Page]:
    """The pages of runs whose images all lie within another page's: the larger one holds the same rows."""
    mine = [
        (Unit.from_name(page.split, page.unit), page)
        for page in pages
        if page.origin.kind == RUN and is_of_run(page.unit)
    ]
    mine.sort(key=lambda each: (each[0].start, -each[0].stop))
    gone, reach = [], -1
    for unit, page in mine:
        if unit.stop <= reach:
            gone.append(page)
        reach = max(reach, unit.stop)
    return gone
