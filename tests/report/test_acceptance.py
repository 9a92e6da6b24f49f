"""Histograms, ROC curves and decisions over image-level uncertainties."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from saod_ray.config import ScoreSettings
from saod_ray.report import acceptance
from saod_ray.score import thresholds
from saod_ray.score.self_aware import SelfAware
from saod_ray.score.uncertainty import NO_DETECTION

values = st.lists(st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.75, 1.0, NO_DETECTION]), min_size=1, max_size=12)


@given(values, values, st.sampled_from([0.1, 0.3, 0.5, 1.0]), st.sampled_from(["official", "paper"]))
def test_decisions_are_what_the_benchmark_would_say(inside, outside, u, conventions) -> None:
    settings = ScoreSettings(conventions=conventions)
    self_aware = SelfAware(settings, u, np.zeros(1), [None])
    here, away = np.array(inside), np.array(outside)
    table = acceptance.decisions({"id": here, "ood/far": away}, self_aware, settings)
    if table.threshold is UNSET:
        assert (np.concatenate([here, away]) == NO_DETECTION).all()
        return
    assert table.threshold[table.fitted] == u
    for k, t in enumerate(table.threshold):
        at_t = SelfAware(settings, t, np.zeros(1), [None])
        accepted = [at_t.accepts(values, values != NO_DETECTION) for values in (here, away)]
        if conventions == "paper":
            expected = thresholds.decided_accuracy(*accepted)
        else:
            expected = thresholds.balanced_accuracy(here, away, t)
        for name in ("tpr", "tnr", "ba"):
            assert getattr(table, name)[k] == pytest.approx(expected[name], abs=1e-12)
        assert table.accepted["id"][k] == pytest.approx(accepted[0].mean(), abs=1e-4)
        assert table.accepted["ood/far"][k] == pytest.approx(accepted[1].mean(), abs=1e-4)


@given(values, values)
def test_histograms_lose_no_image(inside, outside) -> None:
    splits = {"id": np.array(inside), "ood/far": np.array(outside)}
    rows = acceptance.histogram(splits, acceptance.bin_edges(splits))
    for name, uncertainty in splits.items():
        of_split = [row for row in rows if row.split == name]
        assert sum(row.images for row in of_split) == len(uncertainty)
        for row in of_split:
            if row.low is not None:
                last = row.bin == acceptance.BINS - 1
                inside_bin = [v for v in uncertainty if row.low <= v < row.high or (last and v == row.high)]
                assert row.images == len(inside_bin)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=400))
def test_thinned_curves_keep_their_ends(steps) -> None:
    x, y = np.cumsum(np.array(steps, float), axis=0).T
    indices = acceptance.thin_indices(x, y)
    assert indices[0] == 0 and indices[-1] == len(x) - 1
    assert len(indices) <= acceptance.POINTS + 2
    assert indices == sorted(set(indices))
