"""The output of commands in terminals of several widths, without colours, and in a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from conftest import import_golden

COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLUMNS = ("detector", "DAQ↑", "BA↑", "IDQ↑", "LaECE↓", "LRP↓", "IDQ_T↑", "LaECE_T↓", "LRP_T↓", "AP↑")


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Two detectors, one with a long name."""
    place = tmp_path_factory.mktemp("terminal") / "store"
    for name in ("toy", "a-detector-with-a-rather-long-name"):
        import_golden(str(place), name)
    return place


def in_a_terminal(columns: int, *args: object, **more: str) -> str:
    """The output of a command in a terminal of that width."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    env |= {"TERM": "xterm-256color", **more}
    command = [sys.executable, "-m", "saod_ray", *map(str, args)]
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=env)
    os.close(its)
    output = bytearray()
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux raises when the other end is closed
            break
        if not chunk:
            break
        output += chunk
    os.close(ours)
    assert process.wait(300) == 0, output.decode()
    return output.decode()


@pytest.mark.parametrize("columns", [80, 200])
def test_tables_fit_the_terminal(store, columns) -> None:
    output = in_a_terminal(columns, "score", store, "--bootstrap", 20)
    lines = [ESCAPE.sub("", line) for line in output.replace("\r", "").split("\n")]
    table = lines[: next(k for k, line in enumerate(lines) if line.startswith("All results"))]
    assert max(map(len, table)) <= columns
    headers = next(line.split() for line in table if "DAQ" in line and "LaECE_T" in line)
    assert tuple(headers) == COLUMNS
    text = "\n".join(table)
    # two detectors, each with nine values, eight of which have an interval: nothing was cut or wrapped within its column
    assert len(re.findall(r"(?<![\d.])\d+\.\d\d(?![\d.])", text)) == 2 * 9
    if columns == 200:
        assert len(re.findall(r"\d\.\d\d \[\d+\.\d, \d+\.\d\]", text)) == 2 * 8
    else:
        assert (
            len(re.findall(r"(?<![\d.])\d+\.\d–(?= |$)", text, re.MULTILINE)) == 2 * 8
        )  # lower ends, and below upper ones
        assert len(re.findall(r"(?<![\d.])\d+\.\d(?= |$)", text, re.MULTILINE)) == 2 * 8


def test_colours_are_left_out_when_asked(store) -> None:
    assert COLOUR.search(in_a_terminal(80, "detectors"))
    assert not COLOUR.search(in_a_terminal(80, "detectors", NO_COLOR="1"))
    assert COLOUR.search(in_a_terminal(80, "doctor"))
    assert not COLOUR.search(in_a_terminal(80, "doctor", NO_COLOR="1"))


def test_a_pipe_gets_plain_text(store) -> None:
    for args in (("score", str(store)), ("detectors",), ("verify", str(store))):
        ran = subprocess.run([sys.executable, "-m", "saod_ray", *args], capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0
        assert "\x1b" not in ran.stdout + ran.stderr
