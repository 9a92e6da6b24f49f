"""The whole way from files to figures, against the reference and against itself."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import reference
from conftest import import_golden, saod_ray
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from usecases import SPLITS, import_all, random_use_case

from saod_ray.config import UNCERTAINTIES, ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.report.results import results
from saod_ray.score.benchmark import Benchmark
from saod_ray.store import ledger
from saod_ray.store.ledger import Origin, Page
from saod_ray.store.rows import LISTS, Rows
from saod_ray.store.seals import encode_json
from saod_ray.store.store import Store

SETTINGS = st.fixed_dictionaries(
    {
        "calibrator": st.sampled_from(["linear", "isotonic", "histogram", "none"]),
        "uncertainty": st.sampled_from(["score", "entropy", "ds"]),
        "aggregate": st.sampled_from(["top-3", "top-1", "min", "mean", "sum", "top-12"]),
        "image-threshold": st.sampled_from(["pseudo-ood", "tpr-0.95", "tpr-0.5", "0.6"]),
        "detection-threshold": st.sampled_from(["lrp", "0.3", "0.5"]),
        "tau": st.sampled_from([0.1, 0.3, 0.5]),
        "bins": st.sampled_from([25, 10]),
        "conventions": st.sampled_from(["official", "paper"]),
    }
)


def score(uri: str, detectors: list[str], **chosen: object) -> dict[str, dict]:
    got = Benchmark(Store.open(uri), ScoreSettings.from_options(**chosen)).score(detectors)
    return {name: each.result.to_json() for name, each in got.items()}


PLAIN = {"calibrator": "linear", "uncertainty": "score", "aggregate": "top-3", "image-threshold": "pseudo-ood"}
PLAIN |= {"detection-threshold": "lrp", "tau": 0.1, "bins": 25, "conventions": "paper"}


@settings(max_examples=120)
@given(st.integers(0, 10**6), SETTINGS, st.integers(0, 1))
@example(277, PLAIN, 0)  # BA is 0 and IDQ undefined: DAQ is 0
def test_every_figure_is_the_references(tmp_path_factory, seed, chosen, first_id) -> None:
    folder = tmp_path_factory.mktemp("case")
    data = random_use_case(folder, seed, first_id=first_id)
    import_all(str(folder / "store"), folder, shard_images=5)
    figures = score(str(folder / "store"), ["d"], **{key.replace("-", "_"): value for key, value in chosen.items()})[
        "d"
    ]
    expected = reference.benchmark(data, chosen)
    on_edge = expected.pop("id.near_a_bin_edge") | expected.pop("shift.near_a_bin_edge")
    assume(not on_edge or chosen["calibrator"] == "none")  # a calibrator's last bit would decide
    for path, value in expected.items():
        got = figures
        for key in path.split("."):
            got = got[key]
        if path == "detection_thresholds":
            assert [math.nan if v is None else v for v in got.values()] == pytest.approx(value, nan_ok=True, abs=1e-12)
        elif isinstance(value, float) and math.isnan(value):
            assert got is None, path
        else:
            assert got == pytest.approx(value, abs=1e-9), path
    shutil.rmtree(folder)


def with_every_uncertainty(folder: Path, data: dict) -> None:
    """Give the use case's detections all stored columns, and the reference's rows what follows from them."""
    rng = np.random.default_rng(8)
    ranges = {}
    for split in SPLITS:
        rows = json.loads((folder / f"{split}.detections.json").read_text())
        for row, known in zip(rows, data["detections"][split], strict=True):
            row["uncertainty"], row["variance"] = rng.random(4).tolist(), rng.uniform(0.01, 2, 4).tolist()
            columns = ("entropy", "ds", "avg-entropy", "max-class-entropy")
            known |= dict(zip(columns, row["uncertainty"], strict=True))
            known["determinant"], known["trace"] = math.prod(row["variance"]), sum(row["variance"])
            known["gaussian-entropy"] = 2 + 2 * math.log(2 * math.pi) + 0.5 * math.log(known["determinant"])
            known["joint-entropy"] = known["entropy"] + known["gaussian-entropy"]
            known["joint-entropy-balanced"] = 4 * known["entropy"] + known["gaussian-entropy"]
        if split == "val":
            for key in ("entropy", "gaussian-entropy"):
                values = [known[key] for known in data["detections"][split]]
                ranges[key] = (min(values), max(values) - min(values))
        for known in data["detections"][split]:
            scaled = [(known[key] - low) / span for key, (low, span) in ranges.items()]
            known["joint-entropy-normalised"] = sum(scaled)
        (folder / f"{split}.detections.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("kind", UNCERTAINTIES)
def test_every_uncertainty_from_file_to_figures(tmp_path, kind) -> None:
    data = random_use_case(tmp_path, seed=21, images=30)
    with_every_uncertainty(tmp_path, data)
    import_all(str(tmp_path / "store"), tmp_path, shard_images=8)
    base = {"calibrator": "linear", "aggregate": "top-3", "image-threshold": "pseudo-ood", "detection-threshold": "lrp"}
    expected = reference.benchmark(data, {**base, "uncertainty": kind})
    figures = score(str(tmp_path / "store"), ["d"], uncertainty=kind)["d"]
    assert figures["image_threshold"] == pytest.approx(expected["image_threshold"], rel=1e-12)
    for key in ("auroc", "fpr95", "tpr", "tnr"):
        assert figures["ood"][key] == pytest.approx(expected[f"ood.{key}"], abs=1e-12), key
    assert figures["id"]["lrp"] == pytest.approx(expected["id.lrp"], abs=1e-12)


def results_bytes(uri: str, **chosen: object) -> bytes:
    store, asked = Store.open(uri), ScoreSettings.from_options(**chosen)
    return encode_json(results(store, asked, Benchmark(store, asked).score(store.detectors()), partial=False))


def shuffled_copy(source: Store, uri: str, seed: int) -> None:
    """The same detections in shards of random sizes, with random rows, under random names."""
    rng = np.random.default_rng(seed)
    shutil.copytree(source.folder.path("manifest"), Path(uri) / "manifest")
    shutil.copy(source.folder.path("use-case.json"), uri)
    target = Store.open(uri)
    for split in source.splits:
        (page,) = source.pages("toy", split)
        (shard,) = page.shards
        rows = source.read_shard("toy", split, shard)
        order = rng.permutation(len(rows.image_id))
        cuts = np.sort(rng.integers(0, len(order) + 1, 3))
        shards = []
        for number, part in enumerate(np.split(order, cuts)):
            name = f"{rng.integers(1 << 30):031x}{number}"
            shards.append(target.write_shard("toy", split, name, take(rows, part)))
        origin = Origin(page.origin.kind, page.origin.file, page.origin.sha256)
        ledger.write_page(target.folder, Page(detector="toy", split=split, unit="all", origin=origin, shards=shards))


def take(rows: Rows, images: np.ndarray) -> Rows:
    at = [np.arange(rows.offsets[i], rows.offsets[i + 1]) for i in images]
    flat = np.concatenate([np.empty(0, np.int64), *at])
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in at])]).astype(np.int64)
    columns = {name: rows.columns[name][flat] for name in LISTS if name in rows.columns}
    return Rows(rows.image_id[images], offsets, columns)


@pytest.mark.parametrize("chosen", [{}, {"calibrator": "isotonic", "aggregate": "sum"}, {"conventions": "paper"}])
def test_results_do_not_depend_on_shards_or_rows(golden_store, tmp_path, chosen) -> None:
    expected = results_bytes(golden_store.uri, **chosen)
    for size in (1, 7, 100):
        import_golden(str(tmp_path / f"size{size}"), shard_images=size)
        assert results_bytes(str(tmp_path / f"size{size}"), **chosen) == expected
    for seed in (1, 2):
        uri = tmp_path / f"shuffled{seed}"
        uri.mkdir()
        shuffled_copy(golden_store, str(uri), seed)
        assert results_bytes(str(uri), **chosen) == expected


def test_results_do_not_depend_on_threads(golden_store, tmp_path) -> None:
    texts = set()
    for threads in ("1", "2", "4", "8"):
        shutil.copytree(golden_store.uri, tmp_path / threads, ignore=shutil.ignore_patterns("cache", "results.json"))
        run = saod_ray("score", tmp_path / threads, "--json", env={"POLARS_MAX_THREADS": threads})
        assert run.returncode == 0, run.stderr
        texts.add(run.stdout)
        assert run.stdout == (tmp_path / threads / "results.json").read_text()
    assert len(texts) == 1


# incremental scoring -------------------------------------------------------------------------------------------


def cache_files(store: Store) -> dict[str, int]:
    base = Path(store.folder.path("cache"))
    return {str(path.relative_to(base)): path.stat().st_mtime_ns for path in base.rglob("*") if path.is_file()}


@pytest.fixture
def two(tmp_path) -> Store:
    """A store with one detector scored."""
    random_use_case(tmp_path / "case", seed=5)
    import_all(str(tmp_path / "store"), tmp_path / "case", "a", shard_images=5)
    score(str(tmp_path / "store"), ["a"])
    return Store.open(str(tmp_path / "store"))


def test_a_second_scoring_starts_from_the_cache(two) -> None:
    before = cache_files(two)
    assert before
    cold = score(two.uri, ["a"], calibrator="histogram", tau=0.3, aggregate="top-5")
    after = cache_files(two)
    assert {name: after[name] for name in before} == before  # nothing was computed again
    assert len(after) == len(before) + 1  # the result itself
    shutil.rmtree(two.folder.path("cache"))
    assert score(two.uri, ["a"], calibrator="histogram", tau=0.3, aggregate="top-5") == cold


def test_adding_a_detector_scores_only_that_one(two, tmp_path) -> None:
    before = cache_files(two)
    random_use_case(tmp_path / "case", seed=5)
    for split in SPLITS:  # another detector: the first one's detections with other scores
        path = tmp_path / "case" / f"{split}.detections.json"
        rows = json.loads(path.read_text())
        path.write_text(json.dumps([row | {"score": row["score"] / 2} for row in rows]))
    import_all(two.uri, tmp_path / "case", "b", shard_images=5)
    both = score(two.uri, ["a", "b"])
    after = cache_files(two)
    assert {name: after[name] for name in before} == before
    assert both["a"] == score(two.uri, ["a"])["a"]
    assert both["a"]["image_threshold"] != both["b"]["image_threshold"]


def test_a_damaged_cache_is_not_trusted(two) -> None:
    expected = score(two.uri, ["a"])
    for path in Path(two.folder.path("cache")).rglob("*"):
        if path.is_file():
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 0xFF
            path.write_bytes(data)
    assert score(two.uri, ["a"]) == expected


def test_a_cache_that_cannot_be_written_costs_no_result(two) -> None:
    expected = score(two.uri, ["a"])
    cache = Path(two.folder.path("cache"))
    shutil.rmtree(cache)
    cache.write_text("a file where the folder should be")
    assert score(two.uri, ["a"]) == expected


# what is missing ------------------------------------------------------------------------------------------------


def test_a_missing_split_is_refused_and_partial_says_so(two, tmp_path) -> None:
    shutil.rmtree(two.folder.path("ledger/a/id-c3"))
    with pytest.raises(SaodError, match=r"incomplete: id-c3 \(14 images\) missing; complete it with `saod-ray import"):
        score(two.uri, ["a"])
    figures = Benchmark(two, ScoreSettings(), partial=True).score(["a"])["a"].result.to_json()
    assert figures["coverage"]["id-c3"]["missing"] == 14
    assert figures["shift"]["idq"] is not None
    assert "id-c3" not in figures["accuracy"]


def test_partial_without_ood_or_shift_has_nulls(two) -> None:
    for split in ("ood", "id-c1", "id-c3", "id-c5"):
        shutil.rmtree(two.folder.path(f"ledger/a/{split}"))
    figures = Benchmark(two, ScoreSettings(), partial=True).score(["a"])["a"].result.to_json()
    assert figures["daq"] is None and figures["ood"]["ba"] is None and figures["shift"]["lrp"] is None
    assert figures["id"]["lrp"] is not None
    shutil.rmtree(two.folder.path("ledger/a/val"))
    with pytest.raises(SaodError, match="has no detections on val"):
        Benchmark(two, ScoreSettings(), partial=True).score(["a"])


def test_without_corruption_daq_has_two_parts(tmp_path) -> None:
    random_use_case(tmp_path / "case", seed=9)
    file = tmp_path / "case" / "use-case.toml"
    file.write_text(file.read_text().replace('annotations = "id.json"', 'annotations = "id.json"\nseverities = []'))
    from saod_ray.config import UseCase
    from saod_ray.store.coco_import import import_results

    case = UseCase.load(file)
    assert case.split_names() == ["val", "pseudo-ood", "id", "ood"]
    for split in case.split_names():
        import_results(str(tmp_path / "store"), case, "d", split, tmp_path / "case" / f"{split}.detections.json")
    figures = score(str(tmp_path / "store"), ["d"])["d"]
    ba, idq = figures["ood"]["ba"], figures["id"]["idq"]
    assert figures["daq"] == pytest.approx(2 / (1 / ba + 1 / idq) if ba and idq else 0)
    assert figures["shift"]["lrp"] is None


def test_a_failed_image_is_rejected_and_counted(two) -> None:
    (page,) = two.pages("a", "id")
    rows = two.read_shard("a", "id", page.shards[0])
    status = ["failed", *["ok"] * (len(rows.image_id) - 1)]
    drop = rows.offsets[1]
    changed = Rows(
        rows.image_id,
        np.concatenate([[0], rows.offsets[1:] - drop]),
        {name: values[drop:] for name, values in rows.columns.items()},
        status,
        ["The file is truncated.", *[None] * (len(status) - 1)],
        [None] * len(status),
    )
    shard = two.write_shard("a", "id", "0" * 32, changed)
    ledger.write_page(
        two.folder, Page(detector="a", split="id", unit="all", origin=page.origin, shards=[shard, *page.shards[1:]])
    )
    figures = score(two.uri, ["a"])["a"]
    assert figures["coverage"]["id"]["failed"] == 1
    assert two.read_shard("a", "id", shard).error[0] == "The file is truncated."
