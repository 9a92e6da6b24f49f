"""Options that several commands have, and how the values of options are read."""

from __future__ import annotations

import math
from typing import Any

import click


class Commands(click.Group):
    """Commands in the order they are added, which is the order people need them in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, unsorted."""
        return list(self.commands)


class Number(click.FloatRange):
    """A number in a range; neither NaN, which is in every range, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        if not math.isfinite(found := super().convert(value, param, ctx)):
            self.fail(f"'{value}' is not a number that can be used here.", param, ctx)
        return found


class Share(Number):
    """A part of a GPU, in Ray's steps of a ten-thousandth, or whole ones."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number, or a usage error."""
        found = super().convert(value, param, ctx)
        if 0 < found < 1e-4 or (found > 1 and found != int(found)):
            self.fail(f"'{value}' is neither a part of a GPU (0.0001 to 1) nor a whole number of them.", param, ctx)
        return found


def names(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """A list of names, or None for all."""
    return [name.strip() for name in value.split(",") if name.strip()] if value and value != "all" else None


def actors(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """MIN:MAX, or one number for both."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    if not low.isdecimal() or not (high or low).isdecimal() or not 1 <= int(low) <= int(high or low):
        raise click.BadParameter(f"'{value}' is not MIN:MAX: give for instance 1:4.", context, parameter)
    return int(low), int(high or low)


def numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Weights: three of DAQ, two of IDQ."""
    try:
        numbers = tuple(float(part) for part in value.split(","))
    except ValueError:
        numbers = ()
    count = 3 if parameter.name == "daq_weights" else 2
    if len(numbers) != count or not all(0 <= each < float("inf") for each in numbers) or not any(numbers):
        raise click.BadParameter(f"'{value}' is not {count} weights of at least 0, separated by commas.")
    return numbers


def size(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """Bytes, from a number with or without KB, MB or GB."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    number, unit = (value[:-2], value[-2:].upper()) if value[-2:].upper() in units else (value, "")
    if not number.isdecimal() or not int(number):
        raise click.BadParameter(f"'{value}' is not a size: give for instance 20MB.", context, parameter)
    return int(number) * units.get(unit, 1)


JSON = click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
DETECTORS = click.option("--detectors", callback=names, metavar="all|A,B", help="Which detectors; all by default.")
SPLIT = click.option("--split", required=True, help="val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")
ROOT = click.option("--data", metavar="DIR|URI", help="Where the data lies; the use case's own root by default.")
WEIGHTS = click.option("--weights", metavar="DIR", help="Where weights are kept; SAOD_WEIGHTS or ./weights by default.")
ADDRESS = click.option(
    "--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); a private local one by default."
)
BATCH_SIZE = click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True,
                          help="More is faster on GPUs, but the last bits then depend on which images share a "
                          "batch.")  # fmt: skip
BOOTSTRAP_SEED = click.option("--bootstrap-seed", type=click.IntRange(0), default=0, show_default=True, metavar="SEED",
                              help="What the resamples follow from.")  # fmt: skip
FOLLOW_LINKS = click.option("--follow-links", is_flag=True,
                            help="Read images through links that lead out of the data folder.")  # fmt: skip
MAX_PIXELS = click.option("--max-pixels", type=click.IntRange(1), default=178_956_970, show_default=True,
                          help="Largest image that is decoded.")  # fmt: skip
