"""Verdicts on detections against scoring, to the last bit, and against a slow reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from slow_verdicts import detections, same, verdict
from usecases import SPLITS, random_use_case

from saod_ray.config import CALIBRATORS, CONVENTIONS, UNCERTAINTIES, DetectorSpec, ScoreSettings, UseCase
from saod_ray.detect.detections import Detections
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.evaluation import evaluate_split
from saod_ray.score.self_aware import SelfAware
from saod_ray.splits import SplitName
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import UNCERTAINTIES as COLUMNS
from saod_ray.store.rows import Rows
from saod_ray.store.seals import encode_json, sealed
from saod_ray.store.store import Store

CLASSES = 4
MARK = "f" * 40  # a detector's fingerprint


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Store:
    """Detections as a run writes them: float32, every uncertainty, two ranges of images a split."""
    folder = tmp_path_factory.mktemp("apply")
    data = random_use_case(folder, 5, CLASSES, images=24)
    store = Store.open_or_create(str(folder / "store"), UseCase.load(folder / "use-case.toml"))
    rng = np.random.default_rng(0)
    for split in SPLITS:
        write(store, split, data["objects"][SplitName(split).source], rng)
    return store


def write(
    store: Store, split: str, objects: list, rng: np.random.Generator, mark: str = MARK, kind: str = "run"
) -> None:
    ids = np.sort(store.manifest(SplitName(split).source).images["image_id"].to_numpy())
    middle = len(ids) // 2
    for start, stop in ((0, middle), (middle, len(ids))):
        rows = random_rows(ids[start:stop], objects, rng)
        name = f"{start:08d}-{stop:08d}"
        shard = store.write_shard("d", split, f"{rng.integers(1 << 62):032x}", rows)
        origin = Origin(kind, mark, shard.name)
        ledger.write_page(store.folder, Page(detector="d", split=split, unit=name, origin=origin, shards=[shard]))


def random_rows(ids: np.ndarray, objects: list, rng: np.random.Generator) -> Rows:
    """Some images have none, one detection or more than the hundred that count; some boxes are near objects."""
    label, box, counts = [], [], []
    for image in ids.tolist():
        near = [(o["label"], np.array(o["bbox"])) for o in objects if o["image"] == image]
        noise = [(int(rng.integers(CLASSES)), rng.random(4) * 50 + 1) for _ in range(rng.choice([0, 0, 1, 9, 120]))]
        rows = [(k, xywh + rng.normal(0, 1, 4) * (1, 1, 0, 0)) for k, xywh in near] + noise
        rows = rows if rng.random() < 0.8 else []
        label += [k for k, _ in rows]
        box += [[x, y, x + w, y + h] for _, (x, y, w, h) in rows]
        counts.append(len(rows))
    n = sum(counts)
    columns = {name: rng.random(n).astype(np.float32) * 2 for name in COLUMNS}
    columns |= {"label": np.array(label, np.int16), "box": np.array(box, np.float32).reshape(-1, 4)}
    columns |= {"score": rng.random(n).astype(np.float32), "variance": rng.lognormal(0, 2, (n, 4)).astype(np.float32)}
    return Rows(ids, np.concatenate([[0], np.cumsum(counts)]), columns, ["ok"] * len(ids), [None] * len(ids))


def images_of(store: Store, split: str) -> dict[int, Detections]:
    out = {}
    for shard in store.shards("d", split):
        rows = store.read_shard("d", split, shard)
        for k, image in enumerate(rows.image_id.tolist()):
            here = slice(rows.offsets[k], rows.offsets[k + 1])
            out[image] = Detections(**{name: column[here] for name, column in rows.columns.items()})
    return out


def agree(store: Store, **wishes: object) -> None:
    """Each image alone gives what scoring gives for the whole split, and what the slow reference gives."""
    aware = SelfAware.fit(store.uri, "d", **wishes)
    file = aware.to_json()
    # the reference's logarithms and sums are rounded elsewhere; these are not
    exact = aware.settings.calibrator not in ("platt", "temperature") and aware.settings.uncertainty == "score"
    benchmark = Benchmark(store, aware.settings)
    offline = evaluate_split(store, "d", "id", benchmark.objects["id"], aware)
    ids = benchmark.objects["id"].image_ids[offline.calibrated.images].tolist()
    slow, detections_by_image = detections(store, "d", "id"), images_of(store, "id")
    for k, image in enumerate(ids):
        applied = aware.apply(detections_by_image[image])
        here = slice(offline.calibrated.offsets[k], offline.calibrated.offsets[k + 1])
        assert (applied.accepted, applied.uncertainty) == (offline.accepted[k], offline.uncertainty[k])
        assert applied.detections.score.tobytes() == offline.calibrated.score[here].tobytes()
        assert applied.detections.label.tolist() == offline.calibrated.label[here].tolist()
        same(applied.to_json(), verdict(slow[image], file), exact)


@pytest.mark.parametrize("kind", UNCERTAINTIES)
def test_every_uncertainty_and_aggregation_is_that_of_scoring(store, kind) -> None:
    for number, aggregate in enumerate(("top-3", "min", "mean", "sum", "top-12")):
        agree(store, uncertainty=kind, aggregate=aggregate, conventions=CONVENTIONS[number % 2])


@pytest.mark.parametrize("conventions", CONVENTIONS)
@pytest.mark.parametrize("calibrator", CALIBRATORS)
def test_every_calibrator_is_that_of_scoring(store, calibrator, conventions) -> None:
    agree(store, calibrator=calibrator, conventions=conventions, image_threshold="tpr-0.95")


def test_the_fixture_has_something_to_say(store) -> None:
    aware = SelfAware.fit(store.uri, "d", image_threshold="tpr-0.95")
    verdicts = [aware.apply(image_detections) for image_detections in images_of(store, "id").values()]
    assert {result.accepted for result in verdicts} == {True, False}
    assert sum(len(result.detections.score) for result in verdicts) > 20
    assert all(not len(result.detections.score) for result in verdicts if not result.accepted)
    assert any(result.to_json()["uncertainty"] is None for result in verdicts)


@pytest.mark.parametrize("conventions", CONVENTIONS)
def test_at_the_threshold_itself_the_conventions_differ(store, conventions) -> None:
    image_detections = next(candidate for candidate in images_of(store, "id").values() if len(candidate.score))
    u = SelfAware.fit(store.uri, "d").uncertainty(image_detections)
    aware = SelfAware.fit(store.uri, "d", image_threshold=repr(u), conventions=conventions)
    assert aware.apply(image_detections).accepted == (conventions == "paper")


def test_labels_are_translated_from_the_detectors_classes(store) -> None:
    aware = SelfAware.fit(store.uri, "d", image_threshold="9")
    names = aware.identity.classes
    for image_detections in images_of(store, "id").values():
        turned = Detections(
            **(vars(image_detections) | {"label": (CLASSES - 1 - image_detections.label).astype(np.int16)})
        )
        assert aware.apply(turned, names[::-1]).to_json() == aware.apply(image_detections).to_json()
    with pytest.raises(SaodError, match="classes of these detections differ"):
        aware.apply(image_detections, [*names[:-1], "another"])
    with pytest.raises(SaodError, match="not below 4"):
        aware.apply(Detections(np.array([7]), np.zeros((1, 4)), np.ones(1)))


def test_how_arrays_lie_in_memory_does_not_matter(store) -> None:
    aware = SelfAware.fit(store.uri, "d", uncertainty="trace", aggregate="sum")
    for image_detections in images_of(store, "id").values():
        other = Detections(**(vars(image_detections) | {"variance": np.asfortranarray(image_detections.variance)}))
        assert aware.uncertainty(other) == aware.uncertainty(image_detections)


# files ------------------------------------------------------------------------------------------------------------


def test_saved_is_what_score_writes_and_loads_again(store, tmp_path) -> None:
    wishes = {"uncertainty": "joint-entropy-normalised", "calibrator": "isotonic", "conventions": "paper"}
    scored = Benchmark(store, ScoreSettings(**wishes)).score(["d"])["d"].selfaware
    aware = SelfAware.fit(store.uri, "d", **wishes)
    aware.save(tmp_path / "new" / "d.json")
    assert (tmp_path / "new" / "d.json").read_bytes() == encode_json(scored)
    again = SelfAware.load(str(tmp_path / "new" / "d.json"))
    assert again.to_file() == scored
    for image_detections in images_of(store, "id").values():
        assert again.apply(image_detections).to_json() == aware.apply(image_detections).to_json()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 4}, "it has format 4, and this version reads format 3"),
        ({"format": None}, "format"),
        ({"classes": None}, "classes"),
        ({"classes": ["c", "other"]}, "has no threshold or no calibrator"),
        ({"settings": {"tau": 7}}, "tau"),
        ({"calibrators": {"c": {"type": "pickle"}}}, "pickle"),
        ({"settings": {"uncertainty": "joint-entropy-normalised"}}, "ranges"),
        (
            {"calibrators": {"c": {"type": "isotonic", "x": [], "y": [], "clip": True}}},
            "non-empty and of equal length, not 0 and 0",
        ),
        (
            {"calibrators": {"c": {"type": "isotonic", "x": [0, 1], "y": [1], "clip": True}}},
            "non-empty and of equal length, not 2 and 1",
        ),
        (
            {"calibrators": {"c": {"type": "isotonic", "x": [0, 0], "y": [0, 1], "clip": True}}},
            "must be strictly increasing",
        ),
        ({"calibrators": {"c": {"type": "histogram", "edges": [1], "values": []}}}, "1 `edges` do not bound 0"),
        (
            {"calibrators": {"c": {"type": "histogram", "edges": [1, 0.5, 0], "values": [1]}}},
            "3 `edges` do not bound 1",
        ),
    ],
)
def test_other_files_are_refused_with_what_is_wrong(store, tmp_path, change, message) -> None:
    value = SelfAware.fit(store.uri, "d").to_json() | change
    (tmp_path / "d.json").write_bytes(encode_json(sealed(value)))
    with pytest.raises(SaodError, match=message) as refusal:
        SelfAware.load(tmp_path / "d.json")
    assert "\n" not in str(refusal.value) and str(tmp_path / "d.json") in str(refusal.value)


def test_a_class_that_is_named_twice_is_refused(store) -> None:
    value = SelfAware.fit(store.uri, "d").to_json()
    with pytest.raises(SaodError, match="names a class twice"):
        SelfAware.from_json(value | {"classes": [*value["classes"], value["classes"][0]]})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_refused(store, number) -> None:
    value = SelfAware.fit(store.uri, "d").to_json()
    name, line = value["classes"][0], {"type": "linear", "slope": 1.0, "intercept": 0.0}
    for change in (
        {"image_threshold": number}, {"ranges": [[0.0, number], [0.0, 1.0]]},
        {"detection_thresholds": value["detection_thresholds"] | {name: number}},
        {"calibrators": value["calibrators"] | {name: line | {"slope": number}}},
        {"calibrators": value["calibrators"] | {name: line | {"type": "logistic", "intercept": number}}},
        {"calibrators": value["calibrators"] | {name: {"type": "isotonic", "x": [0.0], "y": [number], "clip": True}}},
        {"calibrators": value["calibrators"] | {name: {"type": "histogram", "edges": [1.0, 0.0], "values": [number]}}},
    ):  # fmt: skip
        with pytest.raises(SaodError, match="not finite"):
            SelfAware.from_json(value | change)
    SelfAware.from_json(value)


@pytest.mark.parametrize("key", ["fingerprint", "origin", "ranges", "image_threshold", "detection_thresholds"])
def test_a_missing_key_is_named(store, key) -> None:
    value = SelfAware.fit(store.uri, "d").to_json()
    del value[key]
    with pytest.raises(SaodError, match=key):
        SelfAware.from_json(value)


# identity ---------------------------------------------------------------------------------------------------------


def spec(fingerprint: str) -> DetectorSpec:
    return DetectorSpec(name="d", classes=("a",), fingerprint=fingerprint)


def test_a_run_leaves_the_detectors_fingerprint_and_another_is_refused(store) -> None:
    aware = SelfAware.fit(store.uri, "d")
    assert (aware.identity.fingerprint, aware.identity.origin) == (MARK, "run")
    aware.refuse_other(spec(MARK))
    with pytest.raises(SaodError, match=f"fingerprint {MARK}, not for 'd' with 0000"):
        aware.refuse_other(spec("0" * 40))


def test_imported_detections_have_no_detector_to_compare_with(golden_store) -> None:
    aware = SelfAware.fit(golden_store.uri, "toy")
    assert (aware.identity.fingerprint, aware.identity.origin) == (None, "import")
    with pytest.raises(SaodError, match="fitted on imported detections"):
        aware.refuse_other(spec(MARK))


def test_two_versions_of_a_detector_are_none_and_new_shards_are_new_results(store, tmp_path) -> None:
    import shutil

    shutil.copytree(store.uri, tmp_path / "store")
    other = Store.open(str(tmp_path / "store"))
    before = SelfAware.fit(other.uri, "d")
    objects: list = []
    page = other.pages("d", "val")[0]
    rows = random_rows(other.read_shard("d", "val", page.shards[0]).image_id, objects, np.random.default_rng(9))
    shard = other.write_shard("d", "val", "a" * 32, rows)

    def written(kind: str, mark: str) -> None:
        origin = Origin(kind, mark, "again")
        ledger.write_page(other.folder, Page(detector="d", split="val", unit=page.unit, origin=origin, shards=[shard]))

    for kind, origin in (("run", "run"), ("coco", "mixed")):
        written(kind, MARK)
        after = SelfAware.fit(other.uri, "d")
        assert after.to_json()["detection_thresholds"] != before.to_json()["detection_thresholds"]
        assert after.identity.origin == origin
    with pytest.raises(SaodError, match="some were imported"):
        after.refuse_other(spec(MARK))
    written("run", "0" * 40)
    with pytest.raises(SaodError, match="detections of 2 versions"):
        SelfAware.fit(other.uri, "d")


def test_a_detector_that_is_not_there_is_named(store) -> None:
    with pytest.raises(SaodError, match="no detector 'e'"):
        SelfAware.fit(Path(store.uri), "e")
