"""Units of work: ranges of consecutive images of one split."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from saod_ray.splits import SplitName

if TYPE_CHECKING:
    from saod_ray.store.ledger import Page

RUN = "run"  # the kind of origin of pages that a run wrote; imports use other units
_NAME = re.compile(r"(\d{8})-(\d{8})")


class Unit(NamedTuple):
    """The images from `start` up to, not including, `stop` of a split's manifest."""

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
        """The number of images.

        >>> Unit("id", 128, 200).image_count
        72
        """
        return self.stop - self.start

    @classmethod
    def from_name(cls, split: str, name: str) -> Unit:
        """The unit of a ledger page. The unit of an import covers all images."""
        match = _NAME.fullmatch(name)
        return cls(split, int(match[1]), int(match[2])) if match else cls(split, 0, 1 << 62)

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
    """The pages of runs whose images are all in another, larger page, which has the same rows."""
    by_unit = [
        (Unit.from_name(page.split, page.unit), page)
        for page in pages
        if page.origin.kind == RUN and is_of_run(page.unit)
    ]
    by_unit.sort(key=lambda pair: (pair[0].start, -pair[0].stop))
    superseded_pages, covered_until = [], -1
    for unit, page in by_unit:
        if unit.stop <= covered_until:
            superseded_pages.append(page)
        covered_until = max(covered_until, unit.stop)
    return superseded_pages
