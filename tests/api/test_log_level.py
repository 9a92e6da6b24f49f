"""`--log-level`: the `saod_ray` logger on stderr, and the causes of errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import saod_ray

from saod_ray.errors import SaodError


def test_debug_shows_the_cause_before_the_sentence(tmp_path: Path) -> None:
    token = tmp_path / "token"  # a folder, which cannot be read as a file
    token.mkdir()
    selfaware = tmp_path / "broken.json"
    selfaware.write_text("{")
    arguments = ("serve", "--selfaware", selfaware, "--token-file", token)
    quiet = saod_ray(*arguments)
    verbose = saod_ray("--log-level", "debug", *arguments)
    assert (quiet.returncode, verbose.returncode) == (1, 1)
    assert quiet.stderr.count("\n") == 1 and "Traceback" not in quiet.stderr
    assert verbose.stderr.splitlines()[-1] == quiet.stderr.rstrip("\n")
    assert "Traceback" in verbose.stderr and "SaodError" in verbose.stderr
    assert verbose.stdout == quiet.stdout == ""


def test_an_error_keeps_its_cause(tmp_path: Path) -> None:
    from saod_ray.predict.gate import token_digest

    with pytest.raises(SaodError, match="cannot be read") as refusal:
        token_digest("127.0.0.1", tmp_path / "missing")
    assert isinstance(refusal.value.__cause__, FileNotFoundError)


def test_an_unknown_level_is_a_mistake() -> None:
    run = saod_ray("--log-level", "loud", "doctor")
    assert run.returncode == 1 and "'loud' is not one of" in run.stderr


@pytest.mark.parametrize(("level", "is_shown"), [("info", True), ("warning", False)])
def test_records_go_to_stderr_from_the_level_on(level: str, is_shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    import logging

    from saod_ray.cli.commands import configure_logging

    logger = logging.getLogger("saod_ray")
    before = logger.level, list(logger.handlers)
    try:
        configure_logging(level)
        configure_logging(level)  # a second call adds no second handler
        logging.getLogger("saod_ray.engine.cluster").info("hello")
    finally:
        logger.level, logger.handlers = before[0], before[1]
        logging.getLogger("saod_ray").manager._clear_cache()
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("hello") == int(is_shown)
