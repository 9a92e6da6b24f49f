"""Attack every kind of untrusted file, and a server: `python -m benchmarks.attack [SEED]`.

The outcome of an attempt is `refused` (with a single sentence), `harmless` (the result is unchanged or within its bounds) or
`wrong`: another result without a message, an error that is not a SaodError, a file outside that was read or changed, code that ran.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import logging
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from PIL import Image

from benchmarks.attack_http import attack_server
from benchmarks.mutations import HOSTILE, flipped, mangled, mutated
from saod_ray import SelfAware
from saod_ray.config import ScoreSettings, UseCase
from saod_ray.data.images import ImageLimits, decode, load
from saod_ray.detect import registry
from saod_ray.errors import SaodError
from saod_ray.files import Folder, is_plain
from saod_ray.report.data import gather
from saod_ray.report.results import results
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.bootstrap import Bootstrap
from saod_ray.store import coco_results, manifests
from saod_ray.store.coco_import import import_results
from saod_ray.store.results_file import read_results
from saod_ray.store.seals import encode_json, sealed
from saod_ray.store.store import Store
from saod_ray.store.verify import verify

DEMO = Path(__file__).parents[1] / "examples" / "demo"
DETECTORS = ("sharp", "blunt")
REFUSED, HARMLESS, WRONG = "refused", "harmless", "wrong"
MAX_PIXELS = 1_000_000  # limit for the attacked images
Outcomes = Iterator[str]


class Attack:
    """A scored store of the demo, a file outside it that must not change, and the number of attempts per kind."""

    def __init__(self, folder: Path, seed: int, times: float) -> None:
        self.folder, self.rng, self._times = folder, random.Random(seed), times
        self.case = UseCase.load(DEMO / "use-case.toml")
        self.store = Store(str(folder / "store"))
        for detector in DETECTORS:
            for split in self.case.split_names():
                import_results(self.store.uri, self.case, detector, split, DEMO / detector / f"{split}.json.gz")
        self.victim = folder / "victim.parquet"
        self.victim.write_bytes(b"kept")
        self.ran = folder / "ran"
        self.notes: list[str] = []
        self._score_once()

    def _score_once(self) -> None:
        resamples = Bootstrap(10, 0)
        benchmark = Benchmark(Store.open(self.store.uri), ScoreSettings(), False, resamples)
        scored = benchmark.score(DETECTORS)
        self.expected = {name: entry.result for name, entry in scored.items()}
        value = results(benchmark.store, benchmark.settings, scored, False, resamples)
        self.store.folder.put("results.json", encode_json(value))
        for name, result in scored.items():
            self.store.folder.put(f"selfaware/{name}.json", encode_json(result.selfaware))

    def times(self, count: int) -> range:
        """A range of `count` attempts, scaled by the factor of the command line."""
        return range(max(1, round(count * self._times)))

    def path(self, name: str) -> Path:
        return Path(self.store.folder.path(name))

    def files(self, pattern: str) -> list[Path]:
        return sorted(path for path in self.path("").glob(pattern) if path.is_file())

    def outcome(self, what: str, attempt: Callable[[], bool]) -> str:
        """The outcome of an attempt. `attempt` returns whether its result is acceptable."""
        try:
            is_fine = attempt()
        except SaodError as error:
            is_fine, outcome = "\n" not in str(error), REFUSED
        except Exception as error:
            is_fine, outcome, what = False, WRONG, f"{what} ({type(error).__name__}: {error})"
        else:
            outcome = HARMLESS
        if not is_fine or self.victim.read_bytes() != b"kept" or self.ran.exists():
            self.notes.append(what[:300])
            return WRONG
        return outcome

    def with_content(self, path: Path, content: bytes, attempt: Callable[[], bool]) -> str:
        """The outcome of an attempt while `path` has other content."""
        before = path.read_bytes()
        path.write_bytes(content)
        try:
            return self.outcome(str(path), attempt)
        finally:
            path.write_bytes(before)

    def scores_as_before(self, with_cache: bool = False) -> bool:
        """Whether the store gives the same results, or `verify` finds the damage."""
        if not with_cache:
            shutil.rmtree(self.path("cache"), ignore_errors=True)
        store = Store.open(self.store.uri)
        scored = Benchmark(store, ScoreSettings()).score(DETECTORS)
        if {name: entry.result for name, entry in scored.items()} == self.expected:
            return True
        return bool(verify(store, DETECTORS).problems)


def flips_of_the_store(attack: Attack) -> Outcomes:
    """Flip bits of use-case.json, manifests, ledger pages and shards."""
    for pattern, count in (
        ("use-case.json", 12),
        ("manifest/*", 24),
        ("ledger/**/*.json", 24),
        ("detections/**/*", 40),
    ):
        files = attack.files(pattern)
        for _ in attack.times(count):
            path = attack.rng.choice(files)
            change = attack.rng.choice((flipped, flipped, mangled))
            yield attack.with_content(path, change(path.read_bytes(), attack.rng), attack.scores_as_before)


def forged_pages(attack: Attack) -> Outcomes:
    """Swap ledger pages, and write pages with changed content and a matching digest."""
    pages = attack.files("ledger/**/*.json")
    for _ in attack.times(20):
        path, other = attack.rng.sample(pages, 2)
        yield attack.with_content(path, other.read_bytes(), attack.scores_as_before)
    for _ in attack.times(40):
        path = attack.rng.choice(pages)
        value = mutated(json.loads(path.read_bytes()), attack.rng)
        yield attack.with_content(path, _with_digest(value), attack.scores_as_before)
    for name in ("../../../../victim", str(attack.victim.with_suffix("")), "../" * 9 + "etc/hostname"):
        path = attack.path("ledger/sharp/id/all.json")
        value = json.loads(path.read_bytes())
        value["shards"][0]["name"] = name
        yield attack.with_content(path, _with_digest(value), lambda: _replaced(attack))


def _with_digest(page: dict[str, Any]) -> bytes:
    """A page with a digest that matches its content."""
    page["digest"] = ""
    page["digest"] = hashlib.sha256(msgspec.json.encode(page)).hexdigest()
    return json.dumps(page).encode()


def _replaced(attack: Attack) -> bool:
    """Import over a hostile page, in a copy of the store."""
    copy = attack.folder / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(attack.path(""), copy)
    import_results(str(copy), attack.case, "sharp", "id", DEMO / "sharp" / "id.json.gz", replace=True)
    return True


def cache_entries(attack: Attack) -> Outcomes:
    """Damage cache entries, and copy them under another key."""
    attack.scores_as_before()
    files = attack.files("cache/**/*")
    for _ in attack.times(60):
        path, other = attack.rng.sample(files, 2)
        data = other.read_bytes() if attack.rng.random() < 0.5 else mangled(path.read_bytes(), attack.rng)
        yield attack.with_content(path, data, lambda: attack.scores_as_before(with_cache=True))


def self_aware_files(attack: Attack) -> Outcomes:
    """Flips must be refused. Changed values with a matching digest must be refused or usable, and never run code."""
    path = attack.path("selfaware/sharp.json")
    original = path.read_bytes()
    expected = SelfAware.load(path).to_json()
    for _ in attack.times(400):
        yield attack.with_content(
            path, flipped(original, attack.rng), lambda: SelfAware.load(path).to_json() == expected
        )
    for _ in attack.times(200):
        data = encoded_loosely(sealed(mutated(json.loads(original), attack.rng)))
        yield attack.with_content(path, data, lambda: _is_usable(SelfAware.load(path)))
    trap = attack.folder / "trap.toml"
    trap.with_name("trap_module.py").write_text(
        f"open({str(attack.ran)!r}, 'w')\nclass Trap:\n    def detect(self): ...\n"
    )
    trap.write_text('[trap]\nbackend = "trap_module:Trap"\n')
    for name in (str(trap), "trap.toml", f"atss,{trap}", "all"):
        value = {
            **json.loads(original),
            "detector": name,
            "use_case": "shapes",
            "fingerprint": "0" * 40,
            "origin": "run",
        }
        data = encode_json(sealed(value))
        yield attack.with_content(path, data, lambda: not SelfAware.load(path).predict([]))


def encoded_loosely(value: Any) -> bytes:
    return json.dumps(value).encode()


def _is_usable(aware: SelfAware) -> bool:
    """Whether a self-aware detector with changed numbers is still consistent."""
    return np.isfinite(aware.image_threshold) and len(aware.calibrators) == len(aware.detection_thresholds)


def results_files(attack: Attack) -> Outcomes:
    """Flips must be refused. Changed values with a matching digest are compared with the results of the store."""
    path, store = attack.path("results.json"), Store.open(attack.store.uri)
    original = path.read_bytes()
    expected = read_results(store)
    for _ in attack.times(400):
        yield attack.with_content(path, flipped(original, attack.rng), lambda: read_results(store) == expected)
    for _ in attack.times(30):
        value = mutated(json.loads(original), attack.rng)
        yield attack.with_content(path, encoded_loosely(sealed(value)), lambda: bool(gather(store)))


def annotation_files(attack: Attack) -> Outcomes:
    """Damage COCO files. No image name may lead out of the data folder."""
    data = attack.folder / "data"
    shutil.copytree(DEMO, data)
    case = UseCase.load(data / "use-case.toml")
    for _ in attack.times(150):
        path = data / attack.rng.choice(("val.json.gz", "id.json.gz", "ood.json.gz"))
        text = gzip.decompress(path.read_bytes())
        if attack.rng.random() < 0.3:
            content = mangled(path.read_bytes(), attack.rng)
        elif attack.rng.random() < 0.5:
            content = gzip.compress(mangled(text, attack.rng), 1)
        else:
            content = gzip.compress(encoded_loosely(mutated(json.loads(text), attack.rng)), 1)
        yield attack.with_content(path, content, lambda: _names_stay_inside(case))


def _names_stay_inside(case: UseCase) -> bool:
    tables = manifests.parse_manifests(manifests.bundle_manifests(case).files)
    return all(is_plain(name) for table in tables.values() for name in table.images["file_name"])


def imports(attack: Attack) -> Outcomes:
    """Damage result lists. Imported values must be within the bounds of a detection."""
    rows = json.loads(gzip.decompress((DEMO / "sharp" / "val.json.gz").read_bytes()))[:40]
    path = attack.folder / "detections.json"
    for number in attack.times(120):
        is_text = attack.rng.random() < 0.4
        text = json.dumps(rows).encode()
        path.write_bytes(mangled(text, attack.rng) if is_text else encoded_loosely(mutated(rows, attack.rng)))
        uri = str(attack.folder / f"import-{number}")
        yield attack.outcome(
            path.read_text(errors="replace")[:200], partial(_imported_within_bounds, attack, uri, path)
        )
        shutil.rmtree(uri, ignore_errors=True)


def _imported_within_bounds(attack: Attack, uri: str, path: Path) -> bool:
    page = import_results(uri, attack.case, "d", "val", path)
    store = Store.open(uri)
    bounds = {"score": 1.0, "variance": coco_results.LARGEST["variance"]}
    shards = [store.read_shard("d", "val", shard).columns for shard in page.shards]
    columns = [
        (bounds.get(name, 2 * coco_results.FARTHEST), values) for shard in shards for name, values in shard.items()
    ]
    return all(bool((np.abs(values) <= bound).all()) for bound, values in columns)


def toml_files(attack: Attack) -> Outcomes:
    """Damage TOML files of use cases and detectors, and name backends that are not detectors."""
    use_case, detectors = attack.folder / "use-case.toml", attack.folder / "detectors.toml"
    text = (DEMO / "use-case.toml").read_bytes()
    table = b'[mine]\nbackend = "my.module:Class"\ncheckpoint = "w.pth"\nclasses = ["a", "b"]\noptions = {x = 1}\n'
    for _ in attack.times(300):
        use_case.write_bytes(mangled(text, attack.rng))
        yield attack.outcome(str(use_case.read_bytes()), lambda: bool(UseCase.load(use_case).split_names()))
        detectors.write_bytes(mangled(table, attack.rng))
        yield attack.outcome(str(detectors.read_bytes()), lambda: bool(registry.choose("demo", str(detectors))))
    for backend in ("os:system", "builtins:eval", "subprocess:Popen", "pathlib:Path", "shutil:rmtree", "io:open"):
        detectors.write_text(f'[mine]\nbackend = "{backend}"\noptions = {{ command = "touch {attack.ran}" }}\n')
        yield attack.outcome(backend, lambda: not registry.build(registry.choose("demo", str(detectors))[0], ["a"], attack.folder))  # fmt: skip


def images(attack: Attack) -> Outcomes:
    """Damage images of every supported format, and use names that lead out of the folder."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 60, 3), np.uint8)
    originals = []
    for kind in ("JPEG", "PNG", "BMP", "TIFF", "PPM", "WEBP", "GIF"):
        sink = io.BytesIO()
        Image.fromarray(pixels).save(sink, kind)
        originals.append(sink.getvalue())
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # hides the messages of libpng and libjpeg
    for _ in attack.times(1500):
        data = attack.rng.choice(originals)
        is_header = attack.rng.random() < 0.6  # the header has the image's size
        data = mangled(data[:64], attack.rng) + data[64:] if is_header else mangled(data, attack.rng)
        yield attack.outcome(repr(data[:64]), partial(_is_small, data))
    folder = Folder(str(attack.folder / "store"))
    for name in (*filter(lambda value: isinstance(value, str) and value, HOSTILE), "../victim.parquet", ".."):
        yield attack.outcome(name[:99], partial(_is_absent, folder, name))


def _is_small(data: bytes) -> bool:
    return decode(data, "x", MAX_PIXELS).size <= 3 * MAX_PIXELS


def _is_absent(folder: Folder, name: str) -> bool:
    try:
        load(folder, name, ImageLimits(MAX_PIXELS, follow_links=True))
    except FileNotFoundError:
        return True
    return False


KINDS: tuple[Callable[[Attack], Outcomes], ...] = (
    flips_of_the_store, forged_pages, cache_entries, self_aware_files, results_files, annotation_files, imports, toml_files,
    images, attack_server,
)  # fmt: skip


def main() -> int:
    """Print how many attempts were refused, harmless and wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int, nargs="?", default=0)
    parser.add_argument("--times", type=float, default=1.0, help="factor for the number of attempts")
    parser.add_argument("--only", choices=[kind.__name__ for kind in KINDS], help="one kind of attack")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="saod-attack-") as folder:
        attack = Attack(Path(folder), options.seed, options.times)
        print(f"seed {options.seed}\n{'':24}{'tried':>8}{REFUSED:>9}{HARMLESS:>10}{WRONG:>7}{'seconds':>9}")
        for kind in [kind for kind in KINDS if options.only in (None, kind.__name__)]:
            began = time.monotonic()
            counts = Counter(kind(attack))
            total += counts
            _print_row(kind.__name__.replace("_", " "), counts, time.monotonic() - began)
        _print_row("all", total, 0.0)
        for note in attack.notes[:20]:
            print(f"wrong: {note}")
    return 1 if total[WRONG] else 0


def _print_row(name: str, counts: Counter[str], seconds: float) -> None:
    row = f"{name:24}{counts.total():8,}{counts[REFUSED]:9,}{counts[HARMLESS]:10,}{counts[WRONG]:7,}"
    print(f"{row}{seconds:9.0f}" if seconds else row, flush=True)


if __name__ == "__main__":
    sys.exit(main())
