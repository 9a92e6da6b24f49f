"""Where results come from: a store, or a results file and the store that it was scored from."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.files import Folder
from saod_ray.report.results import origins, read_results, read_results_file
from saod_ray.score.results import BenchmarkResult
from saod_ray.store.results_file import FILE
from saod_ray.store.store import Store

REPORT = "report.html"


@dataclass(frozen=True)
class ResultsSource:
    """Results, and the store that they belong to. A store may have no results yet, a results file no known store."""

    place: str  # of the store or the results file, as the user gave it
    folder: Folder  # of the results file
    file: str  # name of the results file
    store: Store | None
    file_results: BenchmarkResult | None = None  # those of a store are read when they are used
    recorded_store: str | None = None  # the store that is recorded beside the file

    @classmethod
    def from_store(cls, store: Store) -> ResultsSource:
        """The results.json of a store, which may not exist yet."""
        return cls(store.uri, store.folder, FILE, store)

    @classmethod
    def open(cls, place: str | os.PathLike[str], store: str | os.PathLike[str] | None = None) -> ResultsSource:
        """Open a store (a folder or URI) or a results file of any name.

        Args:
            place: The store or file.
            store: The store that a results file was scored from. By default it is the store that is recorded beside the
                file, or the folder of the file, or the one above it.

        Raises:
            SaodError: There is no such store or file, the file has no results, or they are not of `store`.
        """
        place = os.fspath(place)
        if not _names_file(place):
            if store is not None and Store(os.fspath(store)).absolute != Store(place).absolute:
                raise SaodError(f"{place} is not a results file, which --store is for: leave out --store.")
            return cls.from_store(Store.open(place))
        folder, file = _split(place)
        results = read_results_file(folder, file, place)
        if store is None:
            own_store, recorded = _find_store(folder, file, results)
            return cls(place, folder, file, own_store, results, recorded)
        opened = Store.open(os.fspath(store))
        if not is_of_store(results, opened):
            raise SaodError(
                f"{place} was not scored from {opened.uri}: give --store the store that it was scored from."
            )
        return cls(place, folder, file, opened, results)

    @property
    def is_store(self) -> bool:
        """Whether the source is a store, rather than a results file."""
        return self.file_results is None

    @property
    def has_results(self) -> bool:
        """Whether there are results; a store may have none yet."""
        return not self.is_store or self.folder.exists(self.file)

    @property
    def results(self) -> BenchmarkResult:
        """The results. Raises SaodError if a store has none yet, or if they are damaged."""
        return read_results(self.known_store) if self.file_results is None else self.file_results

    @property
    def settings(self) -> ScoreSettings:
        """The settings of the results, or the defaults if a store has none yet."""
        if not self.has_results:
            return ScoreSettings()
        return ScoreSettings.from_options(**msgspec.to_builtins(self.results.settings))

    @property
    def detectors(self) -> list[str]:
        """The detectors of the results file, or all of the store."""
        return self.known_store.detectors() if self.file_results is None else sorted(self.file_results.detectors)

    @property
    def known_store(self) -> Store:
        """The store. Raises SaodError if it is not known."""
        if self.store is not None:
            return self.store
        if self.recorded_store and "://" in self.recorded_store:
            reason = f"was scored from {self.recorded_store}, which is not opened because it is a URI"
        elif self.recorded_store:
            reason = f"was scored from {self.recorded_store}, where its store is not any more"
        else:
            reason = "does not say which store it was scored from"
        raise SaodError(f"{self.place} {reason}: name the store with --store.")

    @property
    def report_name(self) -> str:
        """The name of the report in the folder of the results: report.html, or NAME.html for NAME.json."""
        return REPORT if self.file == FILE else f"{self.file.removesuffix('.json')}.html"

    @property
    def path(self) -> str:
        """The path of the results for the filesystem, which is the same for a store and for its results.json."""
        path = self.folder.path(self.file)
        return os.path.realpath(path) if self.folder.is_local else path

    @property
    def title(self) -> str:
        """How messages call the results."""
        return f"{FILE} in {self.place}" if self.is_store else self.place

    @property
    def score_command(self) -> str:
        """The command that writes these results."""
        return f"saod-ray score {self.known_store.uri}{'' if self.is_store else f' --out {self.place}'}"

    def with_store(self, store: Store | None) -> ResultsSource:
        """The same results with this store, if theirs is not known and they belong to it."""
        if self.store is not None or store is None or not is_of_store(self.results, store):
            return self
        return replace(self, store=store)

    def choose(self, names: list[str] | None) -> list[str]:
        """These detectors, or all, sorted; SaodError for unknown names."""
        if self.file_results is None:
            return self.known_store.choose(names)
        for name in names or ():
            self.file_results[name]  # raises for an unknown name
        return self.known_store.choose(names or self.detectors)

    def refuse_changed(self, detectors: list[str]) -> None:
        """Raise SaodError if the store has other detections now than a results file was computed from."""
        for name in detectors if self.file_results is not None else ():
            if self.results.provenance.detections.get(name) != origins(self.known_store, name):
                raise SaodError(
                    f"{self.place} was computed from other detections of '{name}' than {self.known_store.uri} has now: "
                    f"run `{self.score_command}` again with the settings you want."
                )


def to_source(place: Store | ResultsSource) -> ResultsSource:
    """The source itself, or that of a store."""
    return ResultsSource.from_store(place) if isinstance(place, Store) else place


def is_of_store(results: BenchmarkResult, store: Store) -> bool:
    """Whether results are about the images and objects of a store."""
    description = store.description
    return (results.use_case, results.provenance.use_case.manifests) == (description.name, description.manifests)


def _names_file(place: str) -> bool:
    """Whether a place is a file, or would be one if it existed."""
    if "://" in place:
        return place.partition("?")[0].endswith(".json")
    return Path(place).is_file() or (place.endswith(".json") and not Path(place).is_dir())


def _split(place: str) -> tuple[Folder, str]:
    """The folder and the name of a file."""
    if "://" not in place:
        return Folder(str(Path(place).parent)), Path(place).name
    path, mark, options = place.partition("?")
    parent, _, name = path.rpartition("/")
    return Folder(f"{parent}{mark}{options}"), name


# the store of a results file ----------------------------------------------------------------------------------------


class StoreRecord(msgspec.Struct, frozen=True):
    """The file beside a results file that names its store: a URI, or a path that is relative to the file's folder."""

    store: str


def record_name(file: str) -> str:
    """The name of the file that names the store of a results file.

    >>> record_name("results.json")
    'results.store.json'
    """
    return f"{file.removesuffix('.json')}.store.json"


def record_store(folder: Folder, file: str, store: Store) -> None:
    """Write which store a results file was scored from, unless the file is in the store or in a folder of it."""
    if any(near.path("") == store.folder.path("") for near in _near_folders(folder)):
        folder.delete(record_name(file))  # which an earlier scoring of another store may have left
        return
    place = store.uri
    if store.folder.is_local:
        place = store.absolute
        if folder.is_local:
            place = os.path.relpath(place, os.path.realpath(folder.path("")))
    folder.write_if_changed(record_name(file), msgspec.json.encode(StoreRecord(place)) + b"\n")


def _near_folders(folder: Folder) -> tuple[Folder, ...]:
    """The folder and the one above it."""
    path, mark, options = folder.uri.partition("?")
    if "://" not in path:
        return folder, Folder(os.path.normpath(Path(path) / ".."))
    return folder, Folder(f"{path.rstrip('/').rpartition('/')[0]}{mark}{options}")


def _find_store(folder: Folder, file: str, results: BenchmarkResult) -> tuple[Store | None, str | None]:
    """The store of a results file if it is found, and the one that is recorded beside the file."""
    recorded = _recorded_store(folder, file)
    # a recorded URI is not opened: whoever gives a results file away must not choose which servers are asked
    candidates = [recorded] if recorded and "://" not in recorded and folder.is_local else []
    for uri in (*candidates, *(near.uri for near in _near_folders(folder))):
        if (store := _open_matching(uri, results)) is not None:
            return store, recorded
    return None, recorded


def _recorded_store(folder: Folder, file: str) -> str | None:
    """The URI or path in the record beside a results file; None without a record, or if it is damaged."""
    try:
        place = msgspec.json.decode(folder.read(record_name(file)), type=StoreRecord).store
    except (FileNotFoundError, SaodError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    if not place or not place.isprintable():
        return None
    if "://" in place or not folder.is_local or Path(place).is_absolute():
        return place
    return os.path.relpath(os.path.normpath(Path(folder.path("")) / place))


def _open_matching(uri: str, results: BenchmarkResult) -> Store | None:
    """The store at a URI, if there is one and the results are of it."""
    try:
        store = Store.open(uri)
        return store if is_of_store(results, store) else None
    except (SaodError, FileNotFoundError):
        return None
