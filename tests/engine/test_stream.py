"""Runs on a small cluster: the same store however it was made, and detectors and images that misbehave."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from ipaddress import ip_address
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import psutil
import pytest
import ray
from PIL import Image
from toy_runs import PER_DETECTOR, contents, detect, done, failed, files, job, own_copy, scored, stamps, tiny, toml

from saod_ray.engine import driver, pipeline, workers
from saod_ray.engine.attempts import FATAL, HangLimit
from saod_ray.engine.cluster import connected
from saod_ray.engine.driver import Callbacks
from saod_ray.engine.job import Job, Scope
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.run import Run
from saod_ray.engine.workers import Receipt, WorkerConfig
from saod_ray.errors import SaodError
from saod_ray.store.store import Store
from saod_ray.store.verify import verify

pytestmark = pytest.mark.slow
SPLITS = ("val", "pseudo-ood", "id", "id-c1", "id-c3", "id-c5", "ood")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tiny(tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_metrics_report_interval_ms", "500")
        with connected(None, cpus=4):
            yield


@pytest.fixture(scope="module")
def plain(data, tmp_path_factory) -> Path:
    """An undisturbed run of three detectors."""
    store = tmp_path_factory.mktemp("plain") / "store"
    receipts = done(job(data, store))
    assert sum(each.images for each in receipts) == 3 * PER_DETECTOR
    return store


def whole(store: Path, detectors: list[str]) -> None:
    """Every image is accounted for exactly once, and no file is there without a reason."""
    verdict = verify(Store.open(str(store)), detectors)
    assert verdict.problems == [] and verdict.notes == []
    assert verdict.images == len(detectors) * PER_DETECTOR
    assert verdict.shards == len(detectors) * len(SPLITS)


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
    whole(tmp_path / "store", ["a", "b", "c"])
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
        each.images
        for each in done(work, ResourceOptions(actors=(1, 1), batch_size=2, unit_images=2), options=PlanOptions(3))
    ) == 3 * 3 * len(SPLITS)
    before = stamps(tmp_path / "store")
    assert done(work, options=PlanOptions(3)) == [] and stamps(tmp_path / "store") == before
    assert sum(each.images for each in done(work)) == 3 * (PER_DETECTOR - 3 * len(SPLITS))
    assert files(tmp_path / "store") == files(plain)


def test_a_changed_option_redoes_that_detector_alone(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    before = stamps(tmp_path / "store")
    changed = job(data, tmp_path / "store", {"a": {}, "b": {"shift": 9.0}, "c": {"shift": 2.0}})
    with pytest.raises(SaodError, match=r"holds detections of 'b' on val that were made with other weights.*--replace"):
        changed.plan()
    assert stamps(tmp_path / "store") == before
    receipts = done(changed, options=PlanOptions(replace=True))
    assert {each.detector for each in receipts} == {"b"} and sum(each.images for each in receipts) == PER_DETECTOR
    whole(tmp_path / "store", ["a", "b", "c"])
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
    assert {each.unit.split for each in plan.units} == {"id-c1", "id-c3", "id-c5"} == {p.split for p in plan.stale}
    assert all(each.detectors == ("a", "b", "c") for each in plan.units)


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
    mine = job(data, tmp_path / "store", {"c": {"shift": 2.0}})
    assert mine.scope(is_limited=False) == Scope(["a", "c"], is_partial=False, is_trial=False)
    assert mine.scope(is_limited=True) == Scope(["a", "c"], is_partial=False, is_trial=False)
    trial = job(data, tmp_path / "store", {"b": {"shift": 1.0}, "d": {}})
    assert trial.scope(is_limited=True) == Scope(["b", "d"], is_partial=True, is_trial=True)
    for name in "ac":
        shutil.rmtree(tmp_path / "store" / "ledger" / name)
    assert trial.scope(is_limited=True) == Scope(["b", "d"], is_partial=True, is_trial=False)


def test_a_shard_that_was_deleted_is_made_again(data, plain, tmp_path) -> None:
    shutil.copytree(plain, tmp_path / "store")
    next((tmp_path / "store" / "detections" / "b" / "id-c3").iterdir()).unlink()
    receipts = done(job(data, tmp_path / "store"))
    assert {(each.detector, each.unit.split) for each in receipts} == {("b", "id-c3")}
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
    whole(tmp_path / "store", ["a", "b", "c"])
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
    whole(store, ["a", "b", "c"])
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
    whole(tmp_path / "store", ["a"])
    assert list(failed(tmp_path / "store", "a").values()) == [FATAL]


@pytest.mark.parametrize(
    ("how", "said"),
    [("raises", "'a' cannot be built (RuntimeError: no such model)"), ("exits", "of a end before they are ready")],
)
def test_a_detector_that_cannot_be_built(data, tmp_path, how, said) -> None:
    with pytest.raises(SaodError) as caught:
        done(job(data, tmp_path / "store", {"a": {"built": how}}))
    assert said in str(caught.value)


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
    kept = sorted(place.iterdir())[-1].read_bytes()
    bad_images(place)
    truncated = sorted((root / "shapes" / "val").iterdir())[0]
    truncated.write_bytes(truncated.read_bytes()[:300])
    store = tmp_path / "store"
    done(job(root, store, {"a": {}}))
    whole(store, ["a"])
    reasons = failed(store, "a")
    assert {image for split, image in reasons if split == "id"} == {2_000_007, 2_000_008}
    assert reasons["id", 2_000_008] == f"There is no file shapes/id/{7:06d}.jpg."
    assert "of no known format" in reasons["id", 2_000_007]
    found = json.loads(scored(store))["detectors"]["a"]["coverage"]
    for split in SPLITS:
        assert found[split]["failed"] == sum(each == split for each, _ in reasons)
        shards = Store.open(str(store)).shards("a", split)
        rows = Store.open(str(store)).read_shard("a", split, shards[0])
        detected = int((np.diff(rows.offsets) > 0).sum())
        assert detected + found[split]["empty"] + found[split]["failed"] == found[split]["images"]
    # a file that appears later is looked at when it is asked for
    (place / f"{7:06d}.jpg").write_bytes(kept)
    assert done(job(root, store, {"a": {}})) == []
    again = done(job(root, store, {"a": {}}), options=PlanOptions(retry_failed=True))
    assert {each.unit.split for each in again} == {split for split, _ in reasons}
    whole(store, ["a"])
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
    whole(tmp_path / "store", ["a"])
    ((split, _), reason), *others = failed(tmp_path / "store", "a").items()
    assert split == "ood" and reason == FATAL and others == []


# actors that are killed, room that is short -----------------------------------------------------------------------------


def actors() -> list[psutil.Process]:
    """The processes of detectors on this test's cluster."""
    return [each for each in psutil.Process().children(recursive=True) if "DetectorWorker" in named(each)]


def named(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended
        return ""


def test_actors_that_are_killed_every_few_seconds(data, tmp_path) -> None:
    tally, sizes = tmp_path / "tally", ResourceOptions(actors=(2, 2), batch_size=2, unit_images=8)
    slow = {"a": {"seconds": 0.15, "tally": str(tally)}, "b": {"seconds": 0.15, "shift": 1.0, "tally": str(tally)}}
    done(job(data, tmp_path / "undisturbed", slow), sizes)
    tally.unlink()
    over, killed = threading.Event(), []

    def kill() -> None:
        """Not before something was done since the last one, or a busy machine would never end."""
        chance, before = np.random.default_rng(0), 0
        while not over.wait(float(os.environ.get("SAOD_KILL_SECONDS", "1.5"))):
            busy = [each for each in actors() if ".submit" in named(each)]
            now = len(list((tmp_path / "store" / "ledger").rglob("*.json")))
            if busy and now > before:
                victim, before = busy[int(chance.integers(len(busy)))], now
                victim.send_signal(signal.SIGKILL)
                killed.append(victim.pid)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        receipts = done(job(data, tmp_path / "store", slow), sizes)
    finally:
        over.set()
        killer.join()
    assert len(killed) >= 2
    assert sum(each.images for each in receipts) == 2 * PER_DETECTOR
    again = len(tally.read_text().splitlines()) - 2 * PER_DETECTOR
    print(f"{len(killed)} kills, {again} images done again")
    assert again <= len(killed) * sizes.unit_images  # what a killed actor had in hand, no more
    assert failed(tmp_path / "store", "a") == failed(tmp_path / "store", "b") == {}
    assert files(tmp_path / "store") == files(tmp_path / "undisturbed")


def test_a_pool_that_is_larger_than_the_cluster(data, plain, tmp_path) -> None:
    messages: list[str] = []
    work = job(data, tmp_path / "store")
    resources = ResourceOptions(actors=(9, 9), batch_size=2, unit_images=5)
    Run(work, work.plan(5), resources).detect(lambda receipt: None, Callbacks(on_message=messages.append))
    work.compact()
    assert messages == ["--actors 9: there is room for 5 on this cluster."]
    assert files(tmp_path / "store") == files(plain)


def test_what_cannot_be_scheduled_is_refused_with_the_reason(data, tmp_path, monkeypatch) -> None:
    work = job(data, tmp_path / "store", {"a": {}})
    with pytest.raises(SaodError, match=r"An actor needs .* 3 GPUs on one node, and the cluster has 4 CPUs and 0 GPUs"):
        done(work, ResourceOptions(gpus=3, batch_size=2))
    done(work)  # nothing is left behind that holds room
    whole(tmp_path / "store", ["a"])


def test_a_cluster_that_may_grow_is_waited_for_until_a_signal(data, tmp_path, monkeypatch) -> None:
    """GPUs that are not there yet: the run says what it waits for, and Ctrl-C ends it."""
    monkeypatch.setattr(driver, "FIRST_WAIT", 1.0)
    messages: list[str] = []

    def on_message(message: str) -> None:
        messages.append(message)
        if len(messages) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    work = job(data, tmp_path / "store", {"a": {}})
    waiting = Run(work, work.plan(), ResourceOptions(actors=(1, 2), gpus=1, batch_size=2), may_grow=True)
    with pytest.raises(KeyboardInterrupt):
        waiting.detect(lambda receipt: None, Callbacks(on_message=on_message))
    assert "needs 0.75 CPUs and 1 GPUs on one node" in messages[0] and "0 of 0 GPUs" in messages[0]
    assert messages[1] == driver.STOPPING
    assert files(tmp_path / "store") == {}


def test_a_signal_lets_the_units_in_hand_finish(data, plain, tmp_path) -> None:
    work = job(data, tmp_path / "store", {"a": {"seconds": 0.1}})
    receipts: list[Receipt] = []

    def on_receipt(receipt: Receipt) -> None:
        receipts.append(receipt)
        if len(receipts) == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    resources = ResourceOptions(actors=(1, 1), batch_size=2, unit_images=5)
    with pytest.raises(KeyboardInterrupt):
        detect(work, resources, on_receipt=on_receipt)
    pages = [page for split in SPLITS for page in work.store.pages("a", split)]
    assert 2 <= len(pages) <= 4  # those received, and one in hand
    again = done(work)
    assert sum(each.images for each in again) == PER_DETECTOR - sum(s.images for page in pages for s in page.shards)
    whole(tmp_path / "store", ["a"])


# a disk that is full ---------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(place)], capture_output=True)
    if mounted.returncode:
        pytest.skip("mounting a tmpfs needs root: run this test as root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def fill(disk: Path) -> Path:
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as out, pytest.raises(OSError, match="No space left"):
        while True:
            out.write(bytes(4096))
    return ballast


def test_a_disk_that_is_full_for_a_while_and_for_good(data, plain, small_disk, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(workers, "WorkerConfig", partial(WorkerConfig, patience=4.0))
    store = small_disk / "store"
    file = toml(tmp_path / "detectors", {"a": {}})
    from saod_ray.config import UseCase

    work = Job.from_use_case(UseCase.load("shapes", str(data)), str(store), str(file), tmp_path, batch_size=2)
    done(work, ResourceOptions(actors=(1, 1), group=1, batch_size=2, unit_images=2), options=PlanOptions(2))
    before = files(store)
    ballast = fill(small_disk)
    with pytest.raises(
        SaodError, match=r"cannot be written to .*No space left on device.*: fix that and run the same"
    ) as caught:
        done(work)
    assert caught.value.code == 1 and "\n" not in str(caught.value)
    assert files(store) == before  # as whole as it was, and nothing half-written
    monkeypatch.setattr(workers, "WorkerConfig", partial(WorkerConfig, patience=60.0))
    timer = threading.Timer(4.0, ballast.unlink)
    timer.start()
    done(work)
    timer.join()
    assert files(store) == {name: each for name, each in files(plain).items() if "/a/" in name}


def test_a_private_cluster_listens_on_loopback_alone(data, plain) -> None:
    mine = psutil.Process()
    sockets = [each for process in (mine, *mine.children(recursive=True)) for each in process.net_connections("inet")]
    listening = {each.laddr.ip.removeprefix("::ffff:") for each in sockets if each.status == psutil.CONN_LISTEN}
    assert listening and all(ip_address(each).is_loopback for each in listening), listening


def test_rays_metrics_count_images_by_detector(data, tmp_path) -> None:
    (node,) = ray.nodes()
    address = f"http://127.0.0.1:{node['MetricsExportPort']}/metrics"
    counted: list[float] = []

    def scrape(receipt: Receipt) -> None:
        text = urllib.request.urlopen(address, timeout=30).read().decode()
        lines = [line for line in text.splitlines() if line.startswith("ray_saod_ray_images_total{")]
        counted.append(sum(float(line.split()[-1]) for line in lines if 'detector="metered"' in line))

    sizes = ResourceOptions(actors=(1, 1), group=1, batch_size=2, unit_images=4)
    done(job(data, tmp_path / "store", {"metered": {"seconds": 0.1}}), sizes, on_receipt=scrape)
    assert 0 < max(counted) <= PER_DETECTOR
    assert all(a <= b for a, b in pairwise(counted))


def test_actors_go_when_a_run_is_over(data, plain) -> None:
    until = time.monotonic() + 20
    while actors() or ray.available_resources()["CPU"] < 4:
        assert time.monotonic() < until, [(each.pid, named(each)) for each in actors()]
        time.sleep(0.2)
