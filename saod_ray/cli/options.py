"""Options that several commands share, and parsers for the values of options."""

from __future__ import annotations

import math
from typing import Any

import click


class OrderedGroup(click.Group):
    """A group that lists its commands in the order in which they were added."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return list(self.commands)


class FiniteFloat(click.FloatRange):
    """A number in a range. NaN, which click finds in every range, and infinity are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises a usage error."""
        if not math.isfinite(number := super().convert(value, param, ctx)):
            self.fail(f"'{value}' is not a number that can be used here.", param, ctx)
        return number


class GpuShare(FiniteFloat):
    """A fraction of a GPU, of which Ray keeps four decimals, or a whole number of GPUs."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The number; raises a usage error."""
        number = super().convert(value, param, ctx)
        if 0 < number < 1e-4 or (number > 1 and number != int(number)):
            self.fail(f"'{value}' is neither a part of a GPU (0.0001 to 1) nor a whole number of them.", param, ctx)
        return number


def parse_names(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """A list of names, or None for all."""
    return [name.strip() for name in value.split(",") if name.strip()] if value and value != "all" else None


def parse_actors(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """MIN:MAX, or one number for both."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    if not low.isdecimal() or not (high or low).isdecimal() or not 1 <= int(low) <= int(high or low):
        raise click.BadParameter(f"'{value}' is not MIN:MAX: give for instance 1:4.", context, parameter)
    return int(low), int(high or low)


def parse_weights(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    """Weights separated by commas: three for DAQ, two for IDQ."""
    try:
        weights = tuple(float(part) for part in value.split(","))
    except ValueError:
        weights = ()
    count = 3 if parameter.name == "daq_weights" else 2
    if len(weights) != count or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise click.BadParameter(f"'{value}' is not {count} weights of at least 0, separated by commas.")
    return weights


def parse_bytes(context: click.Context, parameter: click.Parameter, value: str) -> int:
    """A number of bytes, written with or without KB, MB or GB."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    number, unit = (value[:-2], value[-2:].upper()) if value[-2:].upper() in units else (value, "")
    if not number.isdecimal() or not int(number):
        raise click.BadParameter(f"'{value}' is not a size: give for instance 20MB.", context, parameter)
    return int(number) * units.get(unit, 1)


JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
DETECTORS = click.option(
    "--detectors", callback=parse_names, metavar="all|A,B", help="Detectors to use; all by default."
)
SPLIT = click.option("--split", required=True, help="val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")
ROOT = click.option("--data", metavar="DIR|URI", help="Data folder; the use case's own root by default.")
WEIGHTS = click.option("--weights", metavar="DIR", help="Folder of weights; SAOD_WEIGHTS or ./weights by default.")
ADDRESS = click.option(
    "--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); a private local one by default."
)
BATCH_SIZE = click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True,
                          help="Images per batch. More is faster on GPUs, but the last bits of detections then depend "
                          "on which images share a batch.")  # fmt: skip
BOOTSTRAP_SEED = click.option("--bootstrap-seed", type=click.IntRange(0), default=0, show_default=True, metavar="SEED",
                              help="Random seed for the resamples.")  # fmt: skip
FOLLOW_LINKS = click.option("--follow-links", is_flag=True,
                            help="Follow links that lead out of the data folder.")  # fmt: skip
MAX_PIXELS = click.option("--max-pixels", type=click.IntRange(1), default=178_956_970, show_default=True,
                          help="Largest image to decode.")  # fmt: skip
