"""Progress on stderr, as bars in a terminal and as a line per minute elsewhere; and consoles for tables."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn

BAR_DELAY = 2.0  # seconds of work before a bar appears
FIRST_LINE = 15.0  # seconds before the first line, where there is no terminal
LINE_INTERVAL = 60.0  # seconds between lines, where there is no terminal
REFRESH = 0.1  # seconds between updates of a bar


def stdout() -> Console:
    """A console for results; it respects the terminal's width and NO_COLOR."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def stderr() -> Console:
    """A console for everything but results; it respects the terminal's width and NO_COLOR."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, soft_wrap=False)


@contextmanager
def _display_thread(display: Callable[[], None], finished: threading.Event) -> Iterator[None]:
    """Run `display` in a thread; `finished` is set when the context ends."""
    thread = threading.Thread(target=display, daemon=True)
    thread.start()
    try:
        yield
    finally:
        finished.set()
        thread.join()


@contextmanager
def progress(title: str | Callable[[], str]) -> Iterator[Callable[[int, int], None]]:
    """Show progress; yields a callback `(done, total)`. Nothing is shown for work that is soon done."""
    current_title = title if callable(title) else lambda: title
    state = (0, 0)
    finished = threading.Event()

    def update(done: int, total: int) -> None:
        nonlocal state
        state = (done, total)

    def display() -> None:
        if finished.wait(BAR_DELAY if sys.stderr.isatty() else FIRST_LINE):
            return
        if not sys.stderr.isatty():
            while True:
                typer.echo(f"{current_title()}: {100 * state[0] / max(state[1], 1):.0f} %", err=True)
                if finished.wait(LINE_INTERVAL):
                    return
        with _bar() as bar:
            task = bar.add_task(current_title(), total=None)
            while not finished.wait(REFRESH):
                bar.update(task, description=current_title(), completed=state[0], total=state[1] or None)

    with _display_thread(display, finished):
        yield update


@contextmanager
def stages() -> Iterator[Callable[[str], Callable[[int, int], None]]]:
    """Show the progress of several stages; yields a callback `(title)` that starts one and returns its `(done, total)`."""
    with ExitStack() as stack:

        def start(title: str) -> Callable[[int, int], None]:
            stack.close()  # ends the previous stage
            return stack.enter_context(progress(title))

        yield start


def _bar(*extra_columns: ProgressColumn) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *extra_columns, TimeRemainingColumn(),
    )  # fmt: skip
    return Progress(*columns, console=Console(stderr=True), transient=True)


@contextmanager
def bars(totals: dict[str, int]) -> Iterator[Callable[[str, int], None]]:
    """Show the progress of concurrent work, one bar per name; yields a callback `(name, images)` that adds images."""
    from rich.progress import TextColumn

    done = dict.fromkeys(totals, 0)
    finished = threading.Event()
    began = time.monotonic()

    def display() -> None:
        if not sys.stderr.isatty():
            while not finished.wait(LINE_INTERVAL):
                seconds = time.monotonic() - began
                parts = [f"{name} {100 * n / totals[name]:.0f} % ({n / seconds:.1f}/s)" for name, n in done.items()]
                typer.echo(", ".join(parts), err=True)
            return
        with _bar(TextColumn("{task.completed:,}/{task.total:,} images"), TextColumn("{task.fields[rate]}")) as bar:
            tasks = {name: bar.add_task(name, total=total, rate="") for name, total in totals.items()}
            while not finished.wait(REFRESH):
                for name, task in tasks.items():
                    speed = bar.tasks[task].speed
                    bar.update(task, completed=done[name], rate=f"{speed:.1f}/s" if speed else "")

    def update(name: str, images: int) -> None:
        done[name] = min(done[name] + images, totals[name])  # lost images are decoded again, and counted again

    with _display_thread(display, finished):
        yield update
