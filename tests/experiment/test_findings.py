"""The paper's findings on a real run of the six detectors on shapes: those that hold there, and those that do not.

What is asserted is what docs/experiments.md says: where one of these tests fails, that page has to change, too.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import saod_ray

from saod_ray.experiment import NAMES, find
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Outcome, perform
from saod_ray.report.diff import last_settings
from saod_ray.store.store import Store

pytestmark = pytest.mark.slow

SIX = ("atss", "d-detr", "es-rcnn", "f-rcnn", "nll-rcnn", "rs-rcnn")
SIGMOID, PROBABILISTIC = ("atss", "d-detr", "rs-rcnn"), ("es-rcnn", "nll-rcnn")
SHIFTED = ("id-c1", "id-c3", "id-c5")


@pytest.fixture(scope="module")
def place(shapes_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("findings") / "store"
    shutil.copytree(shapes_run, target, ignore=shutil.ignore_patterns("cache", "experiments"))
    return target


@pytest.fixture(scope="module")
def context(place: Path) -> ExperimentContext:
    store = Store.open(str(place))
    assert set(SIX) <= set(store.detectors())
    return ExperimentContext(store, last_settings(store), SIX)


def table(context: ExperimentContext, name: str) -> Outcome:
    return perform(find(name), context)


def test_every_experiment_runs_and_has_the_shape_of_the_papers(context, place) -> None:
    result = saod_ray("experiment", "all", place, "--detectors", ",".join(SIX))
    assert result.returncode == 0, result.stderr
    assert "not done" not in result.stderr
    assert saod_ray("report", place, "--data", place / "nowhere").returncode == 0
    assert (place / "report.html").stat().st_size <= 2_500_000
    for name in NAMES:
        outcome = table(context, name)
        detectors = {row.headers[0] for row in outcome.rows}
        only = {"sigmoid-entropy": SIGMOID, "combined": PROBABILISTIC, "improvements": ("f-rcnn",)}.get(name, SIX)
        assert detectors == set(only), name
        assert all(len(row.values) == len(outcome.columns) for row in outcome.rows)
        assert len({row.headers for row in outcome.rows}) == len(outcome.rows)
        shares = [c.title for c in outcome.columns if c.unit == "%"]
        assert all(0 <= value <= 1 for title in shares for value in outcome.column(title) if value is not None), name


def test_ap_falls_from_val_to_id_and_with_severity(context) -> None:
    outcome = table(context, "accuracy")
    for name in SIX:
        falling = [outcome.cell(name, column=split) for split in ("val", "id", *SHIFTED)]
        assert falling == sorted(falling, reverse=True)


def test_few_certain_detections_say_more_than_all_of_them(context) -> None:
    outcome = table(context, "aggregation")
    for row in outcome.rows:
        everything, few = row.values[:2], row.values[2:]
        assert min(few) > max(everything), row.headers
    # in the paper min is behind top-2 for every detector; here it is not for the R-CNNs
    best = {
        name: outcome.cell(name, "score", column="min") > outcome.cell(name, "score", column="top-2") for name in SIX
    }
    assert {name for name, is_min in best.items() if is_min} == {"es-rcnn", "f-rcnn", "nll-rcnn", "rs-rcnn"}


def test_the_score_is_the_uncertainty_of_choice_where_no_other_is_learnt(context) -> None:
    outcome = table(context, "uncertainty")
    for row in outcome.rows:
        entropy, ds, score, *boxes = row.values
        assert score > ds
        assert (score > entropy) == (row.headers != ("nll-rcnn",))
        assert all(value is None for value in boxes) == (row.headers[0] not in PROBABILISTIC)
    # classification ahead of localisation: for nll-rcnn as in the paper, not for es-rcnn
    ahead = {
        name: outcome.cell(name, column="1 - score") > outcome.cell(name, column="Gaussian entropy")
        for name in PROBABILISTIC
    }
    assert ahead == {"nll-rcnn": True, "es-rcnn": False}


def test_the_categorical_entropy_is_best_for_sigmoids(context) -> None:
    for row in table(context, "sigmoid-entropy").rows:
        average, largest, categorical = row.values
        assert categorical > max(average, largest) + 0.1


def test_combining_helps_but_normalising_does_not_help_further(context) -> None:
    outcome = table(context, "combined")
    for name in PROBABILISTIC:
        by_class, by_box, total, balanced, normalised = (
            row.values[0] for row in outcome.rows if row.headers[0] == name
        )
        assert max(by_class, by_box) < total < balanced
        assert max(by_class, by_box) < normalised
        assert normalised < balanced + 0.002  # in the paper it gains a point or more
        assert normalised > context.auroc(name, "score")  # in the paper it is not


def test_auroc_falls_from_far_to_near(context) -> None:
    outcome = table(context, "ood-subsets")
    assert [column.title for column in outcome.columns] == ["kinds", "scenes", "digits", "all OOD"]
    for row in outcome.rows:
        near, middle, far, _ = row.values
        assert near < middle < far


def test_uncertainty_rises_with_severity_and_ap_falls_with_it(context) -> None:
    outcome = table(context, "reliability")
    cells = {row.headers: row.values for row in outcome.rows}
    middle = np.arange(11)  # images without a detection are the least certain
    for name in SIX:
        means = [float(np.dot(cells[name, split, "images"], middle)) for split in ("id", *SHIFTED)]
        assert means == sorted(means)
        assert float(np.dot(cells[name, "ood", "images"], middle)) > means[0]
        for split in ("id", *SHIFTED):
            pairs = zip(cells[name, split, "images"][:10], cells[name, split, "AP"][:10], strict=True)
            usual = [ap for share, ap in pairs if share >= 0.1]
            assert len(usual) > 1 and usual == sorted(usual, reverse=True), (name, split)


def test_pseudo_ood_rejects_more_here_and_gains_nothing_by_it(context) -> None:
    outcome = table(context, "image-threshold")
    for name in SIX:
        plain, pseudo = (
            [outcome.cell(name, rule, column=title) for title in ("BA", "TPR", "TNR")]
            for rule in ("TPR@0.95", "pseudo-OOD")
        )
        assert pseudo[2] > plain[2] and pseudo[1] < plain[1]
        assert pseudo[0] < plain[0]  # in the paper BA gains 4.5 points


def test_thresholds_of_val_and_id_rarely_match(context) -> None:
    gaps = [value for value in table(context, "oracle").column("difference") if value is not None]
    assert len(gaps) == 30 and min(gaps) > 0 and 0.01 < float(np.mean(gaps)) < 0.2


def test_misses_outweigh_false_positives_and_shift_makes_all_worse(context) -> None:
    outcome = table(context, "components")
    for name in SIX:
        value = {column.title: outcome.cell(name, column=column.title) for column in outcome.columns}
        assert value["FN"] > 2 * value["FP"]
        assert value["LRP_T"] > value["LRP"] and value["IDQ_T"] < value["IDQ"]
        assert value["DAQ"] <= max(value["BA"], value["IDQ"], value["IDQ_T"])
