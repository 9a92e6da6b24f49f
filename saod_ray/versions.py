"""Versions of installed packages, which fingerprints, results and records of runs name."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version


def package_version(name: str) -> str | None:
    """The version of an installed package; None if it is not installed.

    >>> package_version("no-such-package") is None
    True
    """
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def public_version(name: str) -> str | None:
    """The version without its build (`+cpu`, `+cu128`): builds of one version have the same code."""
    full = package_version(name)
    return None if full is None else full.partition("+")[0]


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """The versions of packages by name; an empty string if a package is not installed."""
    return {name: package_version(name) or "" for name in names}
