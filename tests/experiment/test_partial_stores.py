"""Experiments on stores with missing splits: what is possible is computed, the rest is refused in one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from experiment_stores import two_detectors
from usecases import SPLITS, import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.experiment import NAMES, all_experiments, find
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import perform
from saod_ray.experiment.render import figure_files
from saod_ray.store import ledger
from saod_ray.store.store import Store

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # a division of nothing by nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_detectors(tmp_path_factory.mktemp("case"))


def context_with(folder: Path, target: Path, splits: tuple[str, ...], **settings: str) -> ExperimentContext:
    """`nll-rcnn` with these splits alone."""
    shutil.copytree(folder / "store", target)
    for split in set(SPLITS) - set(splits):
        shutil.rmtree(target / "ledger" / "nll-rcnn" / split)
    return ExperimentContext(
        Store.open(str(target)), ScoreSettings.from_options(**settings), ["nll-rcnn"], partial=True
    )


ON_ID_AND_OOD = {"aggregation", "uncertainty", "sigmoid-entropy", "ood-subsets"}
ON_VAL = {"top-k", "detection-threshold"}
ON_VAL_AND_ID = {*ON_VAL, "calibrators", "tau", "oracle"}
POSSIBLE = {  # by the splits of the store
    ("id",): {"accuracy"},
    ("id", "ood"): {"accuracy", *ON_ID_AND_OOD},
    ("pseudo-ood", "id", "ood"): {"accuracy", *ON_ID_AND_OOD},
    ("val",): {"accuracy", *ON_VAL},
    ("val", "id"): {"accuracy", *ON_VAL_AND_ID},
    ("val", "id", "id-c3", "ood"): {"accuracy", *ON_VAL_AND_ID, *ON_ID_AND_OOD, "combined"},
    SPLITS: set(NAMES) - {"improvements"},  # which is about f-rcnn
}


@pytest.mark.parametrize("uncertainty", ["score", "joint-entropy-normalised"])
@pytest.mark.parametrize("splits", POSSIBLE, ids=" ".join)
def test_possible_experiments_are_computed_and_others_refused(folder, tmp_path, splits, uncertainty) -> None:
    possible = set(POSSIBLE[splits])
    if uncertainty == "joint-entropy-normalised" and "val" not in splits:
        possible -= {"ood-subsets"}  # this uncertainty is normalised by its range on val
    context = context_with(folder, tmp_path / "store", splits, uncertainty=uncertainty)
    computed = set()
    for experiment in all_experiments():
        try:
            outcome = perform(experiment, context)
        except SaodError as error:
            assert str(error).endswith(".") and "\n" not in str(error)
            continue
        assert outcome.partial and {row.headers[0] for row in outcome.rows} == {"nll-rcnn"}
        computed.add(experiment.name)
    assert computed == possible


def test_nothing_is_fitted_on_nothing(folder, tmp_path) -> None:
    context = context_with(folder, tmp_path / "store", ("val", "id", "ood"))
    with pytest.raises(SaodError, match="'nll-rcnn' has no detections on pseudo-ood, which thresholds are fitted on"):
        context.self_aware("nll-rcnn")
    assert context.self_aware("nll-rcnn", image_threshold="tpr-0.95").image_threshold > 0
    with pytest.raises(SaodError, match=r"'reliability' cannot be .*\(nll-rcnn has no detections on pseudo-ood\)"):
        perform(find("reliability"), context)
    without_val = context_with(folder, tmp_path / "other", ("pseudo-ood", "id", "ood"))
    with pytest.raises(SaodError, match="no detections on val, which thresholds are fitted on: import them first"):
        without_val.self_aware("nll-rcnn")
    with pytest.raises(SaodError, match="no detections on val"):
        without_val.auroc("nll-rcnn", "joint-entropy-normalised")  # the ranges of val's entropies


def test_images_of_val_without_objects_fit_nothing_either(tmp_path) -> None:
    random_use_case(tmp_path, 4)
    import_all(str(tmp_path / "store"), tmp_path, shard_images=1)
    store = Store.open(str(tmp_path / "store"))
    objects = ExperimentContext(store, ScoreSettings(), ["d"]).ground_truth("val")
    empty = set(objects.image_ids[~objects.annotated()].tolist())
    page = store.pages("d", "val")[0]
    left = [shard for shard in page.shards if set(store.read_shard("d", "val", shard).image_id.tolist()) <= empty]
    assert left
    ledger.write_page(store.folder, msgspec.structs.replace(page, shards=left))
    context = ExperimentContext(store, ScoreSettings(), ["d"], partial=True)
    for name in ("oracle", "calibrators", "components"):
        with pytest.raises(SaodError, match="has no detections on val's annotated images"):
            perform(find(name), context)


def test_what_needs_no_image_threshold_needs_no_pseudo_ood(folder, tmp_path) -> None:
    complete = context_with(folder, tmp_path / "complete", SPLITS)
    context = context_with(folder, tmp_path / "store", ("val", "id"))
    for name in ("oracle", "calibrators", "top-k"):
        outcome = perform(find(name), context)
        assert outcome.rows == perform(find(name), complete).rows
        has_charts = name != "calibrators"
        assert bool(outcome.charts) == bool(list(figure_files(outcome, context))) == has_charts


def test_a_detector_that_lacks_a_split_leaves_the_others_alone(folder, tmp_path) -> None:
    context = context_with(folder, tmp_path / "store", ("id", "ood"))
    of_both = ExperimentContext(context.store, context.settings, ["atss", "nll-rcnn"], partial=True)
    for name in ("oracle", "reliability", "calibrators"):
        outcome = perform(find(name), of_both)
        assert {row.headers[0] for row in outcome.rows} == {"atss"}
        assert any("nll-rcnn has no detections on val" in remark for remark in outcome.remarks)
        files = [file for file, _ in figure_files(outcome, of_both)]
        assert bool(files) == (name != "calibrators") and not any("nll-rcnn" in file for file in files)
