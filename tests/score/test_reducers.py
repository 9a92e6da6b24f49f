from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reducer_tester import assert_reducer, reference_bin

from saod_ray.config import ScoreSettings
from saod_ray.score.benchmark import Benchmark
from saod_ray.score.evaluation import counted_images, evaluate, evaluate_split
from saod_ray.score.reducers import BinRule, class_sums, class_sums_by, merge_sums
from saod_ray.score.split import load_shard

RULES = st.builds(
    BinRule, st.sampled_from([1, 7, 10, 25]), last_closed=st.booleans(), lower_open=st.just(False)
) | st.builds(BinRule, st.sampled_from([10, 25]), lower_open=st.just(True))
EDGES = [k / 25 for k in range(26)] + [k / 7 for k in range(8)]
SCORES = st.sampled_from(EDGES) | st.floats(0, 1) | st.just(math.nan)


def frame(rows: list[tuple[int, float, int, float]]) -> pl.DataFrame:
    schema = {"label": pl.Int16, "calibrated": pl.Float64, "outcome": pl.Int8, "iou": pl.Float64}
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return table.with_columns(iou=pl.when(outcome=1).then("iou").otherwise(0.0))


ROWS = st.tuples(st.integers(0, 3), SCORES, st.sampled_from([1, 0, -1, -2]), st.floats(0.1, 1))


@settings(max_examples=60)
@given(st.lists(ROWS, max_size=40), RULES, st.integers(0, 99))
def test_class_sums_of_any_matches(rows, rule, seed) -> None:
    assert_reducer(frame(rows), np.array([1, 2, 3, 4]), rule, seed)


@given(SCORES, RULES)
def test_the_bin_of_a_score_is_that_of_its_edges(score, rule) -> None:
    got = pl.select(rule.number(pl.lit(score, pl.Float64))).item()
    assert got == reference_bin(score, rule)


def test_golden_sums() -> None:
    rows = [(0, 0.5, 1, 0.75), (0, 0.52, 0, 0.0), (0, 1.0, 1, 0.25), (1, math.nan, 0, 0.0), (1, 0.5, -1, 0.0)]
    sums = assert_reducer(frame(rows), np.array([3, 1]), BinRule(10)).statistics()
    assert sums.tp.tolist() == [2, 0] and sums.fp.tolist() == [1, 1] and sums.iou.tolist() == [1.0, 0.0]
    assert sums.bin_count[0].tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 1]
    assert sums.bin_score[0, 5] == 0.5 + 0.52 and sums.bin_count[1, 10] == 1


def test_sums_do_not_overflow() -> None:
    many = 1 << 20
    part = class_sums(frame([(0, 1.0, 1, 1.0)] * 64), np.array([0]), BinRule(25, last_closed=True))
    grown = part
    for _ in range(20):  # 64 million detections of score 1 in one bin: beyond 64 bits
        grown = merge_sums([grown, grown])
    sums = grown.statistics()
    assert sums.bin_score[0, 24] == sums.iou[0] == 64 * many


def test_groups_are_the_sums_of_their_rows() -> None:
    rng = np.random.default_rng(3)
    rows = [
        (int(k % 3), float(s), int(o), 0.5)
        for k, (s, o) in enumerate(zip(rng.random(200), rng.integers(-2, 2, 200), strict=True))
    ]
    table = frame(rows).with_columns(group=pl.Series(rng.integers(-1, 4, 200)))
    counts = [np.full(3, k) for k in range(5)]
    groups = class_sums_by(table, "group", counts, BinRule(25))
    assert len(groups) == 5 and groups[4].frame.is_empty()
    for number, sums in enumerate(groups):
        alone = class_sums(table.filter(group=number), counts[number], BinRule(25))
        assert sums.frame.sort("label", "bin").rows() == alone.frame.sort("label", "bin").rows()


@pytest.mark.parametrize("conventions", ["official", "paper"])
def test_shards_reduce_to_what_the_split_does(golden_store, tmp_path, conventions) -> None:
    """What a task next to a shard would do: evaluate it alone, reduce it, and send the small frame."""
    from conftest import import_golden

    from saod_ray.store.store import Store

    import_golden(str(tmp_path / "store"), shard_images=13)
    store = Store.open(str(tmp_path / "store"))
    benchmark = Benchmark(store, ScoreSettings(conventions=conventions))
    self_aware, truth = benchmark.fit_self_aware("toy"), benchmark.objects["id"]
    overall = evaluate_split(store, "toy", "id-c5", truth, self_aware)
    accepted = overall.decisions().by_position(len(truth.image_ids))
    partials = []
    for shard in reversed(store.shards("toy", "id-c5")):
        part = load_shard(store, "toy", "id-c5", shard, truth)
        kept = part.select(self_aware.keeps(part, accepted))
        evaluation = evaluate(
            "id-c5",
            kept,
            truth,
            self_aware.settings,
            calibrators=self_aware.calibrators,
            severities=[1, 3, 5],
        )
        counted = part.images[counted_images("id-c5", accepted[part.images])]
        partials.append(class_sums(evaluation.frame(), truth.counts(counted), evaluation.bin_rule()))
    assert len(partials) > 5
    together = merge_sums(partials).statistics()
    for name, values in vars(overall.sums().statistics()).items():
        assert vars(together)[name].tobytes() == values.tobytes(), name


THREADS = """
import hashlib, sys
import numpy as np, polars as pl
from saod_ray.score.reducers import BinRule, class_sums
rng = np.random.default_rng(0)
n = 300_000
table = pl.DataFrame({
    "label": rng.integers(0, 9, n).astype(np.int16), "calibrated": rng.random(n),
    "outcome": rng.integers(0, 2, n).astype(np.int8), "iou": rng.random(n),
})
sums = class_sums(table, np.zeros(9, np.int64), BinRule(25)).statistics()
print(pl.thread_pool_size(), hashlib.sha256(b"".join(v.tobytes() for v in vars(sums).values())).hexdigest())
"""


def test_threads_change_no_bit() -> None:
    import os

    digests = {}
    for threads in ("1", "2", "4", "8"):
        run = subprocess.run(
            [sys.executable, "-c", THREADS],
            env={**os.environ, "POLARS_MAX_THREADS": threads},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert run.returncode == 0, run.stderr
        size, digest = run.stdout.split()
        assert size == threads
        digests[threads] = digest
    assert len(set(digests.values())) == 1
