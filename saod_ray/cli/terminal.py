"""How far the work is: a bar in a terminal, a line a minute elsewhere; and consoles that know the width and NO_COLOR."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

PATIENCE = 2.0  # seconds of work before a progress bar appears
FIRST_LINE = 15.0  # seconds before the first line where there is no terminal
HEARTBEAT = 60.0  # seconds between lines where there is no terminal


def stdout() -> Console:
    """For what was asked for."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    """For what is said about the work."""
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
def progress(title: str | Callable[[], str]) -> Iterator[Callable[[int, int], None]]:
    """A callback `(done, total)`. What takes long shows a bar in a terminal and a line a minute elsewhere."""
    said = title if callable(title) else lambda: title
    now = (0, 0)
    over = threading.Event()

    def update(done: int, total: int) -> None:
        nonlocal now
        now = (done, total)

    def show() -> None:
        if over.wait(PATIENCE if sys.stderr.isatty() else FIRST_LINE):
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
def stages() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """A callback `(title)` that begins a stage of the work and gives its `(done, total)` callback."""
    with ExitStack() as stack:

        def begin(title: str) -> Callable[[int, int], None]:
            stack.close()  # of the stage before
            return stack.enter_context(progress(title))

        yield begin


def _bar(*more: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *more, TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def bars(totals: dict[str, int]) -> Iterator[Callable[[str, int], None]]:
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
