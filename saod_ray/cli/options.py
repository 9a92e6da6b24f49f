"""Options that several commands share, panels of the help, and parsers for the values of options."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from saod_ray.cli import completion
from saod_ray.errors import did_you_mean

DOCS = "https://github.com/your-organisation/saod-ray/blob/main/docs"
# panels of the help of commands
WHAT, WHERE, CLUSTER, SCORING = "What to run", "Where", "Ray cluster", "Scoring"
DRY_RUN, OUTPUT, ADVANCED = "Dry run", "Output", "Advanced"


def examples(*commands: str, page: str) -> str:
    """The last lines of a command's help: examples, and a link to its page in docs/."""
    lines = [f"  saod-ray {command}" for command in commands]
    return "\n\n".join(["Examples:", *lines, f"More: {DOCS}/{page}"])


# parsers --------------------------------------------------------------------------------------------------------------


class Whole:
    """Parses a whole number in a range."""

    def __init__(self, low: int, high: int | None = None) -> None:
        self._low, self._high = low, high

    def __call__(self, value: Any) -> int:
        """The number. Raises BadParameter, which becomes one sentence."""
        text = str(value)
        limits = f"of at least {self._low}" if self._high is None else f"from {self._low} to {self._high}"
        if text.removeprefix("-").isdecimal() and text.isascii():
            number = int(text)
            if self._low <= number and (self._high is None or number <= self._high):
                return number
        raise typer.BadParameter(f"'{text}' is not a whole number {limits}.")


class Number:
    """Parses a finite number in a range; `is_open` excludes the lower end."""

    def __init__(self, low: float = -math.inf, high: float = math.inf, *, is_open: bool = False) -> None:
        self._low, self._high, self._is_open = low, high, is_open

    def __call__(self, value: Any) -> float:
        """The number. Raises BadParameter, which becomes one sentence."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        is_low = number <= self._low if self._is_open else number < self._low
        if math.isfinite(number) and not is_low and number <= self._high:
            return number
        raise typer.BadParameter(f"'{value}' is not a number{self._limits()}.")

    def _limits(self) -> str:
        if math.isfinite(self._high):
            return f" from {self._low:g} to {self._high:g}"
        if math.isfinite(self._low):
            return f" above {self._low:g}" if self._is_open else f" of at least {self._low:g}"
        return " that can be used here"


class GpuShare(Number):
    """Parses a fraction of a GPU, of which Ray keeps four decimals, or a whole number of GPUs."""

    def __call__(self, value: Any) -> float:
        """The number. Raises BadParameter, which becomes one sentence."""
        number = super().__call__(value)
        if 0 < number < 1e-4 or (number > 1 and number != int(number)):
            raise typer.BadParameter(f"'{value}' is neither a part of a GPU (0.0001 to 1) nor a whole number of them.")
        return number


class OneOf:
    """Parses one of several names."""

    def __init__(self, *names: str) -> None:
        self._names = names

    def __call__(self, value: Any) -> str:
        """The name. Raises BadParameter, which becomes one sentence."""
        if value not in self._names:
            raise typer.BadParameter(
                f"'{value}' is not one of {', '.join(self._names)}{did_you_mean(str(value), self._names)}."
            )
        return str(value)

    def complete(self, incomplete: str) -> list[str]:
        """The names that begin with what was typed, for the shell."""
        return [name for name in self._names if name.startswith(incomplete)]


def local_path(value: Any) -> Path:
    """A path on this machine. Raises BadParameter for a URI, which `Path` would turn into a strange local name."""
    if "://" in str(value):
        raise typer.BadParameter(f"'{value}' is a URI: give a path on this machine.")
    return Path(value)


def split_names(value: str | None) -> list[str] | None:
    """A list of names from `A,B`; None for all."""
    return [name.strip() for name in value.split(",") if name.strip()] if value and value != "all" else None


def parse_actors(value: str | None) -> tuple[int, int] | None:
    """MIN:MAX, or one number for both."""
    if value is None:
        return None
    low, _, high = value.partition(":")
    if not low.isdecimal() or not (high or low).isdecimal() or not 1 <= int(low) <= int(high or low):
        raise typer.BadParameter(f"'{value}' is not MIN:MAX: give for instance 1:4.", param_hint="'--actors'")
    return int(low), int(high or low)


def parse_weights(option: str, value: str, count: int) -> tuple[float, ...]:
    """Weights separated by commas."""
    try:
        weights = tuple(float(part) for part in value.split(","))
    except ValueError:
        weights = ()
    if len(weights) != count or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        message = f"'{value}' is not {count} weights of at least 0, separated by commas."
        raise typer.BadParameter(message, param_hint=f"'{option}'")
    return weights


def parse_bytes(option: str, value: str) -> int:
    """A number of bytes, written with or without KB, MB or GB."""
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    number, unit = (value[:-2], value[-2:].upper()) if value[-2:].upper() in units else (value, "")
    if not number.isdecimal() or not int(number):
        raise typer.BadParameter(f"'{value}' is not a size: give for instance 20MB.", param_hint=f"'{option}'")
    return int(number) * units.get(unit, 1)


def selected_params(names: Sequence[str], context: typer.Context) -> dict[str, Any]:
    """The values of these parameters of a command, by name."""
    return {name: context.params[name] for name in names}


# shared options -------------------------------------------------------------------------------------------------------

StoreArgument = Annotated[
    str,
    typer.Argument(
        metavar="STORE", help="Folder or URI of a store.", show_default=False, autocompletion=completion.stores
    ),
]
Json = Annotated[bool, typer.Option("--json", metavar="", help="Print JSON on stdout.", rich_help_panel=OUTPUT)]
Detectors = Annotated[
    str,
    typer.Option(
        "--detectors",
        metavar="NAMES",
        help="Detectors to use: names separated by commas, or all.",
        autocompletion=completion.detectors,
    ),
]
Split = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.",
        show_default=False,
        autocompletion=completion.splits,
    ),
]
UseCaseName = Annotated[
    str,
    typer.Option(
        "--use-case",
        metavar="NAME",
        help="shapes, gen or av, or a use case TOML file.",
        rich_help_panel=WHAT,
        autocompletion=completion.use_cases,
    ),
]
Data = Annotated[
    str | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Folder or URI of the images.",
        show_default="the use case's own root",
        rich_help_panel=WHERE,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights",
        metavar="DIR",
        help="Folder of weights.",
        show_default="$SAOD_WEIGHTS or ./weights",
        rich_help_panel=WHERE,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Ray cluster to use: auto, HOST:PORT or ray://HOST:PORT.",
        show_default="a private one on this machine",
        rich_help_panel=CLUSTER,
    ),
]
BatchSize = Annotated[
    int,
    typer.Option(
        "--batch-size",
        metavar="N",
        parser=Whole(1),
        help="Images per batch. More is faster on GPUs, but the last bits of detections then depend on which images "
        "share a batch.",
        rich_help_panel=ADVANCED,
    ),
]
BootstrapSeed = Annotated[
    int,
    typer.Option(
        "--bootstrap-seed",
        metavar="N",
        parser=Whole(0),
        help="Random seed of the resamples.",
        rich_help_panel=ADVANCED,
    ),
]
FollowLinks = Annotated[
    bool,
    typer.Option(
        "--follow-links", metavar="", help="Follow links that lead out of the data folder.", rich_help_panel=ADVANCED
    ),
]
MaxPixels = Annotated[
    int,
    typer.Option(
        "--max-pixels", metavar="N", parser=Whole(1), help="Largest image to decode.", rich_help_panel=ADVANCED
    ),
]
Partial = Annotated[
    bool,
    typer.Option("--partial", metavar="", help="Accept stores in which images are missing; results are marked."),
]
MAX_PIXELS = 178_956_970
