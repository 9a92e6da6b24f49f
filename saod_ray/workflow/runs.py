"""Run detectors over a use case into a store, score it, and write its report."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from saod_ray.errors import SaodError
from saod_ray.workflow.results import Progress, ScoredStore, score_to_files, write_report

if TYPE_CHECKING:
    from saod_ray.config import UseCase
    from saod_ray.engine.estimate import Estimate
    from saod_ray.engine.failures import FailureBudget
    from saod_ray.engine.job import Job
    from saod_ray.engine.plan import Plan
    from saod_ray.engine.resources import ResourceOptions
    from saod_ray.engine.workers import Receipt
    from saod_ray.score.results import BenchmarkResult
    from saod_ray.store.store import Store

LaneProgress = Callable[[str, int], None]  # a detector or "decoding", and the number of further images
logger = logging.getLogger("saod_ray")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of a run; `saod-ray run --help` explains each, and has the same defaults."""

    use_case: str = "shapes"
    detectors: str = "all"
    store: str | None = None
    data: str | None = None
    weights: str | None = None
    limit: int | None = None
    seed: int = 0
    address: str | None = None
    actors: tuple[int, int] | None = None  # at least, at most
    group: int | None = None
    gpus_per_actor: float | None = None
    batch_size: int = 1
    unit_images: int = 128
    max_pixels: int | None = None
    follow_links: bool = False
    max_errors: float = 0.01
    bootstrap: int = 200
    with_val_shift: bool = False
    retry_failed: bool = False
    replace: bool = False

    @property
    def resources(self) -> ResourceOptions:
        """The options about the distribution over a cluster."""
        from saod_ray.engine.resources import ResourceOptions

        return ResourceOptions(self.actors, self.group, self.gpus_per_actor, self.batch_size, self.unit_images)


class RunEvents:
    """The events of a run. By default they go to the `saod_ray` logger; override those that you want to show."""

    def on_plan(self, summary: str) -> None:
        """Called with the plan as one sentence."""
        logger.info(summary)

    def on_published_sizes(self, message: str) -> None:
        """Called with a sentence where an estimate is made without data, instead of `on_plan`."""
        logger.info(message)

    def on_estimates(self, estimates: Sequence[Estimate]) -> None:
        """Called with one estimate per detector, before anything is detected."""

    def on_status(self, status: str) -> None:
        """Called with what the run does next, where that takes seconds and nothing else shows it."""
        logger.info(status)

    def on_message(self, message: str) -> None:
        """Called with a warning: what the run waits for, which processes died, that it stops."""
        logger.warning(message)

    def on_results(self, scored: ScoredStore) -> None:
        """Called when the results are written."""

    def detecting(self, images: dict[str, int]) -> AbstractContextManager[LaneProgress]:
        """A context that is entered while detectors run; `images` are the counts to do, per detector and for decoding."""
        return nullcontext(lambda lane, count: None)

    def working(self, title: str) -> AbstractContextManager[Progress]:
        """A context that is entered during other work that takes time."""
        return nullcontext(lambda done, total: None)


def draw_missing_scenes(
    case: UseCase, working: Callable[[str], AbstractContextManager[Progress]], *, with_train: bool = False
) -> None:
    """Draw the scenes of the embedded use case unless they exist, and build its manifests for `data status` and `preview`.

    `working(title)` shows progress meanwhile. Only training needs the scenes of train.
    """
    if case.made_by is None:
        return
    from saod_ray.data import shapes
    from saod_ray.store.build import build_manifests
    from saod_ray.store.manifests import ManifestCache

    if shapes.is_missing(case.root, with_train=with_train):
        with working("drawing scenes") as progress:
            shapes.make(case.root, shapes.existing_recipe(case.root), progress, with_train=with_train)
    if not ManifestCache(case).is_fresh():
        with suppress(SaodError, OSError):  # a run needs no manifests, and the folder may be read-only
            build_manifests(case, lambda title: lambda done, total: None, checked=False)


class RunOutcome(NamedTuple):
    """How a run ended."""

    store: Store
    results: BenchmarkResult
    is_trial: bool  # a limit left detectors incomplete: results went to STORE/trial, and there is no report
    report: str | None  # path of the report, if one was written
    has_failed_images: bool


class BenchmarkRun:
    """A planned run, which can be estimated and carried out."""

    def __init__(self, options: RunOptions, events: RunEvents | None = None, *, store: str | None = None) -> None:
        """Plan the run. `store` replaces the store of the options, for plans that must not write there."""
        self._options, self._events = options, events or RunEvents()
        from saod_ray.config import UseCase
        from saod_ray.data.images import OTHERS_IMAGES, ImageLimits
        from saod_ray.detect.registry import weights_folder
        from saod_ray.engine import plan as planning
        from saod_ray.engine.job import Job, check_request

        case = UseCase.load(options.use_case, options.data)
        uri = store or options.store or f"runs/{case.name}"
        check_request(case, options.detectors, None if store else uri)
        self._events.on_status("Planning ...")
        draw_missing_scenes(case, self._events.working)
        self.job: Job = Job.from_use_case(
            case,
            uri,
            options.detectors,
            weights_folder(options.weights),
            seed=options.seed,
            batch_size=options.batch_size,
            limits=ImageLimits(options.max_pixels or OTHERS_IMAGES.max_pixels, options.follow_links),
        )
        plan_options = planning.PlanOptions(
            options.limit, options.retry_failed, options.with_val_shift, options.replace
        )
        self.plan: Plan = self.job.plan(options.unit_images, plan_options)
        groups = options.resources.groups(self.plan.busy_detectors)
        self._events.on_plan(planning.summary(self.plan, groups))

    def estimates(self, *, probe: bool = False, price: float | None = None) -> list[Estimate]:
        """One estimate per detector; `probe` measures the detectors on this machine, `price` is per actor-hour."""
        from saod_ray.engine.estimate import estimate

        return estimate(self.job, self.plan, probe, price)

    def carry_out(self) -> RunOutcome:
        """Detect on the missing images, score, and write the report. Raises SaodError."""
        from saod_ray.engine import plan as planning
        from saod_ray.engine.failures import FailureBudget, failure_sentences

        job = self.job
        for name in ("results.json", "report.html"):
            job.store.folder.refuse_unwritable(name)
        budget = FailureBudget(self.plan, self._options.max_errors, job.store)
        if self.plan.units:
            self._detect(budget)
        else:
            planning.discard(job.store, self.plan.stale)  # other pages cover the same images
        job.compact()
        job.refuse_mixture()
        budget.refuse_too_many()
        results, is_trial = self._score()
        report = None if is_trial else self._report()
        has_failed = any(budget.failed.values()) or bool(job.failed_images())
        for sentence in failure_sentences(job.store, [spec.name for spec in job.specs]) if has_failed else ():
            self._events.on_message(sentence)
        return RunOutcome(job.store, results, is_trial, report, has_failed)

    def _detect(self, budget: FailureBudget) -> None:
        """Carry out the plan, and record it in the store."""
        from saod_ray.engine.cluster import connected
        from saod_ray.engine.journal import Journal

        options, plan, events = self._options, self.plan, self._events
        events.on_estimates(self.estimates())
        resources = options.resources
        arguments = {name: getattr(options, name) for name in ("use_case", "detectors", "limit", "seed")}
        journal = Journal(self.job.store, plan, {**arguments, **resources._asdict()})
        groups = resources.groups(plan.busy_detectors)
        lanes = {"decoding": sum(plan.images_to_prepare(group) for group in groups)}
        lanes |= {name: plan.missing[name] for name in plan.busy_detectors}
        with ExitStack() as stack:
            stack.enter_context(journal.stage("detecting"))
            events.on_status("Starting Ray ..." if options.address is None else f"Connecting to {options.address} ...")
            stack.enter_context(connected(options.address))
            count = len(plan.busy_detectors)
            events.on_status(f"Loading {count} detector{'s' * (count > 1)} ...")
            progress = stack.enter_context(events.detecting(lanes))
            from saod_ray.engine.driver import Callbacks
            from saod_ray.engine.run import Run

            def on_receipt(receipt: Receipt) -> None:
                journal.note(receipt)
                budget.count(receipt)
                progress(receipt.detector, receipt.images)

            def on_message(message: str) -> None:
                journal.log(message)
                events.on_message(message)

            run = Run(self.job, plan, resources, may_grow=options.address is not None)
            journal.statistics = run.statistics
            run.detect(on_receipt, Callbacks(lambda images: progress("decoding", images), on_message))
        journal.close("done")

    def _score(self) -> tuple[BenchmarkResult, bool]:
        """Score; returns the results, and whether they are those of a trial."""
        from saod_ray.report.diff import last_settings
        from saod_ray.score.benchmark import Benchmark
        from saod_ray.score.bootstrap import Bootstrap

        job, options = self.job, self._options
        scope = job.scope(options.limit is not None)
        folder = job.store.folder.below("trial") if scope.is_trial else job.store.folder
        resamples = Bootstrap(options.bootstrap, 0) if options.bootstrap else None
        benchmark = Benchmark(job.store, last_settings(job.store), scope.is_partial, resamples)
        with self._events.working(f"scoring {', '.join(scope.detectors)}") as progress:
            target = (folder, "results.json")
            scored = score_to_files(benchmark, scope.detectors, target, address=options.address, progress=progress)
        self._events.on_results(scored)
        return scored.results, scope.is_trial

    def _report(self) -> str | None:
        """Write the report; returns its path, or None if it cannot be written, which does not fail the run."""
        try:
            with self._events.working("writing the report") as progress:
                return write_report(self.job.store, data=self.job.case.root, progress=progress)
        except SaodError as error:
            logger.debug("The report was not written.", exc_info=error)
            self._events.on_message(f"The report was not written: {error}")
            return None


def dry_run(
    options: RunOptions, events: RunEvents | None = None, *, probe: bool = False, price: float | None = None
) -> list[Estimate]:
    """Estimate a run without writing into its store.

    If the data of the use case does not exist yet, the published sizes are used; `events.on_published_sizes` receives a sentence
    that says so. Raises SaodError if there are none.
    """
    from saod_ray.config import UseCase
    from saod_ray.engine.job import check_request

    case = UseCase.load(options.use_case, options.data)
    try:
        check_request(case, options.detectors, None)
    except SaodError as error:
        estimates = _published_estimates(case, options)
        if not estimates or probe:
            raise
        (events or RunEvents()).on_published_sizes(
            f"The images are estimated from the published sizes of '{case.name}'. {error}"
        )
        return estimates
    with _planning_store(options.store or f"runs/{case.name}") as uri:
        return BenchmarkRun(options, events, store=uri).estimates(probe=probe, price=price)


def _published_estimates(case: UseCase, options: RunOptions) -> list[Estimate]:
    from saod_ray.detect import registry
    from saod_ray.engine.estimate import published_estimate
    from saod_ray.engine.plan import PlanOptions

    names = [entry.name for entry in registry.choose(case.name, options.detectors)]
    plan_options = PlanOptions(limit=options.limit, val_shift=options.with_val_shift)
    return published_estimate(case, names, plan_options, options.unit_images)


@contextmanager
def _planning_store(uri: str) -> Iterator[str]:
    """A store to plan with, without writing: the store itself if it has detections, else a temporary one."""
    from tempfile import TemporaryDirectory

    from saod_ray.store.store import Store

    with TemporaryDirectory(prefix="saod-ray-") as folder:
        yield uri if Store(uri).detectors() else folder
