"""The command line: the only module that prints. Every command imports what it needs when it runs."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from saod_ray import __version__
from saod_ray.errors import SaodError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

    from saod_ray.config import ScoreSettings, UseCase
    from saod_ray.engine.estimate import Estimate
    from saod_ray.engine.workers import Receipt
    from saod_ray.experiment.experiment import Experiment
    from saod_ray.experiment.experiment import Outcome as Finding
    from saod_ray.predict.predictor import Outcome, Setup
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.store.building import Status
    from saod_ray.store.store import Store

# nothing here needs BLAS, and its idle threads cost more than it would do; a user's own setting stands
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

PATIENCE = 2.0  # seconds of work before a progress bar appears
HEARTBEAT = 60.0  # seconds between lines where there is no terminal
FEW = 300  # images for which `predict` starts no Ray


class Commands(click.Group):
    """Commands in the order they are written below, which is the order people need them in."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, unsorted."""
        return list(self.commands)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="saod-ray")
def cli() -> None:
    """Benchmark self-aware object detectors (SAOD): from detections to DAQ."""


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
        code = _fail("Stopped; nothing half-written was left. Run the same command to go on.", 130)
    except BrokenPipeError:
        code = 0
    except (OSError, UnicodeError) as error:
        code = _fail(f"{error}: mend that and run the same command again.")
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 1) -> int:
    click.echo(f"saod-ray: {' '.join(message.splitlines())}", err=True)
    return code


def _stdout() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=False)


@contextmanager
def _shown(show: Callable[[], None], over: threading.Event) -> Iterator[None]:
    """Have another thread show how far the work is, until it is over."""
    shower = threading.Thread(target=show, daemon=True)
    shower.start()
    try:
        yield
    finally:
        over.set()
        shower.join()


@contextmanager
def _progress(title: str | Callable[[], str]) -> Iterator[Callable[[int, int], None]]:
    """A callback `(done, total)`. What takes long shows a bar in a terminal and a line a minute elsewhere."""
    said = title if callable(title) else lambda: title
    now = (0, 0)
    over = threading.Event()

    def update(done: int, total: int) -> None:
        nonlocal now
        now = (done, total)

    def show() -> None:
        if over.wait(PATIENCE):
            return
        if not sys.stderr.isatty():
            while True:
                click.echo(f"{said()}: {100 * now[0] / max(now[1], 1):.0f} %", err=True)
                if over.wait(HEARTBEAT):
                    return
        with _bar() as bar:
            task = bar.add_task(said(), total=None)
            while not over.wait(0.1):
                bar.update(task, description=said(), completed=now[0], total=now[1] or None)

    with _shown(show, over):
        yield update


@contextmanager
def _stages() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A callback `(title)` that begins a stage of the work and gives its `(done, total)` callback."""
    with ExitStack() as stack:

        def begin(title: str) -> Callable[[int, int], None]:
            stack.close()  # of the stage before
            return stack.enter_context(_progress(title))

        yield begin


def _bar(*more: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *more, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def _bars(totals: dict[str, int]) -> Iterator[Callable[[str, int], None]]:
    """A callback `(name, images)` for work in several lanes: a bar each in a terminal, a line a minute elsewhere."""
    from rich.progress import TextColumn

    done = dict.fromkeys(totals, 0)
    over = threading.Event()
    began = time.monotonic()

    def show() -> None:
        if not sys.stderr.isatty():
            while not over.wait(HEARTBEAT):
                since = time.monotonic() - began
                parts = [f"{name} {100 * n / totals[name]:.0f} % ({n / since:.1f}/s)" for name, n in done.items()]
                click.echo(", ".join(parts), err=True)
            return
        with _bar(TextColumn("{task.completed:,}/{task.total:,} images"), TextColumn("{task.fields[rate]}")) as bar:
            tasks = {name: bar.add_task(name, total=total, rate="") for name, total in totals.items()}
            while not over.wait(0.1):
                for name, task in tasks.items():
                    speed = bar.tasks[task].speed
                    bar.update(task, completed=done[name], rate=f"{speed:.1f}/s" if speed else "")

    def update(name: str, images: int) -> None:
        done[name] = min(done[name] + images, totals[name])  # pictures that are lost are decoded again

    with _shown(show, over):
        yield update


def _draw(case: UseCase) -> None:
    """Draw the scenes of a use case that is made here, unless they are there."""
    from saod_ray.data import shapes
    from saod_ray.files import Folder

    if case.made_by is None or Folder(case.root).exists("shapes/made.json"):
        return
    with _progress("drawing scenes") as progress:
        shapes.make(case.root, shapes.Recipe(0, 1.0), progress)


def _names(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    return [name.strip() for name in value.split(",") if name.strip()] if value and value != "all" else None


def _actors(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    if value is None:
        return None
    low, _, high = value.partition(":")
    if not low.isdigit() or not (high or low).isdigit() or not 1 <= int(low) <= int(high or low):
        raise click.BadParameter(f"'{value}' is not MIN:MAX: give for instance 1:4.", context, parameter)
    return int(low), int(high or low)


def _numbers(context: click.Context, parameter: click.Parameter, value: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in value.split(","))
    except ValueError:
        numbers = ()
    count = 3 if parameter.name == "daq_weights" else 2
    if len(numbers) != count or not all(0 <= each < float("inf") for each in numbers) or not any(numbers):
        raise click.BadParameter(f"'{value}' is not {count} weights of at least 0, separated by commas.")
    return numbers


def _size(context: click.Context, parameter: click.Parameter, value: str) -> int:
    units = {"KB": 10**3, "MB": 10**6, "GB": 10**9}
    number, unit = (value[:-2], value[-2:].upper()) if value[-2:].upper() in units else (value, "")
    if not number.isdecimal() or not int(number):
        raise click.BadParameter(f"'{value}' is not a size: give for instance 20MB.", context, parameter)
    return int(number) * units.get(unit, 1)


# what may be asked of `score`, as written in config.py; repeated here so that --help need not import it
CALIBRATORS = click.Choice(["linear", "isotonic", "histogram", "platt", "temperature", "none"])


@cli.group(cls=Commands)
def data() -> None:
    """The images of a use case: build its manifests, see what is there, look at it."""


DATA = click.option("--data", "root", metavar="DIR", help="Where the raw data is, instead of the use case's root.")
USE_CASE = click.argument("use_case", metavar="USE_CASE")


@data.command()
@USE_CASE
@DATA
@click.option("--seed", type=int, default=0, show_default=True, help="shapes: what its scenes are drawn from.")
@click.option("--scale", type=click.FloatRange(0, 1000, min_open=True), default=1.0, show_default=True,
              help="shapes: how many times the default number of scenes.")  # fmt: skip
@click.option("--unchecked", is_flag=True, help="Do not look whether every image is there and is an image.")
@click.option("--json", "as_json", is_flag=True, help="Print what was built as JSON.")
def build(use_case: str, root: str | None, seed: int, scale: float, unchecked: bool, as_json: bool) -> None:
    """Turn raw downloads into manifests: gen, av, shapes (which is drawn here), or a use case TOML file.

    Images are never copied. The manifests lie in DIR/manifests; all of them are written, or none.
    """
    from saod_ray.config import UseCase
    from saod_ray.store import building

    if not math.isfinite(scale):
        raise SaodError("--scale nan is not a number: give for instance --scale 2.")
    case = UseCase.load(use_case, root)
    given = {click.get_current_context().get_parameter_source(name) for name in ("seed", "scale")}
    if case.made_by is None and given != {click.core.ParameterSource.DEFAULT}:
        raise SaodError(
            f"--seed and --scale are for use cases that are drawn here, not for '{case.name}': leave them out."
        )
    if case.made_by is not None:
        from saod_ray.data import shapes

        with _progress("drawing scenes") as progress:
            shapes.make(case.root, shapes.Recipe(seed, scale), progress)
    with _stages() as stage:
        remarks = building.build(case, stage, not unchecked)
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)
    _show_status(building.status(case), as_json)


@data.command()
@USE_CASE
@DATA
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def status(use_case: str, root: str | None, as_json: bool) -> None:
    """Say what is there of a use case, where it is looked for, where to get it, and how sizes compare."""
    from saod_ray.config import UseCase
    from saod_ray.store import building

    _show_status(building.status(UseCase.load(use_case, root)), as_json)


@data.command()
@USE_CASE
@DATA
@click.option("--split", default="val", show_default=True,
              help="train, val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")  # fmt: skip
@click.option("--all-corruptions", is_flag=True, help="Show one ID image under all 15 corruptions instead.")
@click.option("--image", type=int, metavar="ID", help="Which image --all-corruptions shows; the first by default.")
@click.option("--images", type=click.IntRange(1, 600), default=24, show_default=True, help="How many images.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the corruptions.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.png")
def preview(
    use_case: str,
    root: str | None,
    split: str,
    all_corruptions: bool,
    image: int | None,
    images: int,
    seed: int,
    out: Path,
) -> None:
    """Write a contact sheet of a split with boxes and the corruption's name, to look at the data yourself."""
    import io

    from saod_ray.config import UseCase
    from saod_ray.files import Folder, check_target
    from saod_ray.report.preview import Preview
    from saod_ray.store.store import check_split

    check_target(out)
    if out.suffix.lower() not in (".png", ".jpg", ".jpeg"):
        raise SaodError(f"'{out}' is neither PNG nor JPEG: give --out a name that ends in .png or .jpg.")
    given = click.get_current_context().get_parameter_source
    if all_corruptions and given("split") != click.core.ParameterSource.DEFAULT:
        raise SaodError("--all-corruptions shows an image of id: leave --split out.")
    if image is not None and not all_corruptions:
        raise SaodError("--image is for --all-corruptions: add it, or leave --image out.")
    case = UseCase.load(use_case, root)
    check_split(split, ["train", *case.splits_of()], [subset.name for subset in case.splits.ood])
    with _progress("drawing the sheet") as progress:
        shown = Preview(case)
        sheet = (
            shown.all_corruptions(image, seed, progress)
            if all_corruptions
            else shown.sheet(split, images, seed, progress)
        )
    sink = io.BytesIO()
    sheet.save(sink, "PNG" if out.suffix.lower() == ".png" else "JPEG")
    Folder(str(out.parent)).put(out.name, sink.getvalue())
    click.echo(str(out))


def _show_status(found: Status, as_json: bool) -> None:
    from dataclasses import asdict

    from saod_ray.report.sources import remarks, source_table

    if as_json:
        click.echo(json.dumps(asdict(found), indent=1))
        return
    console = _stdout()
    console.print(source_table(found))
    for line in remarks(found):
        console.print(line, soft_wrap=True)


@cli.command("import")
@click.argument("store")
@click.option("--use-case", required=True, metavar="NAME|FILE", help="gen, av, shapes, or a use case TOML file.")
@click.option("--detector", required=True, metavar="NAME", help="What the detector is called in the store.")
@click.option("--split", required=True, help="val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")
@click.option("--detections", required=True, type=click.Path(path_type=Path), metavar="FILE.json[.gz]",
              help="A COCO result list: image_id, category_id, bbox, score, optional uncertainty.")  # fmt: skip
@click.option("--data", metavar="DIR", help="Where the use case's files are, instead of its root.")
@click.option("--replace", is_flag=True, help="Replace the detections that the store has of this split.")
@click.option("--shard-images", type=click.IntRange(1), default=4096, show_default=True, help="Images a shard.")
@click.option("--json", "as_json", is_flag=True, help="Print what was imported as JSON.")
def import_command(
    store: str,
    use_case: str,
    detector: str,
    split: str,
    detections: Path,
    data: str | None,
    replace: bool,
    shard_images: int,
    as_json: bool,
) -> None:
    """Put detections made by any tool into STORE, a folder or URI. All of the file is imported, or nothing."""
    from saod_ray.config import UseCase
    from saod_ray.store.importing import import_results

    case = UseCase.load(use_case, data)
    with _progress(f"importing {detections.name}") as progress:
        page = import_results(store, case, detector, split, detections, replace, shard_images, progress)
    counts = {key: sum(getattr(shard, key) for shard in page.shards) for key in ("images", "detections", "empty")}
    if as_json:
        click.echo(json.dumps({"detector": detector, "split": split, **counts, "shards": len(page.shards)}))
        return
    click.echo(
        f"{detector} on {split}: {counts['detections']:,} detections on {counts['images']:,} images, "
        f"{counts['empty']:,} of them without any."
    )


@cli.command()
@click.argument("store")
@click.option("--detectors", callback=_names, metavar="all|A,B", help="Which detectors; all by default.")
@click.option("--calibrator", type=CALIBRATORS, default="linear", show_default=True)
@click.option("--uncertainty", default="score", show_default=True, metavar="KIND",
              help="score, entropy, ds, avg-entropy, max-class-entropy, determinant, trace, gaussian-entropy, "
              "joint-entropy[-balanced|-normalised].")  # fmt: skip
@click.option("--aggregate", default="top-3", show_default=True, metavar="RULE", help="top-N, min, mean or sum.")
@click.option("--image-threshold", default="pseudo-ood", show_default=True, metavar="RULE",
              help="pseudo-ood, tpr-0.95 or a value.")  # fmt: skip
@click.option("--detection-threshold", default="lrp", show_default=True, metavar="RULE", help="lrp or a value.")
@click.option("--tau", type=float, default=0.1, show_default=True, help="The IoU from which a detection is a TP.")
@click.option("--bins", type=int, default=25, show_default=True, help="Bins of LaECE and of histogram binning.")
@click.option("--conventions", type=click.Choice(["official", "paper"]), default="official", show_default=True,
              help="As published, or as the paper defines it.")  # fmt: skip
@click.option("--daq-weights", default="1,1,1", callback=_numbers, show_default=True, help="Of BA, IDQ and IDQ_T.")
@click.option("--idq-weights", default="0.5,0.5", callback=_numbers, show_default=True, help="Of 1-LRP and 1-LaECE.")
@click.option("--partial", is_flag=True, help="Score a store in which images are missing, and say so.")
@click.option("--bootstrap", type=click.IntRange(0), default=0, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals; 1000 are usual.")  # fmt: skip
@click.option("--bootstrap-seed", type=click.IntRange(0), default=0, show_default=True, metavar="SEED",
              help="What the resamples follow from.")  # fmt: skip
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…) to score on; this process by default.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Write there instead of STORE/results.json."
)
@click.option("--json", "as_json", is_flag=True, help="Print results.json instead of a table.")
def score(
    store: str,
    detectors: list[str] | None,
    partial: bool,
    address: str | None,
    bootstrap: int,
    bootstrap_seed: int,
    out: Path | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Compute every figure of the benchmark from STORE's detections, without any inference."""
    from saod_ray.config import ScoreSettings
    from saod_ray.files import check_target
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.store.store import Store

    chosen = ScoreSettings.of(**settings)
    if out is not None:
        check_target(out)
    opened = Store.open(store)
    resamples = Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None
    _score(opened, opened.choose(detectors), chosen, partial, out, as_json, resamples, address)


def _score(
    opened: Store,
    names: list[str],
    chosen: ScoreSettings,
    partial: bool,
    out: Path | None,
    as_json: bool,
    resamples: Bootstrap | None = None,
    address: str | None = None,
) -> None:
    """Score (on a cluster, where there is one), write and show."""
    from saod_ray.files import Folder
    from saod_ray.report.results import encoded, results
    from saod_ray.score.benchmark import Benchmark

    with _progress(f"scoring {', '.join(names)}") as progress:
        if address is not None:
            from saod_ray.engine.cluster import connected
            from saod_ray.engine.scoring import score_ahead

            with connected(address):
                score_ahead(opened, names, chosen, partial, resamples, progress)
        benchmark = Benchmark(opened, chosen, partial, resamples)
        scored = benchmark.score(names, progress)
    value = results(benchmark.store, chosen, scored, partial, resamples)
    text = encoded(value)
    folder, file = (opened.folder, "results.json") if out is None else (Folder(str(out.parent)), out.name)
    folder.put_if_other(file, text)
    for name, each in scored.items():
        folder.put_if_other(f"selfaware/{name}.json", encoded(each.selfaware))
    if as_json:
        click.echo(text, nl=False)
        return
    _print_results(value, f"{folder.uri.rstrip('/')}/{file}")


@cli.command()
@click.argument("store")
@click.option("--out", type=click.Path(path_type=Path), metavar="FILE.html", help="[default: STORE/report.html]")
@click.option(
    "--data", metavar="DIR|URI", help="Where the images lie, for pictures; the use case's own root by default."
)
@click.option("--figures", type=click.Path(path_type=Path), metavar="DIR",
              help="Write the charts there too, as SVG and PDF, and the tables as LaTeX.")  # fmt: skip
def report(store: str, out: Path | None, data: str | None, figures: Path | None) -> None:
    """Write STORE's results as one HTML file that needs no network: tables, charts, pictures, provenance."""
    from saod_ray.files import check_target
    from saod_ray.store.store import Store

    if out is not None:
        check_target(out)
    click.echo(_report(Store.open(store), out, data, figures))


def _report(opened: Store, out: Path | None, data: str | None, figures: Path | None) -> str:
    """Write the report and say where it is."""
    from saod_ray.files import Folder

    try:
        from saod_ray.experiment.showing import stored
        from saod_ray.report import page
        from saod_ray.report.data import gather
        from saod_ray.report.figures import chosen_first
    except ModuleNotFoundError as error:
        raise SaodError(f"A report needs {error.name}: install it with `pip install 'saod-ray[report]'`.") from None
    with _progress("making the report") as progress:
        gathered = gather(opened, progress)
        experiments = stored(gathered.benchmark, chosen_first(gathered))
        made = page.report(gathered, data, experiments)
        for name, content in page.separate_files(gathered, experiments) if figures is not None else ():
            Folder(str(figures)).put_if_other(name, content)
    folder, file = (opened.folder, "report.html") if out is None else (Folder(str(out.parent)), out.name)
    folder.put_if_other(file, made)
    return folder.shown(file) if out is None else str(out)


@cli.command()
@click.argument("name", metavar="NAME|all|list")
@click.argument("store", required=False)
@click.option("--detectors", callback=_names, metavar="all|A,B", help="Which detectors; all by default.")
@click.option("--partial", is_flag=True, help="Use a store in which images are missing.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
@click.option("--csv", type=click.Path(path_type=Path), metavar="FILE", help="Write the table there, full precision.")
@click.option("--latex", type=click.Path(path_type=Path), metavar="FILE", help="Write the table there.")
@click.option("--figures", type=click.Path(path_type=Path), metavar="DIR", help="Write the charts there: SVG and PDF.")
def experiment(
    name: str,
    store: str | None,
    detectors: list[str] | None,
    partial: bool,
    as_json: bool,
    csv: Path | None,
    latex: Path | None,
    figures: Path | None,
) -> None:
    """Do one of the paper's experiments with STORE's detections, or all; `list` names them. No inference.

    The settings are those of the store's results.json. What comes out is kept in STORE/experiments, and the store's
    next report shows it.
    """
    from saod_ray import experiment as experiments
    from saod_ray.files import check_target

    if name == "list":
        _print_experiments(as_json)
        return
    if store is None:
        raise SaodError(f"'{name}' needs a store: saod-ray experiment {name} STORE.")
    if name == "all" and (csv or latex):
        raise SaodError("--csv and --latex are for one table: name one experiment, or use `report --figures DIR`.")
    for out in (csv, latex):
        if out is not None:
            check_target(out)
    chosen = experiments.every() if name == "all" else [experiments.find(name)]
    outcomes, refused = _experiments(chosen, store, detectors, partial, figures)
    if name != "all":
        _write_tables(outcomes[0], csv, latex)
    if as_json:
        texts = [json.loads(outcome.json()) for outcome in outcomes]
        value = {"outcomes": texts, "refused": refused} if name == "all" else texts[0]
        click.echo(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False))
        return
    for outcome in outcomes:
        _print_experiment(outcome)
    for sentence in refused.values():
        click.echo(f"not done: {sentence}", err=True)
    click.echo(f"Kept in {store.rstrip('/')}/experiments: the store's next report shows it.", err=True)


def _experiments(
    chosen: list[Experiment], store: str, detectors: list[str] | None, partial: bool, figures: Path | None
) -> tuple[list[Finding], dict[str, str]]:
    """Do them; where there are several, one that cannot be done is a sentence and not the end."""
    from saod_ray.files import Folder
    from saod_ray.report.diff import last_settings
    from saod_ray.store.store import Store

    try:
        from saod_ray.experiment.desk import Desk
        from saod_ray.experiment.experiment import perform
        from saod_ray.experiment.showing import figure_files
    except ModuleNotFoundError as error:
        raise SaodError(f"Experiments need {error.name}: install it with `pip install 'saod-ray[report]'`.") from None
    opened = Store.open(store)
    outcomes, refused = [], {}
    now = ""
    with _progress(lambda: f"experiment {now}") as progress:
        desk = Desk(opened, last_settings(opened), opened.choose(detectors), partial)
        for done, each in enumerate(chosen):
            now = each.name
            progress(done, len(chosen))
            try:
                outcomes.append(perform(each, desk))
            except SaodError as error:
                refused[each.name] = str(error)
                continue
            for file, content in figure_files(outcomes[-1], desk) if figures is not None else ():
                Folder(str(figures)).put_if_other(f"{each.name}/{file}", content)
    if not outcomes:
        raise SaodError(next(iter(refused.values())))
    return outcomes, refused


def _write_tables(outcome: Finding, csv: Path | None, latex: Path | None) -> None:
    from saod_ray.experiment.showing import sheet
    from saod_ray.files import Folder
    from saod_ray.report import export

    for out, written in ((csv, export.comma_separated), (latex, export.latex)):
        if out is not None:
            Folder(str(out.parent)).put_if_other(out.name, written(sheet(outcome)).encode())


def _print_experiment(outcome: Finding) -> None:
    from saod_ray.experiment.showing import terminal

    console, table = _stdout(), terminal(outcome)
    # a table that is wider than the terminal is better broken by it than cut off
    console.width = max(console.width, console.measure(table, options=console.options.update(width=10_000)).maximum)
    console.print(table)
    click.echo(outcome.shows)
    for remark in outcome.remarks:
        click.echo(f"note: {remark}", err=True)
    click.echo()


def _print_experiments(as_json: bool) -> None:
    from rich import box
    from rich.table import Table

    from saod_ray import experiment as experiments

    found = experiments.every()
    if as_json:
        keys = ("name", "paper", "shows", "needs")
        click.echo(json.dumps([{key: getattr(each, key) for key in keys} for each in found], indent=1))
        return
    table = Table("experiment", "the paper's", "what it shows, and what it needs", box=box.SIMPLE_HEAD, pad_edge=False)
    for each in found:
        table.add_row(each.name, each.paper, f"{each.shows}\nneeds {each.needs}")
    _stdout().print(table)


@cli.command()
@click.option("--use-case", default="shapes", show_default=True, metavar="NAME|FILE", help="What is benchmarked.")
@click.option("--detectors", default="all", show_default=True, metavar="all|A,B|FILE.toml")
@click.option("--store", metavar="DIR|URI", help="[default: runs/USE_CASE]")
@click.option("--data", metavar="DIR|URI", help="Where the data lies; the use case's own root by default.")
@click.option("--weights", metavar="DIR", help="Where weights are kept; SAOD_WEIGHTS or ./weights by default.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="The first N images of each split, to try it out.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the corruptions.")
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); a private local one by default.")
@click.option("--actors", callback=_actors, metavar="MIN:MAX", help="Actors of a group of detectors.")
@click.option("--group", type=click.IntRange(1), metavar="N", help="Detectors that share an actor.")
@click.option(
    "--gpus-per-actor", type=click.FloatRange(0), metavar="N", help="1 where there are GPUs, else 0; 0.5 shares one."
)
@click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True,
              help="More is faster on GPUs, but the last bits then depend on which images share a batch.")  # fmt: skip
@click.option("--unit-images", type=click.IntRange(1), default=128, show_default=True, help="Images of a unit of work.")
@click.option("--max-errors", type=click.FloatRange(0, 1), default=0.01, show_default=True, metavar="SHARE")
@click.option("--bootstrap", type=click.IntRange(0), default=200, show_default=True, metavar="N",
              help="Resample the images N times for 95 % intervals.")  # fmt: skip
@click.option("--with-val-shift", is_flag=True,
              help="Detect on corrupted copies of val, too: for `experiment accuracy` alone.")  # fmt: skip
@click.option("--retry-failed", is_flag=True, help="Do units with failed images again.")
@click.option("--dry-run", is_flag=True, help="Say what there is to do and what it takes, and stop.")
@click.option("--probe", is_flag=True, help="With --dry-run: measure the detectors here for 20 seconds.")
@click.option(
    "--price", type=click.FloatRange(0), help="With --dry-run: of an hour of one actor (a GPU), for the cost."
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def run(
    use_case: str,
    detectors: str,
    store: str | None,
    data: str | None,
    weights: str | None,
    limit: int | None,
    seed: int,
    address: str | None,
    actors: tuple[int, int] | None,
    group: int | None,
    gpus_per_actor: float | None,
    batch_size: int,
    unit_images: int,
    max_errors: float,
    bootstrap: int,
    with_val_shift: bool,
    retry_failed: bool,
    dry_run: bool,
    probe: bool,
    price: float | None,
    as_json: bool,
) -> int:
    """Run detectors over a use case's splits into a store, and score it. Run it again to go on where it stopped."""
    from saod_ray.config import UseCase
    from saod_ray.detect.registry import weights_folder
    from saod_ray.engine import plan as planning
    from saod_ray.engine.cluster import connected
    from saod_ray.engine.estimate import estimate
    from saod_ray.engine.journal import Journal
    from saod_ray.engine.run import Job, Sizes, refuse_too_many, stream
    from saod_ray.report.diff import last_settings
    from saod_ray.score.bootstrap import Bootstrap

    if (probe or price is not None) and not dry_run:
        raise SaodError("--probe and --price say what a run would take: give --dry-run, too.")
    case = UseCase.load(use_case, data)
    _draw(case)
    uri = store or f"runs/{case.name}"
    sizes = Sizes(actors, group, gpus_per_actor, batch_size, unit_images)
    with _untouched(uri) if dry_run else nullcontext(uri) as place:
        job = Job.of(case, place, detectors, weights_folder(weights), seed)
        made = job.plan(limit, sizes, retry_failed, with_val_shift)
        click.echo(planning.said(made), err=True)
        if dry_run:
            _print_estimates(estimate(job, made, probe, price), as_json)
            return 0
    failed = dict(made.failed)
    totals = {name: made.missing[name] + made.cached[name] for name in made.missing}
    if made.work:
        _stderr().print(_estimate_table(estimate(job, made)))
        journal = Journal(job.store, made, {"detectors": detectors, "limit": limit, "seed": seed, **sizes._asdict()})
        bars = {"decoding": made.images} | {name: count for name, count in made.missing.items() if count}
        with _bars(bars) as progress, journal.stage("detecting"), connected(address):

            def told(receipt: Receipt) -> None:
                journal.note(receipt)
                failed[receipt.detector] += receipt.failed
                refuse_too_many(failed, totals, max_errors)
                progress(receipt.detector, receipt.images)

            journal.facts = stream(job, made, sizes, told, lambda images: progress("decoding", images))
        journal.close("done")
    if limit is None:
        job.compact()
    refuse_too_many(failed, totals, max_errors)
    partial = limit is not None
    resamples = Bootstrap(bootstrap, 0) if bootstrap else None
    _score(job.store, job.scored(partial), last_settings(job.store), partial, None, as_json, resamples, address)
    try:
        click.echo(f"Report: {_report(job.store, None, case.root, None)}", err=True)
    except SaodError as error:  # the results are there
        click.echo(f"There is no report: {error}", err=True)
    return 2 if any(failed.values()) else 0


@contextmanager
def _untouched(uri: str) -> Iterator[str]:
    """Where to plan without writing: the store if it has detections, else a place that goes afterwards."""
    from tempfile import TemporaryDirectory

    from saod_ray.store.store import Store

    with TemporaryDirectory(prefix="saod-ray-") as place:
        yield uri if Store(uri).detectors() else place


def _print_estimates(found: list[Estimate], as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
        return
    _stdout().print(_estimate_table(found))
    if any(each.missing and each.images_a_second is None for each in found):
        click.echo("How fast a detector is here is not known yet: --probe measures it for 20 seconds.", err=True)


def _estimate_table(found: list[Estimate]) -> Table:
    """What is to do and what is there; columns of which nothing is known are left out."""
    from rich import box
    from rich.table import Table

    known = {"images/s": [each.images_a_second for each in found], "hours": [each.hours for each in found]}
    known["cost"] = [each.cost for each in found]
    shown = {title: values for title, values in known.items() if any(value is not None for value in values)}
    table = Table("detector", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("images to do", "there", "shards", "MB", *shown):
        table.add_column(title, justify="right")
    for k, each in enumerate(found):
        counts = (f"{each.missing:,}", f"{each.cached:,}", f"{each.shards:,}", f"{each.bytes / 1e6:,.1f}")
        table.add_row(each.detector, *counts, *("?" if v[k] is None else f"{v[k]:,.2f}" for v in shown.values()))
    return table


def _print_results(value: dict[str, Any], path: str) -> None:
    from saod_ray.report.table import result_table

    console = _stdout()
    console.print(result_table(value))
    for name, each in value["detectors"].items():
        failed = {split: c["failed"] for split, c in each["coverage"].items() if c["failed"]}
        missing = {split: c["missing"] for split, c in each["coverage"].items() if c.get("missing")}
        for what, counts in (("failed", failed), ("missing", missing)):
            if counts:
                listed = ", ".join(f"{count:,} of {split}" for split, count in counts.items())
                click.echo(f"{name}: images {what}: {listed}.", err=True)
    click.echo(f"All figures: {path}", err=True)


@cli.command()
@click.argument("store")
@click.option("--detector", required=True, metavar="NAME")
@click.option("--split", required=True, help="val, pseudo-ood, id, id-c1, id-c3, id-c5, ood, or ood/SUBSET.")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.json[.gz]")
@click.option("--json", "as_json", is_flag=True, help="Print what was exported as JSON.")
def export(store: str, detector: str, split: str, out: Path, as_json: bool) -> None:
    """Write a split's detections as a COCO result list."""
    from saod_ray.store.exporting import export_results
    from saod_ray.store.store import Store

    with _progress(f"exporting {detector} on {split}") as progress:
        count = export_results(Store.open(store), detector, split, out, progress)
    line = json.dumps({"detector": detector, "split": split, "detections": count, "file": str(out)})
    click.echo(line if as_json else f"{detector} on {split}: {count:,} detections in {out}.")


@cli.command()
@click.argument("store_a")
@click.argument("store_b", required=False)
@click.option("--detectors", callback=_names, metavar="A,B",
              help="Of one store: the two to compare. Of two stores: which ones; all that both have by default.")  # fmt: skip
@click.option("--bootstrap", type=click.IntRange(0), default=1000, show_default=True, metavar="N",
              help="Resample the images N times, on both sides alike, for 95 % intervals.")  # fmt: skip
@click.option("--bootstrap-seed", type=click.IntRange(0), default=0, show_default=True, metavar="SEED",
              help="What the resamples follow from.")  # fmt: skip
@click.option("--partial", is_flag=True, help="Compare stores in which images are missing, too.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def diff(
    store_a: str,
    store_b: str | None,
    detectors: list[str] | None,
    bootstrap: int,
    bootstrap_seed: int,
    partial: bool,
    as_json: bool,
) -> None:
    """Say what changed from STORE_A to STORE_B, or from one detector of STORE_A to another.

    Each store is scored with the settings of its results.json, or the default ones. Nothing but caches is written.
    """
    from saod_ray.report import diff as comparing
    from saod_ray.score.bootstrap import Bootstrap
    from saod_ray.store.store import Store

    resamples = Bootstrap(bootstrap, bootstrap_seed) if bootstrap else None
    mine, theirs = Store.open(store_a), Store.open(store_b or store_a)
    comparing.refuse_strangers(mine, theirs)
    pairs = comparing.pairs_of(mine, theirs, detectors)
    with _stages() as stage:
        a, b = (
            comparing.Side.of(store, list(names), partial, resamples, stage(f"scoring {', '.join(names)}"))
            for store, names in zip((mine, theirs), zip(*pairs, strict=True), strict=True)
        )
    value = comparing.compared(a, b, pairs, resamples)
    if as_json:
        click.echo(json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False))
        return
    console = _stdout()
    for pair in value["pairs"]:
        console.print(comparing.diff_table(pair, value))
    for line in comparing.remarks(value):
        click.echo(line)


@cli.command()
@click.argument("store")
@click.option("--detectors", callback=_names, metavar="all|A,B", help="Which detectors; all by default.")
@click.option("--json", "as_json", is_flag=True, help="Print what was found as JSON.")
def verify(store: str, detectors: list[str] | None, as_json: bool) -> None:
    """Check that every shard is whole and every image accounted for; exit code 1 when something is wrong."""
    from dataclasses import asdict

    from saod_ray.store.store import Store
    from saod_ray.store.verify import verify as verify_store

    opened = Store.open(store)
    names = opened.choose(detectors)
    with _progress("verifying") as progress:
        verdict = verify_store(opened, names, progress)
    if as_json:
        click.echo(json.dumps(asdict(verdict), indent=1))
    else:
        for note in verdict.notes:
            click.echo(f"note: {note}", err=True)
        for problem in verdict.problems:
            click.echo(f"{problem.where} {problem.what}; repair: {problem.repair}")
    if verdict.problems:
        raise SaodError(f"{store} has {len(verdict.problems)} problems: repair them as said, then verify again.")
    if not as_json:
        click.echo(
            f"{store} is whole: {verdict.shards:,} shards, {verdict.images:,} images, {verdict.detections:,} detections "
            f"of {', '.join(names)}."
        )


@cli.command()
@click.option("--use-case", metavar="NAME|FILE", help="gen, av, shapes, or a use case TOML file; all three by default.")
@click.option("--weights", metavar="DIR", help="Where weights are looked for, instead of $SAOD_WEIGHTS or ./weights.")
@click.option("--detectors", metavar="FILE.toml", help="A TOML file of your own detectors, shown instead of ours.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def detectors(use_case: str | None, weights: str | None, detectors: str | None, as_json: bool) -> None:
    """Say which detectors there are, and which have weights here."""
    from dataclasses import asdict

    from saod_ray.config import UseCase
    from saod_ray.detect import registry

    folder = registry.weights_folder(weights)
    named = UseCase.load(use_case).name if use_case else None
    if detectors is not None:
        entries = registry.choose(named or "shapes", detectors)
    else:
        entries = [entry for case in ([named] if named else registry.use_cases()) for entry in registry.every(case)]
    states = [registry.state(entry, folder) for entry in entries]
    if as_json:
        click.echo(json.dumps([asdict(each) for each in states], indent=1))
        return
    for case in dict.fromkeys(each.use_case for each in states):
        _print_detectors(case, [each for each in states if each.use_case == case], folder)
    if any(each.weights is None and each.looked_for for each in states):
        click.echo(
            f"next     put weights below {folder}, say where with --weights DIR, or make them: saod-ray train --help"
        )


def _print_detectors(use_case: str, states: list[Any], weights: Path) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = Text(f"{use_case}, weights below {weights}")
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in ("detector", "what", "weights"):
        table.add_column(name)
    lines = []
    for each in states:
        there = Text("yes", "green") if each.weights else Text("no", "red") if each.looked_for else Text("none needed")
        table.add_row(Text(each.name), Text(each.about + " (variant)" * each.variant), there)
        shown = [path.removeprefix(f"{weights}/") for path in ([each.weights] if each.weights else each.looked_for)]
        if shown:
            word, style = ("found", "") if each.weights else ("missing", "red")
            lines.append(Text(f"{word:<8} {each.name}: {', '.join(shown)}", style))
    console = _stdout()
    console.print(table)
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print()


@cli.command()
@click.option("--detector", required=True, metavar="NAME|CONFIG.py", help="A detector's name, or an mmdet config.")
@click.option("--use-case", default="shapes", show_default=True, metavar="NAME|FILE", help="Whose train split is used.")
@click.option("--data", metavar="DIR|URI", help="Where the data lies; the use case's own root by default.")
@click.option("--weights", metavar="DIR", help="Where weights are kept; SAOD_WEIGHTS or ./weights by default.")
@click.option("--epochs", type=click.IntRange(1), help="The recipe's by default; its course is stretched to fit.")
@click.option("--batch-size", type=click.IntRange(1), help="Over all workers; the learning rate follows it.")
@click.option("--learning-rate", type=click.FloatRange(0, min_open=True), help="The recipe's by default.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--init", type=click.Path(path_type=Path), metavar="FILE", help="Begin with the weights there that fit.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Train on the first N images, to try it out.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Ray workers, in parallel.")
@click.option("--cpus-per-worker", type=click.IntRange(1), default=1, show_default=True)
@click.option("--gpus-per-worker", type=click.FloatRange(0), help="1 where there are GPUs, else 0.")
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); a private local one by default.")
@click.option("--json", "as_json", is_flag=True, help="Print what came out as JSON.")
def train(
    detector: str,
    use_case: str,
    data: str | None,
    weights: str | None,
    workers: int,
    cpus_per_worker: int,
    gpus_per_worker: float | None,
    address: str | None,
    as_json: bool,
    **wishes: Any,
) -> None:
    """Train a detector on a use case's train split. Run the same command again to go on after a kill."""
    from saod_ray.config import UseCase
    from saod_ray.detect.registry import weights_folder
    from saod_ray.train.training import Machine, prepare

    case = UseCase.load(use_case, data)
    _draw(case)
    with _progress("reading annotations") as progress:
        training = prepare(case, detector, weights_folder(weights), workers, wishes, progress)
    if training.begin():
        asked = training.settings
        click.echo(
            f"training {asked.detector} ({asked.config}) on {asked.images:,} images of {asked.use_case}: "
            f"{asked.epochs} epochs, batches of {asked.batch_size}, {workers} workers",
            err=True,
        )
        with _progress(lambda: f"training {asked.detector}{training.now}") as progress:
            training.run(Machine(address, cpus_per_worker, gpus_per_worker), progress)
    record = training.record()
    if as_json:
        click.echo(json.dumps(record, indent=1, sort_keys=True))
        return
    first, last = record["loss"][0], record["loss"][-1]
    figures = ", ".join(f"{name.upper()} {value:.3f}" for name, value in record["val"].items())
    click.echo(f"{training.settings.detector}: {figures} on val; the loss fell from {first:.3f} to {last:.3f}.")
    for suffix, what in (("safetensors", "weights"), ("png", "losses"), ("json", "record")):
        click.echo(f"{what:<8} {training.file(suffix)}")


SELFAWARE = click.option("--selfaware", required=True, type=click.Path(path_type=Path), metavar="FILE.json",
                         help="What `score` wrote: STORE/selfaware/DETECTOR.json.")  # fmt: skip
WHOSE = click.option("--detector", metavar="NAME|FILE.toml", help="That of the --selfaware file by default.")


@cli.command()
@click.argument("images", nargs=-1, metavar="IMAGE…")
@SELFAWARE
@WHOSE
@click.option("--use-case", metavar="NAME|FILE", help="Whose detector; that of the --selfaware file by default.")
@click.option("--weights", metavar="DIR", help="Where weights are kept; SAOD_WEIGHTS or ./weights by default.")
@click.option("--draw", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
              help="Write a picture of each verdict there.")  # fmt: skip
@click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True,
              help="More is faster on GPUs, but the last bits then depend on which images share a batch.")  # fmt: skip
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); many images have a private local one.")
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
    """Accept or reject images, with calibrated detections of those accepted.

    IMAGE is a file, a folder, a pattern, or - for a list on stdin. Exit code 2 says that some images failed.
    """
    from saod_ray.predict.drawing import picture_name
    from saod_ray.predict.files import meant
    from saod_ray.predict.predictor import Setup
    from saod_ray.selfaware import SelfAware

    setup = Setup.of(SelfAware.load(selfaware), detector, use_case, weights, batch_size)
    files = meant(images, sys.stdin)
    counts = {"accepted": 0, "rejected": 0, "failed": 0}
    with ExitStack() as stack:
        outcomes = _predicted(stack, setup, files, draw is not None, address)
        progress = stack.enter_context(_progress("looking at images"))
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


def _predicted(stack: ExitStack, setup: Setup, files: list[str], draw: bool, address: str | None) -> Iterator[Outcome]:
    """Outcomes made in this process, or for many images on Ray, which lasts as long as the stack."""
    if address is None and len(files) <= FEW:
        from saod_ray.predict.predictor import predicted

        return predicted(setup, files, draw)
    from saod_ray.engine.cluster import connected

    stack.enter_context(connected(address))
    from saod_ray.engine.predicting import predicted

    return predicted(setup, files, draw)


def _put(path: Path, content: bytes) -> None:
    from saod_ray.files import Folder

    Folder(str(path.parent)).put(path.name, content, durable=False)


def _print_outcome(outcome: Outcome, drawn: Path | None, as_json: bool) -> None:
    verdict = outcome.verdict
    if as_json:
        place = {} if drawn is None else {"drawn": str(drawn)}
        click.echo(json.dumps({**outcome.to_json(), **place}, allow_nan=False))
        return
    click.echo(f"{outcome.file}: {verdict.said() if verdict is not None else f'failed: {outcome.error}'}")
    for each in verdict.to_json()["detections"] if verdict is not None else ():
        score = "?" if each["score"] is None else f"{each['score']:.4f}"
        click.echo(f"  {each['class']} {score} [{', '.join(f'{value:.1f}' for value in each['box'])}]")


@cli.command()
@SELFAWARE
@WHOSE
@click.option("--use-case", metavar="NAME|FILE", help="Whose detector; that of the --selfaware file by default.")
@click.option("--weights", metavar="DIR", help="Where weights are kept; SAOD_WEIGHTS or ./weights by default.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where to listen; 0.0.0.0 is everywhere.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 is any free one.")
@click.option("--max-bytes", default="20MB", show_default=True, callback=_size, help="Of a request.")
@click.option("--max-pixels", type=click.IntRange(1), default=50_000_000, show_default=True, help="Of an image.")
@click.option("--gather", type=click.IntRange(1), default=8, show_default=True, help="Requests taken together at most.")
@click.option("--wait-ms", type=click.FloatRange(0), default=10.0, show_default=True,
              help="How long a request waits for others to be taken together with.")  # fmt: skip
@click.option("--batch-size", type=click.IntRange(1), default=1, show_default=True,
              help="Images that the detector takes at once; the last bits depend on it.")  # fmt: skip
@click.option("--replicas", type=click.IntRange(1), default=1, show_default=True, help="Copies of the detector.")
@click.option("--address", metavar="ADDR", help="A Ray cluster (auto, ray://…); a private local one by default.")
def serve(
    selfaware: Path,
    detector: str | None,
    use_case: str | None,
    weights: str | None,
    host: str,
    port: int,
    max_bytes: int,
    max_pixels: int,
    gather: int,
    wait_ms: float,
    batch_size: int,
    replicas: int,
    address: str | None,
) -> None:
    """Answer HTTP requests: POST an image to /predict, GET /healthz. Ctrl-C or SIGTERM ends it."""
    import signal

    from saod_ray.engine.cluster import connected
    from saod_ray.predict.predictor import Setup
    from saod_ray.selfaware import SelfAware

    setup = Setup.of(SelfAware.load(selfaware), detector, use_case, weights, batch_size)
    with connected(address):
        try:
            from saod_ray.engine.serving import Limits, serving
        except ModuleNotFoundError as error:
            raise SaodError(f"Ray Serve needs {error.name}: `pip install 'saod-ray[ray]'`.") from None
        limits = Limits(max_bytes, max_pixels, max(gather, batch_size), wait_ms / 1000)
        with serving(setup, limits, host, port, replicas, private=address is None) as url:
            over = threading.Event()
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda *_: over.set())
            click.echo(f"'{setup.entry.name}' answers at {url}: POST an image to /predict, GET /healthz.")
            while not over.wait(1.0):
                pass


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def doctor(as_json: bool) -> None:
    """Say what this machine can run, and what to install for the rest."""
    from dataclasses import asdict

    from saod_ray.detect.doctor import findings

    found = findings()
    if as_json:
        click.echo(json.dumps([asdict(each) for each in found], indent=1))
        return
    from rich.text import Text

    console = _stdout()
    width = max(len(each.what) for each in found)
    for each in found:
        mark = Text("✓", "green") if each.is_there else Text("✗", "red")
        remedy = f": {each.remedy}" if each.remedy else ""
        console.print(mark + f" {each.what:<{width}}  {each.detail}{remedy}", soft_wrap=True)
