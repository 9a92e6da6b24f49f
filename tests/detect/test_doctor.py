from __future__ import annotations

import json
from importlib.metadata import version

from conftest import saod_ray


def test_it_says_what_is_there_and_what_to_install() -> None:
    shown = saod_ray("doctor")
    assert shown.returncode == 0
    assert f"mmdet {version('mmdet')}, mmcv's operators in PyTorch" in shown.stdout
    found = {each["what"]: each for each in json.loads(saod_ray("doctor", "--json").stdout)}
    assert found["PyTorch"]["is_there"]
    assert all(each["is_there"] or each["remedy"].startswith("pip install") for each in found.values())
