"""Clusters that cannot be reached: one sentence, soon, and nothing of Ray's own."""

from __future__ import annotations

import pytest
from conftest import saod_ray

from saod_ray.engine.cluster import check_address
from saod_ray.errors import SaodError


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("127.0.0.1:1", "Ray cannot be reached at '127.0.0.1:1' (Connection refused): start the cluster"),
        ("ray://127.0.0.1:1", "Ray cannot be reached at 'ray://127.0.0.1:1' (Connection refused): start"),
        ("[::1]:1", "Ray cannot be reached at '[::1]:1' ("),
        ("127.0.0.1:99999", "Ray cannot be reached at '127.0.0.1:99999' ("),
        ("nonsense", "'nonsense' is not the address of a Ray cluster: give --address auto, HOST:PORT or ray://"),
        ("ray://nonsense", "'ray://nonsense' is not the address of a Ray cluster"),
        ("localhost:port", "'localhost:port' is not the address of a Ray cluster"),
    ],
)
def test_an_address_where_nothing_listens(address, sentence) -> None:
    with pytest.raises(SaodError) as caught:
        check_address(address)
    assert str(caught.value).startswith(sentence)


def test_an_address_in_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(SaodError, match=r"Ray cannot be reached at 'auto' \(Connection refused\)"):
        check_address("auto")
    monkeypatch.delenv("RAY_ADDRESS")
    check_address("auto")


def test_the_command_prints_one_line(golden_store) -> None:
    run = saod_ray("score", golden_store.uri, "--address", "127.0.0.1:1")
    assert run.returncode == 1 and run.stdout == ""
    assert run.stderr.splitlines() == [
        "saod-ray: Ray cannot be reached at '127.0.0.1:1' (Connection refused): start the cluster, or leave --address out."
    ]
