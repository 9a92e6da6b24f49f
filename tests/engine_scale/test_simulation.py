"""The simulation of the engine: what can be computed by hand, and what must hold for any costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.simulate import Costs, Load, Simulation, loads_of

FREE = Costs(
    decode_ms=0,
    corrupt_ms=0,
    put_ms=0,
    image_mb=1e-12,
    driver_ms=0,
    commit_ms=0,
    actor_start=0,
    cluster_start=0,
)


def costs(**values: float) -> Costs:
    return Costs(**{**vars(FREE), **values})


def test_the_steps_of_one_unit_add_up() -> None:
    given = costs(cluster_start=5, actor_start=1, driver_ms=250, commit_ms=500, image_mb=10, network_gbs=2)
    outcome = Simulation(given, 1, [16.0]).run([Load(128, 0.01)])
    # the actor starts while the unit is prepared, then 1.28 GB move
    assert outcome.wall == pytest.approx(5 + 1.28 + 0.25 + 0.64 + 128 / 16 + 0.5, abs=1e-9)


def test_a_gpu_runs_all_detectors_in_turn() -> None:
    outcome = Simulation(FREE, 1, [16.0, 32.0]).run([Load(64, 0)])
    assert outcome.wall == pytest.approx(64 / 16 + 64 / 32, abs=1e-9)


def test_all_gpus_are_busy_to_the_end() -> None:
    outcome = Simulation(FREE, 2, [16.0, 64.0]).run([Load(64, 0)] * 50)
    assert outcome.wall == pytest.approx(50 * (64 / 16 + 64 / 64) / 2, abs=1e-9)


def test_groups_prepare_the_images_again() -> None:
    loads = [Load(64, 0.01)] * 50
    one, two = (Simulation(FREE, 2, [16.0, 64.0], group).run(loads) for group in (2, 1))
    assert two.preparing == pytest.approx(2 * one.preparing)
    assert two.wall >= one.wall


def test_one_core_prepares_unit_after_unit() -> None:
    outcome = Simulation(costs(cpus=2), 1, [1e12]).run([Load(128, 0.01)] * 30)
    assert outcome.cores == 1
    assert outcome.wall == pytest.approx(30 * 128 * 0.01, abs=1e-6)


def test_a_slow_driver_handles_unit_after_unit() -> None:
    outcome = Simulation(costs(driver_ms=1000), 4, [1e12]).run([Load(128, 0)] * 10)
    assert outcome.driving == 10
    assert outcome.wall == pytest.approx(10, abs=1e-6)


def test_slow_actors_bound_what_is_prepared() -> None:
    """Two units per actor and one more may be in flight, so preparing the last ones waits for detection."""
    slow = Simulation(FREE, 1, [1.0]).run([Load(10, 0.1)] * 8)
    assert slow.wall == pytest.approx(1 + 8 * 10, abs=1e-9)


def test_more_gpus_are_never_slower() -> None:
    loads = loads_of({"val": 3000, "id-c1": 20000}, Costs())
    walls = [Simulation(Costs(), gpus, [21.0, 21, 20, 12, 20, 20]).run(loads).wall for gpus in (1, 2, 3, 6, 12, 24, 48)]
    assert walls == sorted(walls, reverse=True)


@settings(max_examples=30, deadline=None)
@given(
    gpus=st.integers(1, 20),
    rates=st.lists(st.floats(1, 100), min_size=1, max_size=6),
    images=st.integers(1, 3000),
    group=st.sampled_from([None, 1, 2, 6]),
)
def test_work_is_neither_lost_nor_invented(gpus: int, rates: list[float], images: int, group: int | None) -> None:
    loads = loads_of({"val": images, "id-c3": images}, Costs())
    outcome = Simulation(Costs(), gpus, rates, group).run(loads)
    passes = math.ceil(len(rates) / (group or len(rates)))
    assert math.isclose(outcome.detecting, sum(2 * images / rate for rate in rates), rel_tol=1e-9)
    milliseconds = 2 * (Costs.decode_ms + Costs.put_ms) + Costs.corrupt_ms
    assert math.isclose(outcome.preparing, passes * images * milliseconds / 1e3, rel_tol=1e-9)
    assert outcome.detecting <= outcome.gpus * outcome.wall
    assert outcome.preparing <= outcome.cores * outcome.wall
    assert outcome.wall >= outcome.driving
