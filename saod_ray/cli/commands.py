"""The entry point of the command line.

Modules of commands are imported when a command is used, and they import what they need when it runs, so that `--help` is
quick.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from saod_ray import __version__
from saod_ray.cli.options import DOCS, OneOf
from saod_ray.errors import SaodError, did_you_mean, os_error_sentence

LOG_LEVEL = OneOf("debug", "info", "warning", "error")
RESUMABLE = ("run", "train")
HELP_OPTIONS = ["-h", "--help"]
MAX_WIDTH = 110  # characters of a line of the help
INTERRUPTED = 130  # exit code after Ctrl-C
logger = logging.getLogger("saod_ray")

# nothing here needs BLAS, and its idle threads cost more than they bring; a user's own setting is kept
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class CommandEntry(NamedTuple):
    """Where a command is defined, and its line in `saod-ray --help`."""

    panel: str
    module: str  # in saod_ray.cli
    summary: str  # the first sentence of its docstring


RUN, RESULTS, STORES, USE, MACHINE = "Run", "Results", "Stores", "Use a self-aware detector", "This machine"
COMMANDS = {
    "run": CommandEntry(RUN, "run", "Run detectors over a use case into a store, and score it."),
    "data": CommandEntry(RUN, "data", "Build, count and preview the images of a use case."),
    "detectors": CommandEntry(RUN, "detectors", "List the detectors, and which of them have weights here."),
    "train": CommandEntry(RUN, "detectors", "Train a detector on a use case's train split."),
    "score": CommandEntry(RESULTS, "score", "Compute every metric from a store's detections, without inference."),
    "report": CommandEntry(RESULTS, "results", "Write results as one HTML file that needs no network."),
    "experiment": CommandEntry(RESULTS, "experiments", "Reproduce an experiment of the paper, without inference."),
    "diff": CommandEntry(RESULTS, "results", "Show what changed between two results, or between two detectors of one."),
    "leaderboard": CommandEntry(RESULTS, "results", "Join the results of many stores into one table and one page."),
    "import": CommandEntry(STORES, "stores", "Import detections of any tool into a store."),
    "export": CommandEntry(STORES, "stores", "Write a split's detections as a COCO result list."),
    "verify": CommandEntry(STORES, "stores", "Check that every shard is intact and every image accounted for."),
    "predict": CommandEntry(USE, "predict", "Accept or reject images, and detect on those accepted."),
    "serve": CommandEntry(USE, "predict", "Answer HTTP requests: POST an image to /predict, GET /healthz."),
    "doctor": CommandEntry(MACHINE, "detectors", "Show what this machine can run, and how to install the rest."),
}


class LazyGroup(TyperGroup):
    """A group that imports the module of a command when the command is used."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of the commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        if cmd_name not in self.commands and cmd_name in COMMANDS:
            module = import_module(f"saod_ray.cli.{COMMANDS[cmd_name].module}")
            self.commands.update(typer.main.get_group(module.app).commands)
            for command in self.commands.values():
                _hide_type_of_help(command, ctx)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first argument names; a similar name is suggested for one that does not exist."""
        if args[0] not in COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            raise SaodError(f"No such command '{args[0]}'{did_you_mean(args[0], COMMANDS)}: see `saod-ray --help`.")
        return super().resolve_command(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help in panels as typer's, without rich, whose import takes longer than all the rest."""
        width = min(typer.get_terminal_size().columns, MAX_WIDTH)
        options = [record for option in self.get_params(ctx) if (record := option.get_help_record(ctx))]
        rows: dict[str, list[tuple[str, str]]] = {"Options": options}
        for name, entry in COMMANDS.items():
            rows.setdefault(entry.panel, []).append((name, entry.summary))
        lines = ["", f" Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...", ""]
        lines += [*textwrap.wrap(self.help or "", width, initial_indent=" ", subsequent_indent=" "), ""]
        left = max(len(name) for panel in rows.values() for name, _ in panel)
        for title, panel in rows.items():
            lines += _panel(title, panel, left, width)
        lines += [" `saod-ray COMMAND --help` explains a command.", f" More: {DOCS}/start.md", ""]
        typer.echo("\n".join(lines))


def _panel(title: str, rows: Sequence[tuple[str, str]], left: int, width: int) -> list[str]:
    """The lines of a box with a title and two columns, of which the first has `left` characters."""
    right = max(width - left - 6, 20)
    lines = [f"╭─ {title} {'─' * (left + right - len(title) + 1)}╮"]
    for name, text in rows:
        for number, part in enumerate(textwrap.wrap(text, right)):
            label = f"{'' if number else name:<{left}}"
            if "NO_COLOR" not in os.environ:
                label = typer.style(label, fg="cyan", bold=True)
            lines.append(f"│ {label}  {part:<{right}} │")
    return [*lines, f"╰{'─' * (left + right + 4)}╯"]


def _hide_type_of_help(command: Any, ctx: Any) -> None:
    """Show `--help` without a type, as other flags."""
    if (option := command.get_help_option(ctx)) is not None:
        option.metavar = ""
    for subcommand in getattr(command, "commands", {}).values():
        _hide_type_of_help(subcommand, ctx)


class StderrHandler(logging.Handler):
    """Writes log records to what stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, with the traceback of its exception and of the causes."""
        typer.echo(self.format(record), err=True)


def configure_logging(level: str) -> None:
    """Show the records of the `saod_ray` logger from this level on; may be called again."""
    logger.setLevel(level.upper())
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        handler = StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


def _print_version(ctx: typer.Context, is_asked: bool) -> None:
    if is_asked and not ctx.resilient_parsing:
        typer.echo(f"saod-ray, version {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=LazyGroup,
    name="saod-ray",
    context_settings={"help_option_names": HELP_OPTIONS, "max_content_width": MAX_WIDTH},
    pretty_exceptions_enable=False,
)


@app.callback()
def root(
    log_level: Annotated[
        str,
        typer.Option(
            "--log-level",
            metavar="LEVEL",
            parser=LOG_LEVEL,
            autocompletion=LOG_LEVEL.complete,
            help="What to log to stderr: debug, info, warning or error. debug adds tracebacks to error messages.",
        ),
    ] = "warning",
    version: Annotated[
        bool,
        typer.Option(
            "--version", metavar="", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Benchmark self-aware object detectors (SAOD): from images to DAQ, and to detectors that know when to refuse."""
    configure_logging(log_level)


cli: Any = typer.main.get_command(app)


def find_command(*words: str) -> tuple[Any, list[str]]:
    """The command that the first words name, and the remaining words. SaodError if there is no such command."""
    command, rest = cli, list(words)
    while rest and not rest[0].startswith("-") and isinstance(command, TyperGroup):
        _, command, rest = command.resolve_command(typer.Context(command, help_option_names=HELP_OPTIONS), rest)
    return command, rest


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line. A user's mistake is one sentence on stderr and exit code 1."""
    words = list(sys.argv[1:] if args is None else args)
    try:
        code = cli.main(args=words or ["--help"], prog_name="saod-ray", standalone_mode=False)
        if code == INTERRUPTED:
            _fail(_stopped(words))
    except SaodError as error:
        logger.debug("The command failed.", exc_info=error)
        code = _fail(str(error), error.code)
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        hint = f". See `{context.command_path} --help`." if context else ""
        message = error.format_message()  # empty where typer has printed the help, for want of a subcommand
        code = _fail(message.rstrip(".") + hint) if message else 0
    except (typer.Abort, KeyboardInterrupt):
        code = _fail(_stopped(words), INTERRUPTED)
    except BrokenPipeError:
        code = 0
    except (OSError, UnicodeError) as error:
        logger.debug("The command failed.", exc_info=error)
        code = _fail(os_error_sentence(error))
    sys.exit(code if isinstance(code, int) else 0)


def _stopped(words: Sequence[str]) -> str:
    """The sentence after Ctrl-C."""
    command = next((word for word in words if word in COMMANDS), "")
    effect = "resume" if command in RESUMABLE else "start over"
    return f"Stopped; no file was left half-written. To {effect}, run: {shlex.join(['saod-ray', *words])}"


def _fail(message: str, code: int = 1) -> int:
    typer.echo(f"saod-ray: {' '.join(message.splitlines())}", err=True)
    return code
