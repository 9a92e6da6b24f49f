"""A pool of actors that hold the same detectors. The driver hands them jobs, replaces those that die, and lets them go."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from saod_ray.engine.workers import Crew

IDLE = 30.0  # seconds after which an actor that has nothing to do is let go


class Size(NamedTuple):
    """How many actors a pool has at least while there is work and room for them, and at most."""

    low: int
    high: int


@dataclass(eq=False)
class Pool:
    """Actors are started, get ready, are idle or busy; jobs wait in the queue."""

    crew: Crew
    size: Size
    start: Callable[[Crew], Any]
    queue: deque[Any] = field(default_factory=deque)
    starting: dict[Any, Any] = field(default_factory=dict)  # ready call → actor
    idle: dict[Any, float] = field(default_factory=dict)  # actor → since when
    busy: dict[Any, Any] = field(default_factory=dict)  # call → actor
    until: dict[Any, float] = field(default_factory=dict)  # call → when it counts as hung
    started: int = 0
    lost: int = 0
    stillborn: int = 0  # one after the other, before they were ready
    has_begun: bool = False  # an actor was ready

    @property
    def names(self) -> tuple[str, ...]:
        """Its detectors."""
        return tuple(entry.name for entry in self.crew.entries)

    @property
    def actors(self) -> int:
        """How many there are, ready or not."""
        return len(self.starting) + len(self.idle) + len(self.busy)

    def grow(self) -> list[Any]:
        """Start actors: up to the least number where there is work, and one more for a queue as long as the pool."""
        wanted = self.size.low if self.queue or self.busy else 0
        if len(self.queue) > self.actors >= wanted and not self.starting:
            wanted = self.actors + 1
        calls = []
        while self.actors < min(wanted, self.size.high):
            actor = self.start(self.crew)
            call = actor.ready.remote()
            self.starting[call] = actor
            self.started += 1
            calls.append(call)
        return calls

    def shrink(self, kill: Callable[[Any], None], is_over: bool, is_short: bool = False) -> None:
        """Let idle actors go: all where no work is left, else those that idled for long.

        The least number stay, unless others are short of what they hold: they come back when there is work again.
        """
        for actor, since in list(self.idle.items()):
            idled = not self.queue and time.monotonic() - since > IDLE
            if is_over or (idled and (is_short or self.actors > self.size.low)):
                del self.idle[actor]
                kill(actor)
        if is_over:
            for call, actor in list(self.starting.items()):
                del self.starting[call]
                kill(actor)

    def end_overdue(self, kill: Callable[[Any], None]) -> None:
        """End actors that hang; their calls then fail as those of any actor that dies."""
        for call, until in list(self.until.items()):
            if time.monotonic() > until:
                del self.until[call]
                kill(self.busy[call])

    def freed(self, call: Any) -> Any:
        """The actor whose call is over."""
        self.until.pop(call, None)
        return self.busy.pop(call)

    def rest(self, actor: Any) -> None:
        """It has nothing to do."""
        self.idle[actor] = time.monotonic()
