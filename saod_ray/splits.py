"""Names of splits: `val`, `pseudo-ood`, `id`, `id-c1` to `id-c5`, `ood`, and the optional `val-c1` to `val-c5`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

PSEUDO_OOD = "pseudo-ood"
_CORRUPTED = re.compile(r"(?P<source>val|id)-c(?P<severity>\d+)")


@dataclass(frozen=True)
class SplitName:
    """The name of a split, and what follows from it.

    >>> SplitName("id-c3").source, SplitName("id-c3").severity, SplitName("id-c3").is_shifted
    ('id', 3, True)
    """

    name: str

    @property
    def source(self) -> str:
        """The images that the split is made of: train, val, id or ood.

        >>> [SplitName(name).source for name in ("pseudo-ood", "val-c1", "id-c3", "ood")]
        ['val', 'val', 'id', 'ood']
        """
        corrupted = _CORRUPTED.fullmatch(self.name)
        original = "val" if self.is_pseudo_ood else corrupted["source"] if corrupted else self.name
        return original if original in ("train", "val", "id") else "ood"

    @property
    def severity(self) -> int:
        """The severity of the corruption of its images, 1 to 5; 0 if they are not corrupted.

        >>> [SplitName(name).severity for name in ("id-c3", "val-c1", "pseudo-ood")]
        [3, 1, 0]
        """
        corrupted = _CORRUPTED.fullmatch(self.name)
        return int(corrupted["severity"]) if corrupted else 0

    @property
    def is_shifted(self) -> bool:
        """Whether it is one of the corrupted copies of the ID images, which are evaluated together.

        >>> [SplitName(name).is_shifted for name in ("id-c1", "val-c1", "id")]
        [True, False, False]
        """
        return self.source == "id" and self.severity > 0

    @property
    def is_pseudo_ood(self) -> bool:
        """Whether its images are those of val with their objects blanked."""
        return self.name == PSEUDO_OOD

    @property
    def has_objects(self) -> bool:
        """Whether detections on it are matched to objects: not on OOD images, nor on blanked ones.

        >>> [SplitName(name).has_objects for name in ("val", "id-c1", "pseudo-ood", "ood")]
        [True, True, False, False]
        """
        return self.source != "ood" and not self.is_pseudo_ood


def shifted(severity: int) -> str:
    """The name of the corrupted copy of the ID images.

    >>> shifted(5)
    'id-c5'
    """
    return f"id-c{severity}"


def split_names(severities: Iterable[int], *, has_ood: bool) -> list[str]:
    """The splits of a use case, in the order in which a benchmark reads them.

    >>> split_names((1, 5), has_ood=True)
    ['val', 'pseudo-ood', 'id', 'id-c1', 'id-c5', 'ood']
    """
    return ["val", PSEUDO_OOD, "id", *map(shifted, sorted(set(severities))), *(["ood"] if has_ood else [])]


def val_shift(severities: Iterable[int]) -> list[str]:
    """Corrupted copies of val, which a store may have in addition. Only their accuracy is reported.

    >>> val_shift([1, 5])
    ['val-c1', 'val-c5']
    """
    return [f"val-c{severity}" for severity in sorted(set(severities))]
