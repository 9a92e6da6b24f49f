"""Runs on a small cluster: the same store however it was made, and detectors and images that misbehave."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from small_cluster import SPLITS, assert_intact, cluster, data, plain  # noqa: F401  (fixtures)
from toy_runs import PER_DETECTOR, contents, detect, done, failed, files, job, own_copy, scored, stamps

from saod_ray.engine import pipeline
from saod_ray.engine.attempts import FATAL, HangLimit
from saod_ray.engine.job import Scope
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.errors import SaodError
from saod_ray.store.store import Store

pytestmark = pytest.mark.slow


# however it is made --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "resources",
    [
        ResourceOptions(actors=(2, 2), group=2, batch_size=2, unit_images=3),
        ResourceOptions(actors=(1, 2), batch_size=2, unit_images=64),
        ResourceOptions(actors=(1, 1), group=1, batch_size=2, unit_images=1000),
    ],
    ids=["2:2", "1:2", "1:1"],
)
def test_the_same_bytes_however_the_work_is_spread(data, plain, tmp_path, resources) -> None:
    work = job(data, tmp_path / "store")
    plan = work.plan(resources.unit_images)
    np.random.default_rng(resources.unit_images).shuffle(plan.units)  # type: ignore[arg-type]
    done(work, resources, plan=plan)
    assert_intact(tmp_path / "store", ["a", "b", "c"])
    assert files(tmp_path / "store") == files(plain)
    assert scored(tmp_path / "store") == scored(plain)


def test_a_finished_store_plans_nothing_and_writes_nothing(data, plain) -> None:
    before = stamps(plain)
    work = job(data, plain)
    plan = work.plan()
    assert plan.units == [] and plan.stale == [] and plan.cached == dict.fromkeys("abc", PER_DETECTOR)
    assert done(work) == []
    assert stamps(plain) == before


def test_a_limit_and_then_all(data, plain, tmp_path) -> None:
    work = job(data, tmp_path / "store")
    assert sum(
        receipt.images
        for receipt in done(work, ResourceOptions(actors=(1, 1), batch_size=2, unit_images=2), options=PlanOptions(3))
    ) == 3 * 3 * len(SPLITS)
    before = stamps(tmp_path / "store")
    assert done(work, options=PlanOptions(3)) == [] and stamps(tmp_path / "store") == before
    assert sum(receipt.images for receipt in done(work)) == 3 * (PER_DETECTOR - 3 * len(SPLITS))
    assert files(tmp_path / "store") == files(plain)


def test_a_changed_option_redoes_that_detector_alone(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    before = stamps(tmp_path / "store")
    changed = job(data, tmp_path / "store", {"a": {}, "b": {"shift": 9.0}, "c": {"shift": 2.0}})
    with pytest.raises(SaodError, match=r"holds detections of 'b' on val that were made with other weights.*--replace"):
        changed.plan()
    assert stamps(tmp_path / "store") == before
    receipts = done(changed, options=PlanOptions(replace=True))
    assert {receipt.detector for receipt in receipts} == {"b"}
    assert sum(receipt.images for receipt in receipts) == PER_DETECTOR
    assert_intact(tmp_path / "store", ["a", "b", "c"])
    after = stamps(tmp_path / "store")
    assert {name: stamp for name, stamp in after.items() if "/b" not in name} == {
        name: stamp for name, stamp in before.items() if "/b" not in name
    }
    assert scored(tmp_path / "store") != scored(plain)


def test_all_detectors_of_a_store_have_one_seed(data, plain, tmp_path) -> None:
    """Another seed is refused while other detectors have the first, and redoes what is corrupted when none has."""
    shutil.copytree(plain, tmp_path / "store")
    with pytest.raises(SaodError, match=r"The corrupted images of '[ab]' .* were made with another --seed"):
        job(data, tmp_path / "store", {"c": {"shift": 2.0}}, seed=1)
    plan = job(data, tmp_path / "store", seed=1).plan(options=PlanOptions(replace=True))
    shifted = {"id-c1", "id-c3", "id-c5"}
    assert {planned.unit.split for planned in plan.units} == {page.split for page in plan.stale} == shifted
    assert all(planned.detectors == ("a", "b", "c") for planned in plan.units)


def test_a_limit_leaves_alone_what_lies_beyond_it(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    before = stamps(tmp_path / "store")
    changed = job(data, tmp_path / "store", {"a": {}, "b": {"shift": 9.0}, "c": {"shift": 2.0}})
    with pytest.raises(SaodError, match="detections of 'b' on val beyond --limit that were made with other weights"):
        changed.plan(options=PlanOptions(3, replace=True))
    plan = job(data, tmp_path / "store").plan(options=PlanOptions(3, retry_failed=True))
    assert plan.units == [] and plan.stale == []
    assert stamps(tmp_path / "store") == before


def test_a_run_scores_all_detectors_that_are_complete(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    next((tmp_path / "store" / "ledger" / "b" / "ood").iterdir()).unlink()
    work = job(data, tmp_path / "store", {"c": {"shift": 2.0}})
    assert work.scope(is_limited=False) == Scope(["a", "c"], is_partial=False, is_trial=False)
    assert work.scope(is_limited=True) == Scope(["a", "c"], is_partial=False, is_trial=False)
    trial = job(data, tmp_path / "store", {"b": {"shift": 1.0}, "d": {}})
    assert trial.scope(is_limited=True) == Scope(["b", "d"], is_partial=True, is_trial=True)
    for name in "ac":
        shutil.rmtree(tmp_path / "store" / "ledger" / name)
    assert trial.scope(is_limited=True) == Scope(["b", "d"], is_partial=True, is_trial=False)


def test_a_shard_that_was_deleted_is_made_again(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    next((tmp_path / "store" / "detections" / "b" / "id-c3").iterdir()).unlink()
    receipts = done(job(data, tmp_path / "store"))
    assert {(receipt.detector, receipt.unit.split) for receipt in receipts} == {("b", "id-c3")}
    assert files(tmp_path / "store") == files(plain)


def test_imported_detections_are_not_touched(data, tmp_path) -> None:
    from saod_ray.config import UseCase
    from saod_ray.store.coco_import import import_results

    (tmp_path / "found.json").write_text("[]")
    case = UseCase.load("shapes", str(data))
    import_results(str(tmp_path / "store"), case, "b", "id", tmp_path / "found.json")
    with pytest.raises(SaodError, match="detections of 'b' on id that were imported"):
        job(data, tmp_path / "store").plan()


# detectors that misbehave --------------------------------------------------------------------------------------------


def test_a_detector_that_raises_fails_on_that_image_alone(data, plain, tmp_path) -> None:
    first, second = contents(data, "id")[2:4]
    detectors = {"a": {}, "b": {"shift": 1.0, "raises": [first], "wrong": [second]}, "c": {"shift": 2.0}}
    done(job(data, tmp_path / "store", detectors))
    assert_intact(tmp_path / "store", ["a", "b", "c"])
    third, fourth = 1_000_000 * 2 + 3, 1_000_000 * 2 + 4
    reasons = failed(tmp_path / "store", "b")
    assert reasons.pop(("id", third)) == "RuntimeError: will not look at <image at 0x…>"
    if second % 4:  # it has detections, whose labels are wrong
        assert "label" in reasons.pop(("id", fourth))
    assert reasons == {}
    expected = files(plain)
    assert {k: v for k, v in files(tmp_path / "store").items() if "/b/" not in k} == {
        k: v for k, v in expected.items() if "/b/" not in k
    }


@pytest.mark.parametrize("how", ["exits", "poisons"])
def test_an_image_that_ends_its_process_is_found(data, plain, tmp_path, how) -> None:
    """It ends it, or leaves a GPU behind that nothing can be done on."""
    fatal = contents(data, "id")[2]
    store = tmp_path / "store"
    work = job(data, store, {"a": {}, "b": {"shift": 1.0, how: [fatal]}, "c": {"shift": 2.0}})
    statistics = detect(work, ResourceOptions(actors=(1, 1), batch_size=2, unit_images=4))
    work.compact()
    assert_intact(store, ["a", "b", "c"])
    assert failed(store, "b") == {("id", 2_000_003): FATAL}
    assert failed(store, "a") == failed(store, "c") == {}
    assert statistics.actors["a,b,c"]["lost"] == 4  # twice among others, twice alone
    assert {k: v for k, v in files(store).items() if "/b/" not in k} == {
        k: v for k, v in files(plain).items() if "/b/" not in k
    }


def test_an_image_that_a_detector_hangs_on_is_found(data, tmp_path) -> None:
    hanging = contents(data, "ood-digits")[3]
    done(
        job(data, tmp_path / "store", {"a": {"hangs": [hanging]}}),
        ResourceOptions(actors=(2, 2), batch_size=2, unit_images=2),
        hang=HangLimit(4.0, 0.5),
    )
    assert_intact(tmp_path / "store", ["a"])
    assert list(failed(tmp_path / "store", "a").values()) == [FATAL]


@pytest.mark.parametrize(
    ("how", "message"),
    [("raises", "'a' cannot be built (RuntimeError: no such model)"), ("exits", "of a end before they are ready")],
)
def test_a_detector_that_cannot_be_built(data, tmp_path, how, message) -> None:
    with pytest.raises(SaodError) as caught:
        done(job(data, tmp_path / "store", {"a": {"built": how}}))
    assert message in str(caught.value)


# images that are bad -------------------------------------------------------------------------------------------------


def bad_images(place: Path) -> None:
    """The first six of id become what nobody wants, but can be read; the last two cannot."""
    names = sorted(path for path in place.iterdir())
    rng = np.random.default_rng(0)
    rgb = rng.integers(0, 256, (40, 60, 3), np.uint8)
    Image.fromarray(rgb).convert("CMYK").save(names[0], "JPEG")
    Image.fromarray(rgb).convert("L").save(names[1], "PNG")
    Image.fromarray(np.dstack([rgb, rgb[:, :, :1]])).save(names[2], "PNG")
    cv2.imwrite(str(names[3].with_suffix(".png")), rng.integers(0, 65536, (40, 60, 3)).astype(np.uint16))
    names[3].with_suffix(".png").replace(names[3])
    Image.fromarray(rgb[:1, :1]).save(names[4], "PNG")
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    Image.fromarray(rgb).save(names[5], "JPEG", exif=exif)
    names[6].write_bytes(b"")
    names[7].unlink()


def test_bad_images(data, tmp_path) -> None:
    root = own_copy(data, tmp_path / "data")
    place = root / "shapes" / "id"
    original = sorted(place.iterdir())[-1].read_bytes()
    bad_images(place)
    truncated = sorted((root / "shapes" / "val").iterdir())[0]
    truncated.write_bytes(truncated.read_bytes()[:300])
    store = tmp_path / "store"
    done(job(root, store, {"a": {}}))
    assert_intact(store, ["a"])
    reasons = failed(store, "a")
    assert {image for split, image in reasons if split == "id"} == {2_000_007, 2_000_008}
    assert reasons["id", 2_000_008] == f"There is no file shapes/id/{7:06d}.jpg."
    assert "of no known format" in reasons["id", 2_000_007]
    coverage = json.loads(scored(store))["detectors"]["a"]["coverage"]
    for split in SPLITS:
        assert coverage[split]["failed"] == sum(failed_split == split for failed_split, _ in reasons)
        shards = Store.open(str(store)).shards("a", split)
        rows = Store.open(str(store)).read_shard("a", split, shards[0])
        detected = int((np.diff(rows.offsets) > 0).sum())
        assert detected + coverage[split]["empty"] + coverage[split]["failed"] == coverage[split]["images"]
    # a file that appears later is looked at when it is asked for
    (place / f"{7:06d}.jpg").write_bytes(original)
    assert done(job(root, store, {"a": {}})) == []
    again = done(job(root, store, {"a": {}}), options=PlanOptions(retry_failed=True))
    assert {receipt.unit.split for receipt in again} == {split for split, _ in reasons}
    assert_intact(store, ["a"])
    assert {image for split, image in failed(store, "a") if split == "id"} == {2_000_007}


@pytest.mark.parametrize("how", ["exits", "hangs"])
def test_an_image_that_ends_the_process_that_decodes_it(data, tmp_path, monkeypatch, how) -> None:
    fatal = f"shapes/ood-kinds/{1:06d}.jpg"

    def prepare_units(batch, units, guard, options):
        """In a task's process, where decoding one image ends or hangs it."""
        from saod_ray.data.prepare import prepare
        from saod_ray.engine import pipeline

        def prepared(options, requests, severity):
            if any(request.file_name == fatal for request in requests):
                os._exit(1) if how == "exits" else time.sleep(3600)
            return prepare(options, requests, severity)

        pipeline.prepare = prepared
        try:
            yield from pipeline.prepare_units(batch, units, guard, options)
        finally:
            pipeline.prepare = prepare  # Ray keeps the process for other tasks

    monkeypatch.setattr(pipeline, "prepare_units", prepare_units)
    done(job(data, tmp_path / "store", {"a": {}}), hang=HangLimit(4.0, 0.5))
    assert_intact(tmp_path / "store", ["a"])
    ((split, _), reason), *rest = failed(tmp_path / "store", "a").items()
    assert split == "ood" and reason == FATAL and rest == []
