"""A log of the tasks that processes begin and end, which finds the image that kills its process.

Ray replays the work of a process that dies, without end, but cannot know which image is to blame. Every process reports
the tasks that it begins and ends to the `AttemptLog`, an actor that outlives it. A task that begins again without having
ended has killed its process. After two such deaths the task's images run one by one, each noted before it starts. An image
whose process dies twice while it runs alone is fatal, and becomes a failed row.
"""

from __future__ import annotations

import faulthandler
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from saod_ray.detect.outcomes import PoisonedError, sentence
from saod_ray.errors import SaodError

Result = TypeVar("Result")

CAREFUL_FROM = 2  # deaths after which images run one by one: a random kill must not slow a task down
FATAL_FROM = 2  # deaths of an image that ran alone
MAX_BUILD_DEATHS = 3
MAX_DEATHS = 20  # of one task, without finding an image to blame
COMMIT_POLL = 0.2  # seconds
FATAL = "The process ended or hung on this image, twice."


class HangLimit(NamedTuple):
    """When a process counts as hung, in seconds."""

    base: float = 600.0
    per_image: float = 10.0

    def seconds(self, images: int) -> float:
        """The limit for a task of so many images."""
        return self.base + self.per_image * images


DEFAULT_HANG = HangLimit()


class TaskHistory(NamedTuple):
    """What happened in earlier attempts at a task."""

    deaths: int = 0
    fatal: tuple[int, ...] = ()  # positions of fatal images in the task
    was_ended: bool = False  # but its result was lost, for instance with a node
    is_stopping: bool = False  # the run is stopping: do not begin

    @property
    def is_careful(self) -> bool:
        """Whether images run one by one."""
        return self.deaths >= CAREFUL_FROM

    @property
    def is_replay(self) -> bool:
        """Whether the task was begun before."""
        return self.deaths > 0 or self.was_ended


class AttemptSnapshot(NamedTuple):
    """The state of a run, which the driver polls."""

    prepared: int  # images
    in_hand: int  # tasks that were begun and not ended
    deaths: int  # of processes with a task in hand
    workers: int  # started so far


@dataclass
class _Task:
    is_open: bool = False
    was_ended: bool = False
    deaths: int = 0
    image: int | None = None  # position of the image that runs alone now
    image_deaths: dict[int, int] = field(default_factory=lambda: defaultdict(int))


class AttemptLog:
    """The actor that remembers attempts. It uses no CPU, and runs on the driver's node."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = defaultdict(_Task)
        self._open: set[str] = set()
        self._prepared: dict[str, int] = {}
        self._deaths = self._workers = 0
        self._is_stopping = self._may_commit = False

    def begin(self, name: str) -> TaskHistory:
        """Called when a process begins a task; a task that is still open has killed its process."""
        if self._is_stopping:
            return TaskHistory(is_stopping=True)
        task = self._tasks[name]
        if task.is_open:
            task.deaths += 1
            self._deaths += 1
            if task.image is not None:
                task.image_deaths[task.image] += 1
        task.is_open, task.image = True, None
        self._open.add(name)
        fatal = [image for image, deaths in task.image_deaths.items() if deaths >= FATAL_FROM]
        return TaskHistory(task.deaths, tuple(sorted(fatal)), task.was_ended)

    def note_image(self, name: str, image: int | None) -> None:
        """Called before an image runs alone, and with None after it."""
        self._tasks[name].image = image

    def end(self, name: str, prepared_images: int = 0) -> None:
        """Called when a task is done, with the number of images that it prepared."""
        task = self._tasks[name]
        task.is_open, task.image, task.was_ended = False, None, True
        self._open.discard(name)
        if prepared_images:
            self._prepared[name] = prepared_images

    def worker_started(self) -> None:
        """Called when a worker begins to build its detectors."""
        self._workers += 1

    def allow_commits(self) -> None:
        """Called when the driver has removed the detections that the run replaces."""
        self._may_commit = True

    def may_commit(self) -> bool:
        """Whether workers may write into the store."""
        return self._may_commit

    def stop(self) -> None:
        """Let no further task begin."""
        self._is_stopping = True

    def snapshot(self) -> AttemptSnapshot:
        """The state of the run."""
        prepared = sum(self._prepared.values())
        return AttemptSnapshot(prepared, len(self._open), self._deaths, self._workers)


class Guard:
    """A process's access to the log: runs tasks so that they survive images that kill processes."""

    def __init__(self, log: Any, hang: HangLimit) -> None:
        self._log, self._hang = log, hang

    def begin(self, task: str) -> TaskHistory:
        """Begin a task, and get its history. Raises SaodError after too many deaths."""
        import ray

        history: TaskHistory = ray.get(self._log.begin.remote(task))
        if history.deaths > MAX_DEATHS:
            raise SaodError(
                f"Processes ended {history.deaths} times on {task}, but on no single image: check the memory of the "
                "nodes, and run again with `--unit-images 16`."
            )
        return history

    def end(self, task: str, prepared_images: int = 0) -> None:
        """End a task."""
        self._log.end.remote(task, prepared_images)

    def build(self, detectors: Sequence[str], build: Callable[[], None]) -> str:
        """Build a worker's detectors; returns the problem as one sentence, or an empty string.

        It does not raise, and gives up after some deaths, because Ray would restart the process without end.
        """
        import ray

        names = ", ".join(detectors)
        task = f"the start of actor {ray.get_runtime_context().get_actor_id()}"
        self._log.worker_started.remote()
        history = self.begin(task)
        try:
            if history.deaths >= MAX_BUILD_DEATHS:
                return f"The processes of {names} end before they are ready: check the memory of the nodes."
            with self._watched(0):
                build()
        except Exception as error:  # a user's class may raise anything
            fix = f"{names} cannot be built ({sentence(error)}): fix the class or its options and run again."
            return str(error) if isinstance(error, SaodError) else fix
        finally:
            ray.get(self._log.end.remote(task))
        return ""

    def wait_for_commits(self) -> None:
        """Wait until the driver has removed the detections that the run replaces."""
        import ray

        while not ray.get(self._log.may_commit.remote()):
            time.sleep(COMMIT_POLL)

    def run(
        self,
        task: str,
        history: TaskHistory,
        images: Sequence[int],
        work: Callable[[Sequence[int]], list[Result]],
        *,
        is_exact_alone: bool,
    ) -> dict[int, Result]:
        """The results of `work` by image position; fatal images have none.

        `work` takes positions of images and returns one result for each. `is_exact_alone` says that an image's result does
        not depend on the other images of its batch, so that the results of careful attempts can be used.
        """
        survivors = [image for image in images if image not in history.fatal]
        with self._watched(len(survivors)):
            if not history.is_careful:
                return dict(zip(survivors, work(survivors), strict=True))
            alone = {image: self._run_alone(task, image, work) for image in survivors}
            return alone if is_exact_alone else dict(zip(survivors, work(survivors), strict=True))

    def _run_alone(self, task: str, image: int, work: Callable[[Sequence[int]], list[Result]]) -> Result:
        import ray

        ray.get(self._log.note_image.remote(task, image))
        (result,) = work([image])
        self._log.note_image.remote(task, None)
        return result

    @contextmanager
    def _watched(self, images: int) -> Iterator[None]:
        """End this process if it hangs or is poisoned; Ray then replays its work in another one."""
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123
            faulthandler.dump_traceback_later(self._hang.seconds(images), exit=True, file=nowhere)
            try:
                yield
            except (PoisonedError, SystemExit):  # Ray would not restart an actor that exits by itself
                os._exit(1)
            finally:
                faulthandler.cancel_dump_traceback_later()
