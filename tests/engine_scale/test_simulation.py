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
    wait_us=0,
    commit_ms=0,
    actor_start=0,
    cluster_start=0,
)


def costs(**values: float) -> Costs:
    return Costs(**{**vars(FREE), **values})


def test_one_unit_takes_what_its_steps_take_one_after_the_other() -> None:
    given = costs(cluster_start=5, actor_start=20, commit_ms=500, image_mb=10, network_gbs=2)
    found = Simulation(given, 1, [16.0]).run([Load(128, 0.01)])
    # four parts of 32 at once on the seven cores that the actor leaves, then 1.28 GB to fetch
    assert found.wall == pytest.approx(5 + 32 * 0.01 + 20 + 0.64 + 128 / 16 + 0.5, abs=1e-9)


def test_a_group_detects_in_turn() -> None:
    found = Simulation(FREE, 1, [16.0, 32.0]).run([Load(64, 0)])
    assert found.wall == pytest.approx(64 / 16 + 64 / 32, abs=1e-9)


def test_each_detector_on_its_gpu_waits_for_the_slowest() -> None:
    found = Simulation(FREE, 2, [16.0, 64.0]).run([Load(64, 0)] * 50)
    assert found.wall == pytest.approx(50 * 64 / 16, abs=1e-9)


def test_detectors_that_share_every_gpu_use_all_of_them() -> None:
    found = Simulation(FREE, 2, [16.0, 64.0], at_once=True, group=2).run([Load(64, 0)] * 50)
    assert found.wall == pytest.approx(50 * (64 / 16 + 64 / 64) / 2, rel=0.02)


def test_one_core_decodes_part_after_part() -> None:
    found = Simulation(costs(cpus=2), 1, [1e12]).run([Load(128, 0.01)] * 30)
    assert found.decoders == 1
    assert found.wall == pytest.approx(30 * 128 * 0.01, abs=1e-6)


def test_a_slow_driver_handles_call_after_call() -> None:
    found = Simulation(costs(driver_ms=1000), 1, [1e12]).run([Load(128, 0)] * 10)
    # four parts and a job each, and one actor that gets ready
    assert found.driving == 10 * 5 + 1
    assert found.wall == pytest.approx(found.driving, abs=1e-6)


def test_actors_that_start_one_by_one_come_later() -> None:
    slow = costs(actor_start=30)
    loads = [Load(128, 0)] * 400
    by_one = Simulation(slow, 16, [10.0, 10.0]).run(loads).wall
    at_once = Simulation(slow, 16, [10.0, 10.0], at_once=True).run(loads).wall
    assert at_once == pytest.approx(30 + 400 * 12.8 / 8, abs=1e-6)
    assert by_one >= at_once


def test_more_gpus_are_never_slower() -> None:
    loads = loads_of({"val": 3000, "id-c1": 20000}, Costs())
    walls = [Simulation(Costs(), gpus, [21.0, 21, 20, 12, 20, 20]).run(loads).wall for gpus in (1, 2, 3, 6, 12, 24, 48)]
    assert walls == sorted(walls, reverse=True)


@settings(max_examples=30, deadline=None)
@given(
    gpus=st.integers(1, 20),
    rates=st.lists(st.floats(1, 100), min_size=1, max_size=6),
    images=st.integers(1, 3000),
    group=st.sampled_from([None, 6]),
    at_once=st.booleans(),
)
def test_work_is_neither_lost_nor_made(
    gpus: int, rates: list[float], images: int, group: int | None, at_once: bool
) -> None:
    loads = loads_of({"val": images, "id-c3": images}, Costs())
    found = Simulation(Costs(), gpus, rates, at_once, group).run(loads)
    assert math.isclose(found.detecting, sum(2 * images / rate for rate in rates), rel_tol=1e-9)
    milliseconds = 2 * (Costs.decode_ms + Costs.put_ms) + Costs.corrupt_ms
    assert math.isclose(found.decoding, images * milliseconds / 1e3, rel_tol=1e-9)
    assert found.detecting <= found.used * found.wall
    assert found.decoding <= found.decoders * found.wall
    assert found.wall >= found.driving
