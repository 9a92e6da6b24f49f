"""Pixels are a function of image, corruption, severity, seed and image id alone."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pictures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.corrupt import CORRUPTIONS, corrupt

Array = np.ndarray
IDS = st.integers(-(2**63), 2**63 - 1)
JOBS = st.tuples(st.sampled_from(CORRUPTIONS), st.integers(1, 5), IDS, IDS, st.integers(0, 2))
IMAGES = (pictures.photograph(37, 52), pictures.photograph(64, 33, seed=1), pictures.noise(50, 50))
SCRIPT = """
import hashlib, json, sys
import pictures
from saod_ray.corrupt import CORRUPTIONS, corrupt
image = pictures.photograph(60, 81)
print(json.dumps([hashlib.sha256(corrupt(image, name, s, 3, -5).tobytes()).hexdigest() for name in CORRUPTIONS for s in (1, 5)]))
"""


def done(job: tuple[str, int, int, int, int]) -> bytes:
    corruption, severity, seed, image_id, image = job
    return corrupt(IMAGES[image], corruption, severity, seed, image_id).tobytes()


@pytest.fixture
def opencv_threads() -> Iterator[None]:
    before = cv2.getNumThreads()
    yield
    cv2.setNumThreads(before)


@settings(max_examples=40)
@given(st.lists(JOBS, min_size=1, max_size=8), st.randoms(use_true_random=False), st.integers(0, 2**32 - 1))
def test_neither_order_nor_company_nor_global_state_matters(jobs, random, global_seed) -> None:
    expected = {job: done(job) for job in jobs}
    shuffled = jobs * 2
    random.shuffle(shuffled)
    np.random.seed(global_seed)
    before = np.random.get_state()[1].copy()
    for job in shuffled:
        assert done(job) == expected[job]
    assert np.array_equal(np.random.get_state()[1], before)  # nor is the global generator used


@pytest.mark.parametrize("threads", [1, 4])
def test_threads_do_not_matter(threads: int, opencv_threads: None) -> None:
    jobs = [(name, severity, 1, 2, image) for name in CORRUPTIONS for severity in (1, 4) for image in range(3)]
    cv2.setNumThreads(2)
    expected = [done(job) for job in jobs]
    cv2.setNumThreads(threads)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(done, jobs)) == expected


@pytest.mark.parametrize("processor", ["this", pytest.param("generic", marks=pytest.mark.slow)])
def test_another_process_or_processor_makes_the_same_pixels(
    processor: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Kernels compiled for any x86-64, without its vector instructions, round as those for this machine do."""
    image = pictures.photograph(60, 81)
    here = [
        hashlib.sha256(corrupt(image, name, severity, 3, -5).tobytes()).hexdigest()
        for name in CORRUPTIONS
        for severity in (1, 5)
    ]
    env = {**os.environ, "NUMBA_CPU_NAME": "generic", "NUMBA_CACHE_DIR": str(tmp_path)}
    there = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        capture_output=True,
        check=True,
        cwd=request.path.parent,
        text=True,
        env=None if processor == "this" else env,
    )
    assert json.loads(there.stdout) == here


@pytest.mark.parametrize(
    "name",
    [
        "gaussian_noise",
        "shot_noise",
        "impulse_noise",
        "speckle_noise",
        "motion_blur",
        "snow",
        "frost",
        "fog",
        "elastic_transform",
    ],
)
def test_seed_and_image_id_do_matter(name: str) -> None:
    image = pictures.photograph(64, 64)
    one = corrupt(image, name, 3, seed=1, image_id=2)
    assert not np.array_equal(one, corrupt(image, name, 3, seed=2, image_id=2))
    assert not np.array_equal(one, corrupt(image, name, 3, seed=1, image_id=3))
    assert not np.array_equal(one, corrupt(image, name, 3, seed=2, image_id=1))
