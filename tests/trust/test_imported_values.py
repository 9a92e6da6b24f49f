"""Numbers that are finite and still absurd are refused when they are imported, by detection and image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from usecases import random_use_case

from saod_ray.config import UseCase
from saod_ray.errors import SaodError
from saod_ray.store.coco_import import import_results


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("uncertainty", [1e308, 0.1], "at most 1e[+]09 as uncertainty"),
        ("uncertainty", [-1e12, 0.1], "at most 1e[+]09 as uncertainty"),
        ("variance", [1e300, 1, 1, 1], "at most 1e[+]12 as variance"),
        ("bbox", [0, 0, 1e308, 1], "beyond a billion"),
        ("score", 1.0000001, "not in .0, 1."),
    ],
)
def test_absurd_values(tmp_path: Path, key: str, value: object, words: str) -> None:
    random_use_case(tmp_path, 1)
    path = tmp_path / "id.detections.json"
    rows = json.loads(path.read_text())
    rows[0][key] = value
    if key == "variance":
        rows = [{**row, "variance": row.get("variance", [1, 1, 1, 1])} for row in rows]
    path.write_text(json.dumps(rows))
    with pytest.raises(SaodError, match=f"detection 0 of image {rows[0]['image_id']}.*{words}"):
        import_results(str(tmp_path / "s"), UseCase.load(tmp_path / "use-case.toml"), "d", "id", path)


def test_an_absurd_area_is_refused(tmp_path: Path) -> None:
    random_use_case(tmp_path, 1)
    path = tmp_path / "id.json"
    value = json.loads(path.read_text())
    value["annotations"][0]["area"] = 1e300
    path.write_text(json.dumps(value))
    with pytest.raises(SaodError, match=f"annotation {value['annotations'][0]['id']} "):
        case = UseCase.load(tmp_path / "use-case.toml")
        import_results(str(tmp_path / "s"), case, "d", "id", tmp_path / "id.detections.json")
