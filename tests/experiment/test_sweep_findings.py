"""The paper's findings about calibration and thresholds on the numbers of a real run, as docs/experiments.md has them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from saod_ray.config import ScoreSettings
from saod_ray.experiment import ablation, find, tau, top_k
from saod_ray.experiment.context import ExperimentContext
from saod_ray.experiment.experiment import Outcome, perform
from saod_ray.score.split import SplitDetections
from saod_ray.store.store import Store

pytestmark = pytest.mark.slow
SOFTMAX = ("f-rcnn", "nll-rcnn", "es-rcnn")
SIX = (*SOFTMAX, "rs-rcnn", "atss", "d-detr")


@pytest.fixture(scope="module")
def real(shapes_run: Path, tmp_path_factory: pytest.TempPathFactory) -> ExperimentContext:
    place = tmp_path_factory.mktemp("real") / "store"
    shutil.copytree(shapes_run, place, ignore=shutil.ignore_patterns("cache", "experiments", "*.html"))
    recorded = json.loads((place / "results.json").read_text())["settings"]
    settings = ScoreSettings.from_options(
        **{key: value for key, value in recorded.items() if key in ScoreSettings.model_fields}
    )
    return ExperimentContext(Store.open(str(place)), settings, SIX)


@pytest.fixture(scope="module")
def outcome(real: ExperimentContext) -> Callable[[str], Outcome]:
    return lambda name: perform(find(name), real)


def test_calibration_lowers_laece_and_leaves_lrp(outcome) -> None:
    result = outcome("calibrators")
    for detector in SIX:
        laece = {
            kind: result.cell(detector, "LaECE", column=kind) for kind in ("none", "linear", "histogram", "isotonic")
        }
        assert laece["isotonic"] < laece["histogram"]
        assert (laece["linear"] < laece["histogram"]) == (detector != "rs-rcnn")
        if detector != "d-detr":  # nearly calibrated as it is
            assert max(laece["linear"], laece["histogram"], laece["isotonic"]) < laece["none"]
        lrp = next(row.values for row in result.rows if row.headers == (detector, "LRP"))
        assert max(lrp) - min(lrp) < 0.005
    for detector in SOFTMAX:  # over-confident: more than half of the error goes
        assert result.cell(detector, "LaECE", column="linear") < result.cell(detector, "LaECE", column="none") / 2


def test_not_atss_but_d_detr_is_the_best_without_calibration(outcome) -> None:
    result = outcome("calibrators")
    laece = {detector: result.cell(detector, "LaECE", column="none") for detector in SIX}
    assert min(laece, key=lambda name: laece[name]) == "d-detr"
    assert laece["atss"] > laece["rs-rcnn"]  # it is under-confident here, as on SAOD-AV


def test_dummies_lower_laece_and_raise_lrp(outcome) -> None:
    result = outcome("top-k")
    for detector in SIX:
        per_image, laece, ap, lrp = zip(*(row.values for row in result.rows if row.headers[0] == detector), strict=True)
        assert len(per_image) == 4 and per_image[1:] == (100, 300, 500)
        assert laece == tuple(sorted(laece, reverse=True)) and laece[-1] < laece[0] / 4
        assert lrp == tuple(sorted(lrp)) and lrp[-1] > 0.99
        assert len(set(ap)) == 1


def filled(split: SplitDetections, classes: int, k: int) -> SplitDetections:
    """The detections with their dummies really there, behind the others of their image."""
    count = np.diff(split.offsets)
    more = np.maximum(k - count, 0)
    at = np.repeat(split.offsets[1:], more)  # where each dummy goes
    label = top_k.dummy_classes(len(count), classes)[np.arange(max(top_k.FILLED)) < more[:, None]]
    pairs = np.insert(np.diff(split.pair_start), at, 0)
    return replace(
        split,
        offsets=np.concatenate([[0], np.cumsum(count + more)]),
        label=np.insert(split.label, at, label.astype(split.label.dtype)),
        score=np.insert(split.score, at, 0.0),
        area=np.insert(split.area, at, 0b11),
        pair_start=np.concatenate([[0], np.cumsum(pairs)]),
    )


@pytest.mark.parametrize("detector", ["f-rcnn", "atss"])
def test_dummies_that_are_really_there_leave_ap(real, outcome, detector) -> None:
    raw = real.raw_detections(detector, "val")
    with_dummies = filled(raw, len(real.classes), 300)
    assert len(with_dummies.label) == 300 * len(raw.images)
    assert real.benchmark.accuracy_of(with_dummies, "val").ap == outcome("top-k").cell(
        detector, "up to 300", column="AP"
    )


def test_thresholds_cost_ap_and_help_lrp(outcome) -> None:
    result = outcome("detection-threshold")
    for detector in SIX:
        rows = {row.headers[1]: row.values for row in result.rows if row.headers[0] == detector}
        assert list(rows) == ["none", "0.30", "0.50", "0.70", "LRP-opt."]
        assert rows["none"][2] == max(ap for _, _, ap, _ in rows.values())
        assert rows["LRP-opt."][3] == min(lrp for _, _, _, lrp in rows.values())
        assert 3.0 < rows["LRP-opt."][0] < 3.55 < rows["none"][0]  # val has 3.55 objects per image
        raises = rows["LRP-opt."][1] > rows["none"][1]
        assert raises == (detector != "rs-rcnn")  # which gives noise scores around 0.3


def test_laece_is_not_sensitive_to_tau_up_to_one_half_and_lrp_rises(outcome) -> None:
    result = outcome("tau")
    for detector in SIX:
        rows = [row.values for row in result.rows if row.headers[0] == detector]
        assert len(rows) == len(tau.TAUS)
        before, after, lrp = (np.array(column) for column in zip(*rows, strict=True))
        assert np.ptp(before[:6]) < 0.01 and np.ptp(after[:6]) < 0.01
        assert (np.diff(lrp) > 0).all() and lrp[-1] > 0.9
        over_confident = before[-1] > before[5]
        assert over_confident == (detector != "atss")
        assert after.max() < 0.13 and abs(after[-1] - after[5]) < 0.05  # it does not become easier by 0.9


def test_extreme_thresholds_cost_daq(outcome) -> None:
    result = outcome("thresholds")
    for detector in SIX:
        over_u, over_v = (
            [row.values for row in result.rows if row.headers[:2] == (detector, name)] for name in ("u", "v")
        )
        assert len(over_u) == len(over_v) == 21
        daq = [values[1] for values in over_u]
        assert daq[0] == 0 and max(daq) > 0.5 and 5 < int(np.argmax(daq)) < 18
        assert max(np.diff([values[4] for values in over_u])) < 0.01  # LRP falls as more is accepted
        assert np.ptp([values[3] for values in over_u][2:]) < 0.02  # LaECE hardly depends on u
        assert len({values[2] for values in over_v}) == 1  # BA knows nothing of v
        daq = [values[1] for values in over_v]
        assert daq[-1] == 0 and 2 < int(np.argmax(daq)) < 18 and daq[0] < 0.85 * max(daq)
        best = over_v[int(np.argmax(daq))]
        assert over_v[0][3] < best[3] and over_v[0][4] > best[4]  # all detections: a lower LaECE, a higher LRP


def test_each_part_of_a_self_aware_detector_helps_but_pseudo_ood(outcome) -> None:
    result = outcome("ablation")
    for detector in SIX:
        none, lrp, linear, everything = (row.values for row in result.rows if row.headers[0] == detector)
        titles = [metric.title for metric in ablation.METRICS]
        daq, ba, laece, error = (titles.index(title) for title in ("DAQ", "BA", "LaECE", "LRP"))
        assert none[daq] < lrp[daq] < linear[daq]
        assert lrp[error] < none[error]
        assert linear[laece] < lrp[laece] and linear[ba] == lrp[ba] == none[ba]
        assert everything[ba] < linear[ba] and everything[daq] < linear[daq]  # the paper's rises
