"""Experiments on stores in which splits are missing: what can be done is done, the rest is one sentence."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from experiment_stores import two_detectors
from usecases import SPLITS, import_all, random_use_case

from saod_ray.config import ScoreSettings
from saod_ray.errors import SaodError
from saod_ray.experiment import every, find
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import perform
from saod_ray.experiment.showing import figure_files
from saod_ray.store import ledger
from saod_ray.store.store import Store

pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")  # a division of nothing by nothing


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return two_detectors(tmp_path_factory.mktemp("case"))


def desk_with(folder: Path, target: Path, splits: tuple[str, ...], **settings: str) -> ExperimentContext:
    """`nll-rcnn` with these splits alone."""
    shutil.copytree(folder / "store", target)
    for split in set(SPLITS) - set(splits):
        shutil.rmtree(target / "ledger" / "nll-rcnn" / split)
    return ExperimentContext(
        Store.open(str(target)), ScoreSettings.from_options(**settings), ["nll-rcnn"], partial=True
    )


@pytest.mark.parametrize("uncertainty", ["score", "joint-entropy-normalised"])
@pytest.mark.parametrize(
    "splits",
    [("id",), ("id", "ood"), ("val",), ("val", "id"), ("val", "id", "id-c3", "ood"), ("pseudo-ood", "id", "ood")],
    ids=" ".join,
)
def test_every_experiment_is_done_or_refused_in_a_sentence(folder, tmp_path, splits, uncertainty) -> None:
    context = desk_with(folder, tmp_path / "store", splits, uncertainty=uncertainty)
    for each in every():
        try:
            assert perform(each, context).partial
        except SaodError as error:
            assert str(error).endswith(".") and "\n" not in str(error)


def test_nothing_is_fitted_on_nothing(folder, tmp_path) -> None:
    context = desk_with(folder, tmp_path / "store", ("val", "id", "ood"))
    with pytest.raises(SaodError, match="'nll-rcnn' has no detections on pseudo-ood, which thresholds are fitted on"):
        context.aware("nll-rcnn")
    assert context.aware("nll-rcnn", image_threshold="tpr-0.95").image_threshold > 0
    with pytest.raises(SaodError, match=r"'reliability' cannot be .*\(nll-rcnn has no detections on pseudo-ood\)"):
        perform(find("reliability"), context)
    without_val = desk_with(folder, tmp_path / "other", ("pseudo-ood", "id", "ood"))
    with pytest.raises(SaodError, match="no detections on val, which thresholds are fitted on: import them first"):
        without_val.aware("nll-rcnn")
    with pytest.raises(SaodError, match="no detections on val"):
        without_val.auroc("nll-rcnn", "joint-entropy-normalised")  # the ranges of val's entropies


def test_images_of_val_without_objects_fit_nothing_either(tmp_path) -> None:
    random_use_case(tmp_path, 4)
    import_all(str(tmp_path / "store"), tmp_path, shard_images=1)
    store = Store.open(str(tmp_path / "store"))
    objects = ExperimentContext(store, ScoreSettings(), ["d"]).objects("val")
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
    whole = desk_with(folder, tmp_path / "whole", SPLITS)
    context = desk_with(folder, tmp_path / "store", ("val", "id"))
    for name in ("oracle", "calibrators", "top-k"):
        found = perform(find(name), context)
        assert found.rows == perform(find(name), whole).rows
        assert bool(list(figure_files(found, context))) == bool(found.charts)


def test_a_detector_that_lacks_a_split_leaves_the_others_alone(folder, tmp_path) -> None:
    context = desk_with(folder, tmp_path / "store", ("id", "ood"))
    both = ExperimentContext(context.store, context.settings, ["atss", "nll-rcnn"], partial=True)
    for name in ("oracle", "reliability", "calibrators"):
        found = perform(find(name), both)
        assert {row.heads[0] for row in found.rows} == {"atss"}
        assert any("nll-rcnn has no detections on val" in remark for remark in found.remarks)
        assert not [file for file, _ in figure_files(found, both) if "nll-rcnn" in file]
