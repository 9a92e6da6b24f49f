from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from saod_ray.detect import uncertainty

LOGITS = arrays.arrays(
    np.float32, st.tuples(st.integers(1, 4), st.integers(1, 9)), elements=st.floats(-60, 60, width=32)
)


def slow_entropy(row: np.ndarray) -> float:
    p = np.exp(row - row.max())
    p /= p.sum()
    return float(-sum(q * np.log(q) for q in p if q > 0))


def slow_binary(logit: float) -> float:
    p = 1 / (1 + np.exp(-logit))
    return float(-sum(q * np.log(q) for q in (p, 1 - p) if q > 0))


@given(LOGITS)
def test_against_the_definitions_in_double_precision(logits) -> None:
    rows = logits.astype(np.float64)
    expected = {
        "entropy": [slow_entropy(row) for row in rows],
        "ds": [len(row) / (len(row) + np.exp(row).sum()) for row in rows],
        "avg_entropy": [np.mean([slow_binary(x) for x in row]) for row in rows],
        "max_class_entropy": [slow_binary(row.max()) for row in rows],
    }
    for name, kind in uncertainty.SIGMOID.items():
        got = kind(torch.from_numpy(logits)).double().numpy()
        np.testing.assert_allclose(got, expected[name], rtol=2e-5, atol=2e-6, err_msg=name)


def test_nothing_is_nan_however_sure_a_detector_is() -> None:
    logits = torch.tensor([[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [3e38, -3e38, 0.0]])
    for kind in uncertainty.SIGMOID.values():
        assert kind(logits).isfinite().all()
    assert uncertainty.dempster_shafer(logits).tolist() == [0.0, 1.0, 0.0]
    assert uncertainty.max_class_entropy(logits).tolist() == [0.0, 0.0, 0.0]
