from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from saod_ray.config import UseCase
from saod_ray.store.coco_import import import_results
from saod_ray.store.store import Store

GOLDEN = Path(__file__).parent / "golden" / "d8"

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def golden() -> Path:
    return GOLDEN


@pytest.fixture(scope="session")
def golden_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """The golden detections, imported once; tests must not change it."""
    uri = str(tmp_path_factory.mktemp("golden") / "store")
    import_golden(uri)
    return Store.open(uri)


@pytest.fixture(scope="session")
def shapes_run() -> Path:
    """The store of a finished run on shapes with all detectors; tests must not change it."""
    import os

    is_required = "SAOD_SHAPES_RUN" in os.environ  # as in CI: then the tests must not skip
    store = Path(os.environ.get("SAOD_SHAPES_RUN", "runs/shapes")).absolute()
    if not (store / "results.json").exists():
        reason = f"{store} has no finished run: `make test-slow` makes one, SAOD_SHAPES_RUN=DIR names one"
        pytest.fail(reason) if is_required else pytest.skip(reason)
    return store


def import_golden(uri: str, detector: str = "toy", shard_images: int = 4096) -> None:
    case = UseCase.load(GOLDEN / "use-case.toml")
    for split in case.split_names():
        import_results(uri, case, detector, split, GOLDEN / f"{split}.detections.json.gz", shard_images=shard_images)


def saod_ray(*args: object, env: dict[str, str] | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `saod-ray` with these arguments as a process of its own."""
    import os

    command = [sys.executable, "-m", "saod_ray", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=300, **options
    )


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value))
    return path
