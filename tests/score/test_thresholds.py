from __future__ import annotations

import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from saod_ray.score import thresholds

VALUES = st.one_of(st.integers(0, 12).map(lambda k: k / 12), st.floats(0, 1), st.just(reference.NO_DETECTION))
SOME = st.lists(VALUES, min_size=1, max_size=40)


@given(SOME, SOME)
def test_roc(inside, outside) -> None:
    curve = thresholds.roc(np.array(inside), np.array(outside))
    expected = reference.roc(inside, outside)
    assert list(zip(*(part.tolist() for part in curve), strict=True)) == expected


@given(SOME, SOME)
def test_roc_drops_what_scikit_learn_drops(inside, outside) -> None:
    label = [1] * len(inside) + [0] * len(outside)
    *_, candidates = roc_curve(label, [-u for u in inside + outside], drop_intermediate=True)
    assert thresholds.roc(np.array(inside), np.array(outside)).threshold.tolist() == (-candidates[1:]).tolist()


@given(SOME, SOME)
def test_image_thresholds(inside, outside) -> None:
    got = thresholds.pseudo_ood_threshold(np.array(inside), np.array(outside))
    assert got == reference.pseudo_ood_threshold(inside, outside)
    for share in (0.5, 0.95):
        assert thresholds.tpr_threshold(np.array(inside), share) == reference.tpr_threshold(inside, share)


@given(SOME, SOME, VALUES)
def test_ood_figures(inside, outside, u) -> None:
    a, b = np.array(inside), np.array(outside)
    assert thresholds.balanced_accuracy(a, b, u) == pytest.approx(reference.ood_figures(inside, outside, u, "official"))
    decided = thresholds.decided_accuracy((a <= u) & (a < 1e12), (b <= u) & (b < 1e12))
    assert decided == pytest.approx(reference.ood_figures(inside, outside, u, "paper"))
    assert thresholds.auroc(a, b) == pytest.approx(reference.auroc(inside, outside), abs=1e-15)
    assert thresholds.fpr95(a, b) == reference.fpr95(inside, outside)


def test_auroc_is_scikit_learns() -> None:
    rng = np.random.default_rng(0)
    inside, outside = np.round(rng.random(500), 2), np.round(rng.random(300) + 0.2, 2)
    label = [0] * 500 + [1] * 300
    assert thresholds.auroc(inside, outside) == pytest.approx(roc_auc_score(label, [*inside, *outside]), abs=1e-14)


def test_harmonic_mean_with_weights() -> None:
    assert thresholds.harmonic(0.5, 0.25, weights=(1.0, 3.0)) == pytest.approx(4 / (1 / 0.5 + 3 / 0.25))
    assert thresholds.harmonic(0.5, 0.0) == 0.0
    assert thresholds.harmonic(0.5, 0.0, weights=(1.0, 0.0)) == 0.5
