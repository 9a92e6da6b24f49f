"""What several runs, or runs that changed, do to one store: nothing is lost, doubled or mixed unnoticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from toy_runs import PER_DETECTOR, detect, done, failed, files, job, own_copy, scored, stamps, tiny

from saod_ray.config import ScoreSettings
from saod_ray.engine.cluster import connected
from saod_ray.engine.failures import (
    FailureBudget,
    TooManyFailedError,
    failure_sentences,
    most_frequent_failure,
)
from saod_ray.engine.job import Job
from saod_ray.engine.plan import PlanOptions
from saod_ray.engine.resources import ResourceOptions
from saod_ray.engine.workers import store_problem
from saod_ray.errors import SaodError
from saod_ray.score.benchmark import Benchmark
from saod_ray.store import compaction, ledger
from saod_ray.store.store import Store
from saod_ray.store.verify import verify
from saod_ray.workflow import BenchmarkRun, RunEvents, RunOptions

pytestmark = pytest.mark.slow
ONE = ResourceOptions(actors=(1, 1), gpus=0, batch_size=2, unit_images=3)
GONE = "shapes/id/000001.jpg"


class Elsewhere(Store):
    """A store whose workers look for it where it is not."""

    @property
    def absolute(self) -> str:
        return "/nowhere/store"


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return tiny(tmp_path_factory)


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with connected(None, cpus=2, gpus=1):
        yield


@pytest.fixture(scope="module")
def failing(data, tmp_path_factory) -> tuple[Path, Path]:
    """Data from which an image of id is missing, and a store of a run on it that did not put its shards together."""
    folder = tmp_path_factory.mktemp("failing")
    root = own_copy(data, folder / "data")
    (root / GONE).unlink()
    work = job(root, folder / "store", {"a": {}})
    detect(work, ONE)
    return root, folder / "store"


def copied(failing: tuple[Path, Path], data: Path, place: Path) -> Job:
    """The run's store, and its data with the image that was missing."""
    root, store = failing
    shutil.copytree(root, place / "data")
    shutil.copy(data / GONE, place / "data" / GONE)
    shutil.copytree(store, place / "store")
    return job(place / "data", place / "store", {"a": {}})


# other weights, other seeds ------------------------------------------------------------------------------------------


def test_nothing_is_taken_away_for_a_detector_that_cannot_be_built(data, tmp_path) -> None:
    done(job(data, tmp_path / "store", {"a": {}}), ONE)
    before = stamps(tmp_path / "store")
    broken = job(data, tmp_path / "store", {"a": {"built": "raises"}})
    with pytest.raises(SaodError, match="no such model"):
        done(broken, ONE, PlanOptions(replace=True))
    assert stamps(tmp_path / "store") == before


def test_two_versions_of_a_detector_at_once_are_refused(data, tmp_path) -> None:
    first, second = (job(data, tmp_path / "store", {"a": {"shift": shift}}) for shift in (0.0, 50.0))
    plans = [work.plan(ONE.unit_images) for work in (first, second)]
    for work, plan, is_second in zip((first, second), plans, (False, True), strict=True):
        plan.units = [planned for planned in plan.units if planned.unit.split.startswith("id-c") == is_second]
        detect(work, ONE, plan)
        work.compact()
    with pytest.raises(SaodError, match="with other weights or another --seed, wrote detections of 'a' on id-c1"):
        first.refuse_mixture()
    with pytest.raises(SaodError, match=r"'a' in .* has detections of 2 versions"):
        Benchmark(first.store, ScoreSettings()).score(["a"])
    with pytest.raises(SaodError, match="give --replace"):
        first.plan(ONE.unit_images)
    done(first, ONE, PlanOptions(replace=True))
    first.refuse_mixture()
    done(job(data, tmp_path / "plain", {"a": {"shift": 0.0}}), ONE)
    assert files(tmp_path / "store") == files(tmp_path / "plain")


def test_a_node_that_sees_another_store_says_so(data, tmp_path) -> None:
    work = job(data, tmp_path / "store", {"a": {}})
    config = work.worker_config(["a"], "cpu", 2, replaces=False)
    assert store_problem(config) == ""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "use-case.json").write_text("{}")
    for place, why in (("nowhere", "cannot be read"), ("other", "there is another one")):
        problem = store_problem(replace(config, store=str(tmp_path / place)))
        assert why in problem and "give --store a place that all nodes share" in problem
    with pytest.raises(SaodError, match="not on node"):  # raised in a worker, and passed on as it is
        detect(replace(work, store=Elsewhere(str(tmp_path / "store"))), ONE)
    assert not (tmp_path / "nowhere").exists()


# ranges that overlap, and failed images ------------------------------------------------------------------------------


def test_overlapping_limits_are_put_together(data, tmp_path) -> None:
    works = [job(data, tmp_path / "store", {"a": {}}) for _ in range(2)]
    sizes = [ONE._replace(unit_images=size) for size in (3, 2)]
    plans = [work.plan(size.unit_images, PlanOptions(5)) for work, size in zip(works, sizes, strict=True)]
    for work, plan, size in zip(works, plans, sizes, strict=True):
        detect(work, size, plan)
    for work in works:
        work.compact()
    opened = Store.open(str(tmp_path / "store"))
    assert [page.unit for page in opened.pages("a", "id")] == ["00000000-00000005"]
    Benchmark(opened, ScoreSettings(), partial=True).score(["a"])
    done(works[0], ONE)
    done(job(data, tmp_path / "plain", {"a": {}}), ONE)
    assert files(tmp_path / "store") == files(tmp_path / "plain")


@pytest.mark.parametrize("is_cut", [False, True], ids=["not begun", "before its last step"])
def test_failed_images_are_tried_again_whatever_became_of_the_compaction(
    data, failing, tmp_path, monkeypatch, is_cut
) -> None:
    work = copied(failing, data, tmp_path)
    if is_cut:
        with monkeypatch.context() as patch:
            patch.setattr(compaction, "clean", lambda *args: None)
            work.compact()
        assert len(ledger.pages(work.store.folder, "a", "id")) > 1
    assert work.plan(ONE.unit_images).failed == {"a": 4}
    assert work.failed_images() == 4  # id and its three severities
    receipts = done(work, ONE, PlanOptions(retry_failed=True))
    assert {receipt.unit.split for receipt in receipts} == {"id", "id-c1", "id-c3", "id-c5"}
    assert work.failed_images() == 0 and failed(tmp_path / "store", "a") == {}
    done(job(data, tmp_path / "plain", {"a": {}}), ONE)
    assert files(tmp_path / "store") == files(tmp_path / "plain")


def test_failures_beyond_a_limit_do_not_count(data, failing, tmp_path) -> None:
    work = copied(failing, data, tmp_path)
    work.compact()
    assert work.plan(ONE.unit_images, PlanOptions(1)).failed == {"a": 0}
    assert work.plan(ONE.unit_images, PlanOptions(2)).failed == {"a": 4}
    FailureBudget(work.plan(ONE.unit_images, PlanOptions(1)), 0.01, work.store).refuse_too_many()
    with pytest.raises(TooManyFailedError, match="'a' failed on 4 of 14 images") as caught:
        FailureBudget(work.plan(ONE.unit_images, PlanOptions(2)), 0.01, work.store).refuse_too_many()
    sentence = str(caught.value)
    reason = most_frequent_failure(work.store, "a")
    assert reason is not None and (reason.count, reason.failed, reason.split) == (4, 4, "id")
    assert reason.image in work.inputs.images("id")["file_name"].to_list()
    assert f'because of "{reason.reason}", for instance {reason.image} of id: fix the cause' in sentence
    assert failure_sentences(work.store, ["a"]) == [
        f"'a' failed on 4 images, {reason.clause()}: run the same command with --retry-failed to try again."
    ]


class Messages(RunEvents):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, message: str) -> None:
        self.lines.append(message)


def test_a_run_ends_with_the_reason_for_its_failed_images(data, failing, tmp_path) -> None:
    work = copied(failing, data, tmp_path)
    options = RunOptions(
        data=str(tmp_path / "data"),
        detectors=str(tmp_path / "store-detectors" / "detectors.toml"),
        store=str(tmp_path / "store"),
        weights=str(tmp_path),
        batch_size=2,
        max_errors=1.0,
        bootstrap=0,
    )
    events = Messages()
    run = BenchmarkRun(options, events)
    assert not run.plan.units
    (tmp_path / "store" / "report.html").mkdir()
    with pytest.raises(SaodError, match=r"report\.html is not a file"):  # before anything is merged or scored
        run.carry_out()
    assert not (tmp_path / "store" / "results.json").exists()
    (tmp_path / "store" / "report.html").rmdir()
    assert run.carry_out().has_failed_images
    assert [line for line in events.lines if "failed on" in line] == failure_sentences(work.store, ["a"])
    assert GONE in failure_sentences(work.store, ["a"])[0]


# what a user is told -------------------------------------------------------------------------------------------------


def test_a_damaged_page_is_a_problem_with_a_repair(data, failing, tmp_path) -> None:
    work = copied(failing, data, tmp_path)
    work.compact()
    page = next((tmp_path / "store" / "ledger" / "a" / "id").iterdir())
    page.write_text(page.read_text().replace('"images": 8', '"images": 9'))
    (problem,) = verify(work.store, ["a"]).problems
    assert (problem.where, problem.repair) == ("ledger/a/id", "delete it and run the same command again")
    page.unlink()
    done(work, ONE, PlanOptions(retry_failed=True))
    assert verify(work.store, ["a"]).problems == []
    assert scored(tmp_path / "store")


def test_repairs_name_the_files_that_were_typed(data, tmp_path) -> None:
    work = job(data, tmp_path / "store", {"a": {}})
    assert work.store.run_command("a", "val").startswith("saod-ray run --use-case shapes --detectors a --store ")
    done(work, ONE)
    command_args = {"a": ["my case.toml", "my/detectors.toml"]}
    (tmp_path / "store" / "run.json").write_text(json.dumps({"typed": command_args}))
    command = work.store.run_command("a", "val-c3")
    assert command.startswith("saod-ray run --use-case 'my case.toml' --detectors my/detectors.toml --store ")
    assert command.endswith(" --with-val-shift")


# cores ---------------------------------------------------------------------------------------------------------------


def test_actors_with_gpus_leave_cores_to_decode_on(data, tmp_path) -> None:
    """Two halves of a GPU on two cores: no actor has to go before the next unit can be decoded."""
    work = job(data, tmp_path / "store", {"a": {}, "b": {"shift": 1.0}})
    resources = ResourceOptions(actors=(2, 2), gpus=0.5, batch_size=2, unit_images=2)
    receipts = []
    statistics = detect(work, resources, on_receipt=receipts.append)
    assert sum(receipt.images for receipt in receipts) == 2 * PER_DETECTOR
    assert statistics.actors == {"a,b": {"started": 2, "lost": 0}}
