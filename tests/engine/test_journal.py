"""The record of a run: on disk as it happens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from saod_ray.engine.journal import Journal, RunLog
from saod_ray.engine.plan import Plan
from saod_ray.files import Folder
from saod_ray.store.store import Store

KILLED = """
import os, signal, sys
from saod_ray.engine.journal import Journal
from saod_ray.engine.plan import Plan
from saod_ray.store.store import Store

journal = Journal(Store(sys.argv[1]), Plan(), {"use_case": "shapes"})
with journal.stage("detecting"):
    for number in range(3):
        journal.log(f"message {number}")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def log_lines(store: Path) -> list[str]:
    (file,) = (store / "log").iterdir()
    return file.read_text().splitlines()


def test_a_sigkill_loses_no_line(tmp_path: Path) -> None:
    process = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert process.returncode == -signal.SIGKILL
    first, *messages = log_lines(tmp_path)
    assert "begins" in first and "shapes" in first
    assert [line.partition(" s ")[2] for line in messages] == ["message 0", "message 1", "message 2"]
    assert json.loads((tmp_path / "run.json").read_text())["outcome"] == "running"


def test_the_end_is_recorded(tmp_path: Path) -> None:
    journal = Journal(Store(str(tmp_path)), Plan(), {})
    try:
        with journal.stage("detecting"):
            raise RuntimeError("no power")
    except RuntimeError:
        outcome = json.loads((tmp_path / "run.json").read_text())["outcome"]
    assert outcome == "ended while detecting: RuntimeError: no power"
    assert log_lines(tmp_path)[-1].endswith(outcome)


def test_lines_that_cannot_be_written_are_written_later(tmp_path: Path) -> None:
    log = RunLog(Folder(str(tmp_path)), "log/run.log")
    (tmp_path / "log").write_text("a file where the folder should be")
    log.append("one")
    (tmp_path / "log").unlink()
    log.append("two")
    assert (tmp_path / "log" / "run.log").read_text() == "one\ntwo\n"


def test_an_object_store_gets_the_whole_log(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.is_local = False  # stands for a filesystem that cannot append
    log = RunLog(folder, "log/run.log")
    (tmp_path / "log").mkdir()
    for line in ("one", "two"):
        log.append(line)
        log.upload()
    assert (tmp_path / "log" / "run.log").read_text() == "one\ntwo\n"
