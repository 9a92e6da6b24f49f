from __future__ import annotations

import pickle
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from saod_ray.detect import checkpoints
from saod_ray.errors import SaodError


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(OrderedDict(first=nn.Linear(3, 4), second=nn.Linear(4, 2)))


@pytest.mark.parametrize("form", ["state dict", "checkpoint", "safetensors"])
def test_the_forms_people_save(form, tmp_path) -> None:
    weights = {key: value + 1 for key, value in model().state_dict().items()}
    path = tmp_path / ("w.safetensors" if form == "safetensors" else "w.pth")
    if form == "safetensors":
        save_file(weights, path)
    else:
        torch.save({"meta": {"epoch": 36}, "state_dict": weights} if form == "checkpoint" else weights, path)
    filled = model()
    checkpoints.load(filled, path)
    assert all(torch.equal(value, weights[key]) for key, value in filled.state_dict().items())


def test_a_checkpoint_of_another_architecture(tmp_path) -> None:
    weights = dict(model().state_dict())
    weights["third.weight"] = weights.pop("second.weight")
    weights["first.bias"] = torch.zeros(7)
    torch.save(weights, tmp_path / "w.pth")
    with pytest.raises(SaodError) as error:
        checkpoints.load(model(), tmp_path / "w.pth")
    for part in (
        "1 keys are missing (second.weight)",
        "1 are not the model's (third.weight)",
        "first.bias (7,) for (4,)",
    ):
        assert part in str(error.value)


class Trap:
    """Unpickling it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


def test_pickled_code_is_not_run(tmp_path) -> None:
    torch.save({"state_dict": model().state_dict(), "hook": Trap(tmp_path / "sprung")}, tmp_path / "w.pth")
    with pytest.raises(
        SaodError, match="would run pickled code when it is read, which is refused: save its state dict"
    ):
        checkpoints.load(model(), tmp_path / "w.pth")
    (tmp_path / "old.pth").write_bytes(pickle.dumps(Trap(tmp_path / "sprung")))
    with pytest.raises(SaodError):
        checkpoints.load(model(), tmp_path / "old.pth")
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize("name", ["w.pth", "w.safetensors"])
def test_half_a_checkpoint(name, tmp_path) -> None:
    path = tmp_path / name
    weights = model().state_dict()
    if path.suffix == ".pth":
        torch.save(weights, path)
    else:
        save_file(weights, path)
    whole = path.read_bytes()
    for share in (0.0, 0.3, 0.9):
        path.write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(SaodError, match=r"cannot be read .* fetch it again"):
            checkpoints.load(model(), path)


def test_what_is_no_checkpoint(tmp_path) -> None:
    with pytest.raises(SaodError, match="There is no checkpoint"):
        checkpoints.load(model(), tmp_path / "none.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(SaodError, match="is not a checkpoint"):
        checkpoints.load(model(), tmp_path / "list.pth")
