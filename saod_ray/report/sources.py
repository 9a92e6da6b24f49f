"""What is there of a use case, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.table import Table
from rich.text import Text

from saod_ray.store.build import SourceStatus, UseCaseStatus


def source_table(status: UseCaseStatus) -> Table:
    """A row a source: whether it is there, how much of it a build found, and how much was published."""
    title = f"{status.use_case} below {status.root}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in ("source", "what", "there"):
        table.add_column(name)
    compared = any(each.published is not None for each in status.sources)
    for name in ("images", "published", "objects", "published") if compared else ("images", "objects"):
        table.add_column(name, justify="right")
    for each in status.sources:
        there = Text("yes", "green") if each.is_there else Text("no", "red")
        figures: list[Text | str] = [
            _images(each),
            _number(each.published),
            _number(each.objects),
            each.published_objects,
        ]
        table.add_row(each.source, Text(each.name), there, *(figures if compared else figures[::2]))
    ood = [each for each in status.sources if each.source.startswith("ood/")]
    if len(ood) > 1:
        sums = [_sum(each.images for each in ood), _sum(each.published for each in ood)]
        table.add_row("ood", "all of them", "", *(sums if compared else sums[:1]))
    return table


def remarks(status: UseCaseStatus) -> Iterator[Text]:
    """What else there is to say, a line each: where things are looked for and got, how sizes differ, what to do next."""
    for each in status.sources:
        for word, wanted in (("found", True), ("missing", False)):
            paths = [
                path.removeprefix(f"{status.root.rstrip('/')}/")
                for path, there in each.looked_for.items()
                if there == wanted
            ]
            if paths:
                yield Text(f"{word:<8} {each.source}: {', '.join(paths)}", "" if wanted else "red")
    for page, licence in dict.fromkeys((each.page, each.licence) for each in status.sources if each.page):
        names = dict.fromkeys(each.name for each in status.sources if (each.page, each.licence) == (page, licence))
        yield Text(f"get      {', '.join(names)}: {page} ({licence})")
    for each in status.sources:
        if each.note:
            yield Text(f"note     {each.name}: {each.note}")
        if each.images is not None and each.published is not None and each.images != each.published:
            yield Text(f"differs  {each.name}: {each.images:,} images here, {each.published:,} published.", "yellow")
    yield Text(_next_step(status))


def _sum(values: Iterable[int | None]) -> str:
    known = list(values)
    return "" if None in known else f"{sum(value or 0 for value in known):,}"


def _next_step(status: UseCaseStatus) -> str:
    if status.built == "yes":
        return f"built    {status.manifests}"
    if status.built == "damaged":
        return f"next     what was built is damaged: {status.build_command}"
    if status.built == "stale":
        return f"next     its files have changed since it was built: {status.build_command}"
    return f"next     not built yet: {status.build_command}"


def _images(state: SourceStatus) -> Text:
    if state.images is None:
        return Text("")
    differs = state.published is not None and state.images != state.published
    return Text(f"{state.images:,}", "yellow" if differs else "green")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
