"""The state of a use case's data, for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich import box
from rich.table import Table
from rich.text import Text

from saod_ray.store.build import SourceStatus, UseCaseStatus


def source_table(status: UseCaseStatus) -> Table:
    """One row per source: whether its files exist, how many images and objects a build found, and how many were published."""
    title = f"{status.use_case} in {status.root}"
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in ("source", "data set", "exists"):
        table.add_column(name)
    has_published = any(source.published is not None for source in status.sources)
    for name in ("images", "published", "objects", "published") if has_published else ("images", "objects"):
        table.add_column(name, justify="right")
    for source in status.sources:
        exists = Text("yes", "green") if source.is_there else Text("no", "red")
        counts: list[Text | str] = [
            _images(source),
            _number(source.published),
            _number(source.objects),
            source.published_objects,
        ]
        table.add_row(source.source, Text(source.name), exists, *(counts if has_published else counts[::2]))
    ood = [source for source in status.sources if source.source.startswith("ood/")]
    if len(ood) > 1:
        sums = [_sum(source.images for source in ood), _sum(source.published for source in ood)]
        table.add_row("ood", "all subsets", "", *(sums if has_published else sums[:1]))
    return table


def remarks(status: UseCaseStatus) -> Iterator[Text]:
    """Remarks, one line each: files found and missing, where to download them, differing sizes, and the next step."""
    for source in status.sources:
        for word, is_found in (("found", True), ("missing", False)):
            paths = [
                path.removeprefix(f"{status.root.rstrip('/')}/")
                for path, exists in source.looked_for.items()
                if exists == is_found
            ]
            if paths:
                yield Text(f"{word:<8} {source.source}: {', '.join(paths)}", "" if is_found else "red")
    for page, licence in dict.fromkeys((source.page, source.licence) for source in status.sources if source.page):
        names = dict.fromkeys(
            source.name for source in status.sources if (source.page, source.licence) == (page, licence)
        )
        yield Text(f"get      {', '.join(names)}: {page} ({licence})")
    for source in status.sources:
        if source.note:
            yield Text(f"note     {source.name}: {source.note}")
        if source.images is not None and source.published is not None and source.images != source.published:
            yield Text(
                f"differs  {source.name}: {source.images:,} images here, {source.published:,} published.", "yellow"
            )
    yield Text(_next_step(status))


def _sum(values: Iterable[int | None]) -> str:
    """The sum, or an empty text if a value is unknown."""
    counts = list(values)
    return "" if None in counts else f"{sum(count or 0 for count in counts):,}"


def _next_step(status: UseCaseStatus) -> str:
    if status.built == "yes":
        return f"built    {status.manifests}"
    if status.built == "damaged":
        return f"next     the built manifests are damaged: {status.build_command}"
    if status.built == "stale":
        return f"next     the files have changed since the last build: {status.build_command}"
    return f"next     not built yet: {status.build_command}"


def _images(state: SourceStatus) -> Text:
    if state.images is None:
        return Text("")
    differs = state.published is not None and state.images != state.published
    return Text(f"{state.images:,}", "yellow" if differs else "green")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
