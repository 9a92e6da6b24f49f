"""`saod-ray predict` and `serve`: apply a self-aware detector to images."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from saod_ray.cli import completion, terminal
from saod_ray.cli.options import (
    OUTPUT,
    WHAT,
    Address,
    BatchSize,
    Number,
    Weights,
    Whole,
    examples,
    local_path,
    parse_bytes,
)
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from saod_ray.predict.predictor import Prediction, PredictorConfig
    from saod_ray.score.self_aware import SelfAware

app = typer.Typer()
MAX_WITHOUT_RAY = 300  # images that `predict` handles in this process
SERVER, REQUESTS = "Server", "Requests"

SelfAwareFile = Annotated[
    Path,
    typer.Option(
        "--selfaware",
        metavar="FILE",
        parser=local_path,
        help="Self-aware detector that `score` wrote: STORE/selfaware/DETECTOR.json.",
        show_default=False,
        rich_help_panel=WHAT,
    ),
]
DetectorOption = Annotated[
    str | None,
    typer.Option(
        "--detector",
        metavar="NAME",
        help="A detector's name, or a detector TOML file.",
        show_default="that of the --selfaware file",
        rich_help_panel=WHAT,
        autocompletion=completion.detectors,
    ),
]
UseCaseOption = Annotated[
    str | None,
    typer.Option(
        "--use-case",
        metavar="NAME",
        help="shapes, gen or av, or a use case TOML file.",
        show_default="that of the --selfaware file",
        rich_help_panel=WHAT,
        autocompletion=completion.use_cases,
    ),
]


@app.command(
    epilog=examples(
        "predict photo.jpg --selfaware runs/shapes/selfaware/atss.json",
        "predict photos/ --selfaware runs/shapes/selfaware/atss.json --draw drawn --json",
        page="deploy.md",
    )
)
def predict(
    selfaware: SelfAwareFile,
    images: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="IMAGE",
            help="Files, folders or patterns, or - for a list on stdin.",
            show_default=False,
        ),
    ] = None,
    detector: DetectorOption = None,
    use_case: UseCaseOption = None,
    weights: Weights = None,
    draw: Annotated[
        Path | None,
        typer.Option(
            "--draw",
            metavar="DIR",
            parser=local_path,
            help="Folder for a picture of each verdict.",
            show_default=False,
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", metavar="", help="Print one JSON object per image and line.", rich_help_panel=OUTPUT),
    ] = False,
    address: Address = None,
    batch_size: BatchSize = 1,
) -> int:
    """Accept or reject images, and detect on those accepted.

    More than 300 images are distributed with Ray. The exit code is 2 if some images failed.
    """
    from saod_ray.files import check_folder
    from saod_ray.predict.drawing import picture_name
    from saod_ray.predict.files import resolve_inputs
    from saod_ray.predict.predictor import PredictorConfig

    if draw is not None:
        check_folder(draw, "--draw")
    config = PredictorConfig.from_self_aware(
        _load(selfaware), detector, use_case=use_case, weights=weights, batch_size=batch_size
    )
    files = resolve_inputs(tuple(images or ()), _stdin_lines())
    counts = {"accepted": 0, "rejected": 0, "failed": 0}
    with ExitStack() as stack:
        typer.echo(f"Loading '{config.entry.name}' ...", err=True)
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
    typer.echo(", ".join(f"{count:,} {outcome}" for outcome, count in counts.items()), err=True)
    return 2 if counts["failed"] else 0


def _load(selfaware: Path) -> SelfAware:
    """The self-aware detector in a file; a file without a digest, which may have been changed, gets a note."""
    from saod_ray.score.self_aware import SelfAware

    self_aware = SelfAware.load(selfaware)
    if not self_aware.has_digest:
        typer.echo(
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

    callbacks = Callbacks(on_message=lambda message: typer.echo(message, err=True))
    return predict_batch(config, files, draw=draw, callbacks=callbacks)


def _write_picture(path: Path, content: bytes) -> None:
    from saod_ray.files import Folder

    Folder(str(path.parent)).put(path.name, content, durable=False)


def _print_prediction(prediction: Prediction, picture: Path | None, as_json: bool) -> None:
    verdict = prediction.verdict
    if as_json:
        location = {} if picture is None else {"drawn": str(picture)}
        typer.echo(json.dumps({**prediction.to_json(), **location}, allow_nan=False))
        return
    summary = verdict.summary() if verdict is not None else f"failed: {prediction.error}"
    typer.echo(typer.format_filename(f"{prediction.file}: {summary}"))  # names may have bytes that no terminal shows
    for detection in verdict.to_json()["detections"] if verdict is not None else ():
        score = "?" if detection["score"] is None else f"{detection['score']:.4f}"
        typer.echo(f"  {detection['class']} {score} [{', '.join(f'{value:.1f}' for value in detection['box'])}]")


@app.command(
    epilog=examples(
        "serve --selfaware runs/shapes/selfaware/atss.json",
        "serve --selfaware runs/shapes/selfaware/atss.json --host 0.0.0.0 --token-file token",
        page="deploy.md",
    )
)
def serve(
    selfaware: SelfAwareFile,
    detector: DetectorOption = None,
    use_case: UseCaseOption = None,
    weights: Weights = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Address to listen on; 0.0.0.0 is every interface.",
            rich_help_panel=SERVER,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            "--port",
            metavar="N",
            parser=Whole(0, 65535),
            help="Port to listen on; 0 picks a free one.",
            rich_help_panel=SERVER,
        ),
    ] = 8000,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            parser=local_path,
            help="A secret that requests must send as `Authorization: Bearer SECRET`; needed beyond loopback.",
            show_default=False,
            rich_help_panel=SERVER,
        ),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(
            "--replicas", metavar="N", parser=Whole(1), help="Copies of the detector.", rich_help_panel=SERVER
        ),
    ] = 1,
    drain: Annotated[
        int,
        typer.Option(
            "--drain",
            metavar="SECONDS",
            parser=Whole(0, 50),
            help="Time for requests in flight to finish at the end.",
            rich_help_panel=SERVER,
        ),
    ] = 30,
    max_bytes: Annotated[
        str, typer.Option("--max-bytes", metavar="SIZE", help="Largest request.", rich_help_panel=REQUESTS)
    ] = "20MB",
    max_pixels: Annotated[
        int,
        typer.Option("--max-pixels", metavar="N", parser=Whole(1), help="Largest image.", rich_help_panel=REQUESTS),
    ] = 50_000_000,
    gather: Annotated[
        int,
        typer.Option(
            "--gather",
            metavar="N",
            parser=Whole(1),
            help="Requests per call of the detector, at most.",
            rich_help_panel=REQUESTS,
        ),
    ] = 8,
    wait_ms: Annotated[
        float,
        typer.Option(
            "--wait-ms",
            metavar="MS",
            parser=Number(0),
            help="How long a call waits for more requests.",
            rich_help_panel=REQUESTS,
        ),
    ] = 0.0,
    address: Address = None,
    batch_size: BatchSize = 1,
) -> None:
    """Answer HTTP requests: POST an image to /predict, GET /healthz.

    Ctrl-C or SIGTERM stops it.
    """
    import signal

    from saod_ray.engine.cluster import connected
    from saod_ray.predict import gate
    from saod_ray.predict.predictor import PredictorConfig

    largest_request = parse_bytes("--max-bytes", max_bytes)
    config = PredictorConfig.from_self_aware(
        _load(selfaware), detector, use_case=use_case, weights=weights, batch_size=batch_size
    )
    digest = gate.token_digest(host, token_file)
    typer.echo("Starting Ray ..." if address is None else f"Connecting to {address} ...", err=True)
    with gate.gate_environment(digest, replicas), connected(address):
        try:
            from saod_ray.predict.server import RequestLimits, serve_http
        except ModuleNotFoundError as error:
            raise SaodError(f"Ray Serve needs {error.name}: `pip install 'saod-ray[ray]'`.") from error
        limits = RequestLimits(largest_request, max_pixels, max(gather, batch_size), wait_ms / 1000, token=digest)
        is_private = address is None
        typer.echo(f"Loading '{config.entry.name}' ...", err=True)
        with serve_http(
            config, limits, host=host, port=port, replicas=replicas, is_private=is_private, drain=drain
        ) as url:
            stopped = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: stopped.set())
            typer.echo(f"'{config.entry.name}' answers at {url}: POST an image to /predict, GET /healthz.")
            while not stopped.wait(1.0):
                pass
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.default_int_handler)  # a second signal does not wait
