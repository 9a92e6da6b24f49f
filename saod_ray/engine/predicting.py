"""Verdicts on many images: tasks decode, actors hold the detector, and outcomes come in the order of the files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from saod_ray.detect.outcomes import sentence
from saod_ray.engine.pictures import Picture, Wanted, prepare
from saod_ray.engine.run import CPU_ACTOR, CPU_DECODE
from saod_ray.errors import SaodError
from saod_ray.predict.predictor import Outcome, Predictor, Setup

PART = 8  # images that a task decodes, and an actor looks at in one call
AHEAD = 2  # parts that are decoded, or done before their turn, for each actor
FATAL = "A process ended on this image."


class Looker:
    """An actor that holds a self-aware detector. It is built by calls, which Ray tries twice; an actor, without end."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._predictor: Predictor | None = None

    def ready(self) -> str:
        """Build the detector; what is wrong with it, in a sentence, or nothing."""
        try:
            self._predictor = self._setup.predictor()
        except SaodError as error:
            return str(error)
        except Exception as error:  # of a user's class
            return f"'{self._setup.entry.name}' cannot be built ({sentence(error)}): mend its class or its options."
        return ""

    def look(self, files: Sequence[str], pictures: list[Picture], draw: bool) -> list[Outcome]:
        """The outcomes of some files."""
        if self._predictor is None:  # the process is a new one
            self._predictor = self._setup.predictor()
        return self._predictor.outcomes(files, pictures, draw)


@dataclass(eq=False)
class _Part:
    """Files, their pictures by reference, and what came of them, once that is known."""

    files: Sequence[str]
    pictures: Any
    outcomes: list[Outcome] | None = None


class _Looking:
    """Parts in the order of the files. An actor has one call at a time, so that its death is about that part alone."""

    def __init__(self, setup: Setup, draw: bool) -> None:
        has = ray.cluster_resources()
        gpus, cpus = int(has.get("GPU", 0)), int(has.get("CPU", 1))
        count = max(1, min(gpus or cpus, cpus))  # no more than cores, so that there is room for decoding, too
        ask: dict[str, Any] = {"num_gpus": min(gpus, 1), "num_cpus": CPU_ACTOR}
        # an actor that dies is started again, and what it was at is tried once more
        made: Any = ray.remote(max_restarts=-1, max_task_retries=1, **ask)(Looker)
        actors = [made.remote(setup) for _ in range(count)]
        self._starting = {actor.ready.remote(): actor for actor in actors}
        self._idle: list[Any] = []
        self._prepare: Any = ray.remote(num_cpus=CPU_DECODE, max_retries=1, num_returns=2)(prepare)
        self._calls: dict[Any, tuple[Any, _Part]] = {}
        self._waiting: deque[_Part] = deque()
        self._name, self._draw, self._room = setup.entry.name, draw, count * (1 + AHEAD)
        self.order: deque[_Part] = deque()

    def end(self) -> None:
        """Let the actors go: Ray ends those that nobody holds, also where an error that is kept holds on to this."""
        for held in (self._starting, self._calls, self._idle):
            held.clear()

    def has_room(self) -> bool:
        """Whether more may be decoded."""
        return len(self.order) < self._room

    def add(self, files: Sequence[str]) -> None:
        """Have a part decoded, and looked at when its turn comes."""
        part = self._decoded(files)
        self.order.append(part)
        self._waiting.append(part)

    def go_on(self) -> None:
        """Give idle actors what waits, and take what has ended, or an actor that has begun: some may never find room."""
        while self._idle and self._waiting:
            actor, part = self._idle.pop(), self._waiting.popleft()
            self._calls[actor.look.remote(part.files, part.pictures, self._draw)] = (actor, part)
        ready, _ = ray.wait([*self._calls, *self._starting], num_returns=1)
        for call in ready:
            if call in self._starting:
                self._begin(self._starting.pop(call), call)
                continue
            actor, part = self._calls.pop(call)
            self._idle.append(actor)
            self._end(part, call)

    def _begin(self, actor: Any, call: Any) -> None:
        try:
            problem = ray.get(call)
        except RayError:
            problem = f"The process that built '{self._name}' ended: mend its class or its options."
        if problem:
            raise SaodError(problem)
        self._idle.append(actor)

    def _decoded(self, files: Sequence[str]) -> _Part:
        wanted = [Wanted(k, file, None) for k, file in enumerate(files)]
        return _Part(files, self._prepare.remote(str(Path.cwd()), wanted, 0, 0)[1])

    def _end(self, part: _Part, call: Any) -> None:
        """Where a process ended on a part, its images are tried in ever smaller ones."""
        try:
            part.outcomes = ray.get(call)
            return
        except RayTaskError as error:
            if isinstance(error.cause, SaodError):
                raise error.cause from None
            if not isinstance(error.cause, RayError):
                raise
        except RayError:
            pass
        if len(part.files) == 1:
            part.outcomes = [Outcome(part.files[0], None, FATAL)]
            return
        middle, place = len(part.files) // 2, self.order.index(part)
        del self.order[place]
        for half in (part.files[middle:], part.files[:middle]):
            smaller = self._decoded(half)
            self.order.insert(place, smaller)
            self._waiting.appendleft(smaller)


def predicted(setup: Setup, files: Sequence[str], draw: bool) -> Iterator[Outcome]:
    """As in one process, on the Ray cluster that is connected."""
    looking = _Looking(setup, draw)
    try:
        yield from _outcomes(looking, setup, files)
    finally:
        looking.end()


def _outcomes(looking: _Looking, setup: Setup, files: Sequence[str]) -> Iterator[Outcome]:
    size = max(PART, setup.batch_size)
    starts = iter(range(0, len(files), size))
    while True:
        while looking.has_room() and (start := next(starts, None)) is not None:
            looking.add(files[start : start + size])
        if not looking.order:
            return
        while looking.order and (done := looking.order[0].outcomes) is not None:
            looking.order.popleft()
            yield from done
        if looking.order:
            looking.go_on()
