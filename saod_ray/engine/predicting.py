"""Verdicts on many images: tasks decode, actors hold the detector, and outcomes come in the order of the files."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError, RayTaskError

from saod_ray.engine.pictures import Picture, Wanted, prepare
from saod_ray.engine.run import CPU_ACTOR, CPU_DECODE
from saod_ray.errors import SaodError
from saod_ray.predict.predictor import Outcome, Setup

PART = 8  # images that a task decodes, and an actor looks at in one call
AHEAD = 2  # parts that are decoded, or done before their turn, for each actor
FATAL = "A process ended on this image."


class Looker:
    """An actor that holds a self-aware detector."""

    def __init__(self, setup: Setup) -> None:
        self._problem = ""
        try:
            self._predictor = setup.predictor()
        except SaodError as error:
            self._problem = str(error)

    def ready(self) -> str:
        """What is wrong with it, in a sentence, or nothing."""
        return self._problem

    def look(self, files: Sequence[str], pictures: list[Picture], draw: bool) -> list[Outcome]:
        """The outcomes of some files."""
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
        gpus = int(has.get("GPU", 0))
        ask: dict[str, Any] = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": CPU_ACTOR}
        count = gpus or max(1, int(has.get("CPU", 1)))
        # an actor that dies is started again, and what it was at is tried once more
        made: Any = ray.remote(max_restarts=-1, max_task_retries=1, **ask)(Looker)
        self._idle = [made.remote(setup) for _ in range(count)]
        self._prepare: Any = ray.remote(num_cpus=CPU_DECODE, max_retries=1, num_returns=2)(prepare)
        self._calls: dict[Any, tuple[Any, _Part]] = {}
        self._waiting: deque[_Part] = deque()
        self._draw, self._room = draw, count * (1 + AHEAD)
        self.order: deque[_Part] = deque()

    def check(self) -> None:
        """Wait until all actors are there; what is wrong with one is an error."""
        for problem in ray.get([actor.ready.remote() for actor in self._idle]):
            if problem:
                raise SaodError(problem)

    def has_room(self) -> bool:
        """Whether more may be decoded."""
        return len(self.order) < self._room

    def add(self, files: Sequence[str]) -> None:
        """Have a part decoded, and looked at when its turn comes."""
        part = self._decoded(files)
        self.order.append(part)
        self._waiting.append(part)

    def go_on(self) -> None:
        """Give idle actors what waits, and take what has ended."""
        while self._idle and self._waiting:
            actor, part = self._idle.pop(), self._waiting.popleft()
            self._calls[actor.look.remote(part.files, part.pictures, self._draw)] = (actor, part)
        ready, _ = ray.wait(list(self._calls), num_returns=1)
        for call in ready:
            actor, part = self._calls.pop(call)
            self._idle.append(actor)
            self._end(part, call)

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
    looking.check()
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
