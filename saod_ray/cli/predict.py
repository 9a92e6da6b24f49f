"""`saod-ray predict` and `serve`: apply a self-aware detector to images."""

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
from saod_ray.cli.options import ADDRESS, BATCH_SIZE, WEIGHTS, FiniteFloat, parse_bytes
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.predict.predictor import Prediction, PredictorConfig
    from saod_ray.score.self_aware import SelfAware

MAX_WITHOUT_RAY = 300  # images that `predict` handles in this process

SELFAWARE = click.option("--selfaware", required=True, type=click.Path(path_type=Path), metavar="FILE.json",
                         help="Self-aware detector that `score` wrote: STORE/selfaware/DETECTOR.json.")  # fmt: skip
DETECTOR = click.option("--detector", metavar="NAME|FILE.toml", help="That of the --selfaware file by default.")
USE_CASE = click.option("--use-case", metavar="NAME|FILE", help="That of the --selfaware file by default.")


@click.command()
@click.argument("images", nargs=-1, metavar="IMAGE…")
@SELFAWARE
@DETECTOR
@USE_CASE
@WEIGHTS
@click.option("--draw", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Folder for a picture of each verdict.")  # fmt: skip
@BATCH_SIZE
@ADDRESS
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per image and line.")
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

    IMAGE is a file, a folder, a pattern, or - for a list on stdin. More than 300 images are distributed with Ray. The
    exit code is 2 if some images failed.
    """
    from saod_ray.predict.drawing import picture_name
    from saod_ray.predict.files import resolve_inputs
    from saod_ray.predict.predictor import PredictorConfig

    config = PredictorConfig.from_self_aware(
        _load(selfaware), detector, use_case=use_case, weights=weights, batch_size=batch_size
    )
    files = resolve_inputs(images, _stdin_lines())
    counts = {"accepted": 0, "rejected": 0, "failed": 0}
    with ExitStack() as stack:
        predictions = _predictions(stack, config, files, draw is not None, address)
        progress = stack.enter_context(terminal.progress("looking at images"))
        for number, prediction in enumerate(predictions, 1):
            picture = None
            if draw is not None and prediction.picture is not None:
                picture = draw / picture_name(prediction.file)
                _write_picture(picture, prediction.picture)
            verdict = prediction.verdict
            counts["failed" if verdict is None else "accepted" if verdict.accepted else "rejected"] += 1
            _print_prediction(prediction, picture, as_json)
            progress(number, len(files))
    click.echo(", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()), err=True)
    return 2 if counts["failed"] else 0


def _load(selfaware: Path) -> SelfAware:
    """The self-aware detector in a file; a file without a digest, which may have been changed, gets a note."""
    from saod_ray.score.self_aware import SelfAware

    self_aware = SelfAware.load(selfaware)
    if not self_aware.has_digest:
        click.echo(
            f"note: {selfaware} has no digest, as an earlier version wrote it: score again to add one.", err=True
        )
    return self_aware


def _stdin_lines() -> Iterator[str]:
    """The lines of stdin as file names, which need not be UTF-8."""
    yield from map(os.fsdecode, sys.stdin.buffer)


def _predictions(
    stack: ExitStack, config: PredictorConfig, files: list[str], draw: bool, address: str | None
) -> Iterator[Prediction]:
    """Predict in this process, or for many images on Ray, which stays connected as long as the stack."""
    if address is None and len(files) <= MAX_WITHOUT_RAY:
        from saod_ray.predict.predictor import predict_files

        return predict_files(config, files, draw=draw)
    from saod_ray.engine.cluster import connected

    stack.enter_context(connected(address))
    from saod_ray.engine.driver import Callbacks
    from saod_ray.predict.batch import predict_batch

    callbacks = Callbacks(on_message=lambda message: click.echo(message, err=True))
    return predict_batch(config, files, draw=draw, callbacks=callbacks)


def _write_picture(path: Path, content: bytes) -> None:
    from saod_ray.files import Folder

    Folder(str(path.parent)).put(path.name, content, durable=False)


def _print_prediction(prediction: Prediction, picture: Path | None, as_json: bool) -> None:
    verdict = prediction.verdict
    if as_json:
        location = {} if picture is None else {"drawn": str(picture)}
        click.echo(json.dumps({**prediction.to_json(), **location}, allow_nan=False))
        return
    summary = verdict.summary() if verdict is not None else f"failed: {prediction.error}"
    click.echo(click.format_filename(f"{prediction.file}: {summary}"))  # names may have bytes that no terminal shows
    for detection in verdict.to_json()["detections"] if verdict is not None else ():
        score = "?" if detection["score"] is None else f"{detection['score']:.4f}"
        click.echo(f"  {detection['class']} {score} [{', '.join(f'{value:.1f}' for value in detection['box'])}]")


@click.command()
@SELFAWARE
@DETECTOR
@USE_CASE
@WEIGHTS
@click.option(
    "--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every interface."
)
@click.option("--token-file", type=click.Path(path_type=Path), metavar="FILE",
              help="A secret that requests must send as `Authorization: Bearer SECRET`; needed beyond loopback.")  # fmt: skip
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="Port to listen on; 0 picks a free one.",
)
@click.option("--max-bytes", default="20MB", show_default=True, callback=parse_bytes, help="Largest request.")
@click.option("--max-pixels", type=click.IntRange(1), default=50_000_000, show_default=True, help="Largest image.")
@click.option(
    "--gather", type=click.IntRange(1), default=8, show_default=True, help="Requests per call of the detector, at most."
)
@click.option("--wait-ms", type=FiniteFloat(0), default=0.0, show_default=True,
              help="How long a call waits for more requests.")  # fmt: skip
@BATCH_SIZE
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Copies of the detector.")
@click.option("--drain", type=click.IntRange(0, 50), default=30, show_default=True, metavar="SECONDS",
              help="Time for requests in flight to finish at the end.")  # fmt: skip
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
    """Answer HTTP requests: POST an image to /predict, GET /healthz. Ctrl-C or SIGTERM stops it."""
    import signal

    from saod_ray.engine.cluster import connected
    from saod_ray.predict import gate
    from saod_ray.predict.predictor import PredictorConfig

    config = PredictorConfig.from_self_aware(
        _load(selfaware), detector, use_case=use_case, weights=weights, batch_size=batch_size
    )
    digest = gate.token_digest(host, token_file)
    with gate.gate_environment(digest, replicas), connected(address):
        try:
            from saod_ray.predict.server import RequestLimits, serve_http
        except ModuleNotFoundError as error:
            raise SaodError(f"Ray Serve needs {error.name}: `pip install 'saod-ray[ray]'`.") from error
        limits = RequestLimits(max_bytes, max_pixels, max(gather, batch_size), wait_ms / 1000, token=digest)
        is_private = address is None
        with serve_http(
            config, limits, host=host, port=port, replicas=replicas, is_private=is_private, drain=drain
        ) as url:
            stopped = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            click.echo(f"'{config.entry.name}' answers at {url}: POST an image to /predict, GET /healthz.")
            while not stopped.wait(1.0):
                pass
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)  # a second signal does not wait
