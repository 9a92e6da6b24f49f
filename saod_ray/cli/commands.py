"""The entry point of the command line. Commands import what they need when they run, so that `--help` is quick."""

from __future__ import annotations

import logging
import os
import sys

import click

from saod_ray import __version__
from saod_ray.cli.data import data
from saod_ray.cli.detectors import detectors, doctor, train
from saod_ray.cli.experiments import experiment
from saod_ray.cli.options import OrderedGroup
from saod_ray.cli.predict import predict, serve
from saod_ray.cli.run import run
from saod_ray.cli.score import report, score
from saod_ray.cli.stores import diff, export, import_command, verify
from saod_ray.errors import SaodError

LOG_LEVELS = ("debug", "info", "warning", "error")
STOPPED = (
    "Stopped; no file was left half-written. Run the same command again: run and train resume, the others start over."
)
logger = logging.getLogger("saod_ray")

# nothing here needs BLAS, and its idle threads cost more than they bring; a user's own setting is kept
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


class StderrHandler(logging.Handler):
    """Writes log records to what stderr is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, with the traceback of its exception and of the causes."""
        click.echo(self.format(record), err=True)


def configure_logging(level: str) -> None:
    """Show the records of the `saod_ray` logger from this level on; may be called again."""
    logger.setLevel(level.upper())
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        handler = StderrHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(handler)


@click.group(cls=OrderedGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--log-level", type=click.Choice(LOG_LEVELS, case_sensitive=False), default="warning", show_default=True,
              help="What to log to stderr; debug adds tracebacks to error messages.")  # fmt: skip
@click.version_option(__version__, prog_name="saod-ray")
def cli(log_level: str) -> None:
    """Benchmark self-aware object detectors (SAOD): from images to DAQ, and to detectors that know when to refuse."""
    configure_logging(log_level)


for _command in (
    *(run, data, detectors, train, import_command, score, report, experiment),
    *(diff, export, verify, predict, serve, doctor),
):
    cli.add_command(_command)


def main(args: list[str] | None = None) -> None:
    """Run the command line. A user's mistake is one sentence on stderr and exit code 1."""
    try:
        code = cli.main(args=args, prog_name="saod-ray", standalone_mode=False)
    except SaodError as error:
        logger.debug("The command failed.", exc_info=error)
        code = _fail(str(error), error.code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        code = 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" See `{context.command_path} --help`." if context else ""
        code = _fail(error.format_message() + hint)
    except click.Abort:
        code = _fail(STOPPED, 130)
    except BrokenPipeError:
        code = 0
    except (OSError, UnicodeError) as error:
        logger.debug("The command failed.", exc_info=error)
        code = _fail(f"{error}: fix the cause and run the same command again.")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 1) -> int:
    click.echo(f"saod-ray: {' '.join(message.splitlines())}", err=True)
    return code
