"""Self-aware detectors at work: predict, serve."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from saod_ray.cli import terminal
from saod_ray.cli.options import ADDRESS, BATCH_SIZE, WEIGHTS, Number, size
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.predict.predictor import Outcome, Setup
    from saod_ray.score.self_aware import SelfAware

FEW = 300  # images for which `predict` starts no Ray


SELFAWARE = click.option("--selfaware", required=True, type=click.Path(path_type=Path), metavar="FILE.json",
                         help="What `score` wrote: STORE/selfaware/DETECTOR.json.")  # fmt: skip
WHOSE = click.option("--detector", metavar="NAME|FILE.toml", help="That of the --selfaware file by default.")


@click.command()
@click.argument("images", nargs=-1, metavar="IMAGE…")
@SELFAWARE
@WHOSE
@click.option("--use-case", metavar="NAME|FILE", help="Whose detector; that of the --selfaware file by default.")
@WEIGHTS
@click.option("--draw", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write a picture of each verdict there.")  # fmt: skip
@BATCH_SIZE
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def predict(
    images: tuple[str, ...],
    selfaware: Path,
    detector: str | None,
    use_case: str | None,
    weights: str | None,
    draw: Path | None,
    batch_size: int,
    address: str | None,
    as_json: bool,
) -> int:
    """Accept or reject images, and detect on those accepted.

    IMAGE is a file, a folder, a pattern, or - for a list on stdin. More than 300 images are spread with Ray. Exit code 2
    says that some images failed.
    """
    from saod_ray.predict.drawing import picture_name
    from saod_ray.predict.files import meant
    from saod_ray.predict.predictor import Setup

    setup = Setup.of(_loaded(selfaware), detector, use_case, weights, batch_size)
    files = meant(images, _listed())
    counts = {"accepted": 0, "rejected": 0, "failed": 0}
    with ExitStack() as stack:
        outcomes = _predicted(stack, setup, files, draw is not None, address)
        progress = stack.enter_context(terminal.progress("looking at images"))
        for number, outcome in enumerate(outcomes, 1):
            drawn = None
            if draw is not None and outcome.picture is not None:
                drawn = draw / picture_name(outcome.file)
                _put(drawn, outcome.picture)
            verdict = outcome.verdict
            counts["failed" if verdict is None else "accepted" if verdict.accepted else "rejected"] += 1
            _print_outcome(outcome, drawn, as_json)
            progress(number, len(files))
    click.echo(", ".join(f"{count:,} {what}" for what, count in counts.items()), err=True)
    return 2 if counts["failed"] else 0


def _loaded(selfaware: Path) -> SelfAware:
    """The self-aware detector of a file, with a note where nothing tells whether the file was changed."""
    from saod_ray.score.self_aware import SelfAware

    aware = SelfAware.load(selfaware)
    if not aware.has_digest:
        click.echo(
            f"note: {selfaware} has no digest, as an earlier version wrote it: score again to add one.", err=True
        )
    return aware


def _listed() -> Iterator[str]:
    """The lines of stdin as names of files, which need not be UTF-8."""
    yield from map(os.fsdecode, sys.stdin.buffer)


def _predicted(stack: ExitStack, setup: Setup, files: list[str], draw: bool, address: str | None) -> Iterator[Outcome]:
    """Outcomes made in this process, or for many images on Ray, which lasts as long as the stack."""
    if address is None and len(files) <= FEW:
        from saod_ray.predict.predictor import predicted

        return predicted(setup, files, draw)
    from saod_ray.engine.cluster import connected

    stack.enter_context(connected(address))
    from saod_ray.engine.driver import Callbacks
    from saod_ray.predict.batch import predict_batch

    return predict_batch(setup, files, draw, Callbacks(on_message=lambda message: click.echo(message, err=True)))


def _put(path: Path, content: bytes) -> None:
    from saod_ray.files import Folder

    Folder(str(path.parent)).put(path.name, content, durable=False)


def _print_outcome(outcome: Outcome, drawn: Path | None, as_json: bool) -> None:
    verdict = outcome.verdict
    if as_json:
        place = {} if drawn is None else {"drawn": str(drawn)}
        click.echo(json.dumps({**outcome.to_json(), **place}, allow_nan=False))
        return
    said = verdict.summary() if verdict is not None else f"failed: {outcome.error}"
    click.echo(click.format_filename(f"{outcome.file}: {said}"))  # names may have bytes that no terminal shows
    for each in verdict.to_json()["detections"] if verdict is not None else ():
        score = "?" if each["score"] is None else f"{each['score']:.4f}"
        click.echo(f"  {each['class']} {score} [{', '.join(f'{value:.1f}' for value in each['box'])}]")


@click.command()
@SELFAWARE
@WHOSE
@click.option("--use-case", metavar="NAME|FILE", help="Whose detector; that of the --selfaware file by default.")
@WEIGHTS
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 is everywhere.")
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="A secret that requests must send as `Authorization: Bearer SECRET`; needed beyond loopback.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 is any free one.")
@click.option("--max-bytes", default="20MB", show_default=True, callback=size, help="Of a request.")
@click.option("--max-pixels", type=click.IntRange(1), default=50_000_000, show_default=True, help="Of an image.")
@click.option("--gather", type=click.IntRange(1), default=8, show_default=True, help="Requests taken together at most.")
@click.option("--wait-ms", type=Number(0), default=0.0, show_default=True,
              help="How long a request waits for others to be taken together with.")  # fmt: skip
@BATCH_SIZE
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Copies of the detector.")
@click.option("--drain", type=click.IntRange(0, 50), default=30, show_default=True, metavar="SECONDS",
              help="How long requests that are being answered have when it ends.")  # fmt: skip
@ADDRESS
def serve(
    selfaware: Path,
    detector: str | None,
    use_case: str | None,
    weights: str | None,
    host: str,
    token_file: Path | None,
    port: int,
    max_bytes: int,
    max_pixels: int,
    gather: int,
    wait_ms: float,
    batch_size: int,
    replicas: int,
    drain: int,
    address: str | None,
) -> None:
    """Answer HTTP requests: POST an image to /predict, GET /healthz. Ctrl-C or SIGTERM ends it."""
    import signal

    from saod_ray.engine.cluster import connected
    from saod_ray.predict import gate
    from saod_ray.predict.predictor import Setup

    setup = Setup.of(_loaded(selfaware), detector, use_case, weights, batch_size)
    digest = gate.token_digest(host, token_file)
    with gate.guarded(digest, replicas), connected(address):
        try:
            from saod_ray.engine.serving import Limits, serving
        except ModuleNotFoundError as error:
            raise SaodError(f"Ray Serve needs {error.name}: `pip install 'saod-ray[ray]'`.") from None
        limits = Limits(max_bytes, max_pixels, max(gather, batch_size), wait_ms / 1000, token=digest)
        with serving(setup, limits, host, port, replicas, address is None, drain) as url:
            over = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: over.set())
            click.echo(f"'{setup.entry.name}' answers at {url}: POST an image to /predict, GET /healthz.")
            while not over.wait(1.0):
                pass
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)  # the second one does not wait
