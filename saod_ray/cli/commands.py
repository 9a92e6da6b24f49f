"""The command line: the only part that prints. Every command imports what it needs when it runs."""

from __future__ import annotations

import os
import sys

import click

from saod_ray import __version__
from saod_ray.cli.data import data
from saod_ray.cli.deploying import predict, serve
from saod_ray.cli.detectors import detectors, doctor, train
from saod_ray.cli.experiments import experiment
from saod_ray.cli.options import Commands
from saod_ray.cli.running import run
from saod_ray.cli.scoring import report, score
from saod_ray.cli.stores import diff, export, import_command, verify
from saod_ray.errors import SaodError

# nothing here needs BLAS, and its idle threads cost more than it would do; a user's own setting stands
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="saod-ray")
def cli() -> None:
    """Benchmark self-aware object detectors (SAOD): from images to DAQ, and to detectors that know when to refuse."""


for _command in (
    *(run, data, detectors, train, import_command, score, report, experiment),
    *(diff, export, verify, predict, serve, doctor),
):
    cli.add_command(_command)


def main(args: list[str] | None = None) -> None:
    """Run the command line; a user's mistake is one sentence and exit code 1."""
    try:
        code = cli.main(args=args, prog_name="saod-ray", standalone_mode=False)
    except SaodError as error:
        code = _fail(str(error), error.code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        code = 0
    except click.ClickException as error:
        context = getattr(error, "ctx", None)
        hint = f" See `{context.command_path} --help`." if context else ""
        code = _fail(error.format_message() + hint)
    except click.Abort:
        code = _fail(
            "Stopped; nothing half-written was left. The same command goes on (run, train) or begins anew.", 130
        )
    except BrokenPipeError:
        code = 0
    except (OSError, UnicodeError) as error:
        code = _fail(f"{error}: mend that and run the same command again.")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 1) -> int:
    click.echo(f"saod-ray: {' '.join(message.splitlines())}", err=True)
    return code
