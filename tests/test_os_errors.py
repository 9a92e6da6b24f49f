"""What a user reads when the operating system refuses something."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from saod_ray.errors import SaodError, os_error_sentence
from saod_ray.files import Folder, check_folder, check_target, temp_path

INTERNAL = re.compile(r"\[[Ee]rrno|\.tmp|\.lock|\.writing-")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("not a folder")
    return tmp_path / "file"


def refusal(call: object, *args: object) -> str:
    with pytest.raises(SaodError) as caught:
        call(*args)  # type: ignore[operator]
    sentence = str(caught.value)
    assert not INTERNAL.search(sentence) and "\n" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOENT, "check the path"),
        (errno.EACCES, "change its permissions"),
        (errno.ENOSPC, "free some space"),
        (errno.EIO, "fix that and run the same command again"),
    ],
)
def test_an_error_of_the_system_has_path_reason_and_next_step(number, step) -> None:
    sentence = os_error_sentence(OSError(number, os.strerror(number), "runs/x.json"))
    assert sentence.startswith(f"runs/x.json cannot be used ({os.strerror(number)}): {step}")


def test_names_that_users_have_not_chosen_do_not_appear(tmp_path) -> None:
    target = tmp_path / "results.v2.json"
    names = {
        temp_path(target): target,
        tmp_path / ".use-case.lock": tmp_path,
        tmp_path / ".writing-toy@id" / "part-0": tmp_path,
        target: target,
    }
    for internal, user_path in names.items():
        error = OSError(errno.EACCES, "Permission denied", str(internal))
        assert os_error_sentence(error).startswith(f"{user_path} cannot be used (Permission denied)")


def test_errors_without_a_path_are_sentences_too() -> None:
    assert "(Connection refused): fix that" in os_error_sentence(ConnectionRefusedError(errno.ECONNREFUSED, "x"))
    assert "PYTHONUTF8=1" in os_error_sentence(UnicodeEncodeError("ascii", "aé", 1, 2, "ordinal not in range"))
    assert "not valid UTF-8" in os_error_sentence(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))


def test_a_lock_that_cannot_be_taken_names_the_folder(file) -> None:
    def take() -> None:
        with Folder(str(file)).lock("use-case"):
            pass

    assert refusal(take).startswith(f"{file} cannot be written to (Not a directory): give a path")


def test_a_folder_that_cannot_be_created_is_no_missing_file(file) -> None:
    sentence = refusal(Folder("/proc/nowhere").put, "x.json", b"")
    assert sentence.startswith("/proc/nowhere/x.json cannot be written to (No such file or directory)")
    assert "(Not a directory)" in refusal(Folder(str(file)).put, "x.json", b"")


def test_impossible_files_are_refused_before_the_work(file, tmp_path) -> None:
    for out in (file / "a" / "r.html", Path("/proc/r.html"), Path("/proc/nowhere/r.html"), tmp_path / ("x" * 255)):
        assert refusal(check_target, out).startswith(f"{out} cannot be written to (")
    assert f"{file} is a file, not a folder" in refusal(check_target, file / "a" / "r.html")
    assert refusal(check_target, tmp_path, "--csv").endswith("give --csv the path of a file to write.")
    assert list(tmp_path.iterdir()) == [file]


def test_impossible_folders_are_refused_before_the_work(file, tmp_path) -> None:
    assert refusal(check_folder, file, "--draw").endswith("give --draw the path of a folder to write into.")
    for folder in (file / "a", Path("/proc/nowhere"), tmp_path / ("x" * 300)):
        assert refusal(check_folder, folder, "--figures").startswith(f"{folder} cannot be written to (")


def test_possible_targets_are_accepted_and_left_alone(file, tmp_path) -> None:
    check_target(file)
    check_target(tmp_path / "new" / "deep" / "r.html")
    check_target(Path("r.html"))
    check_folder(tmp_path / "new" / "deep", "--draw")
    check_folder(tmp_path, "--draw")
    assert list(tmp_path.iterdir()) == [file] and file.read_text() == "not a folder"


def test_a_current_folder_that_is_gone(tmp_path, monkeypatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(FileNotFoundError) as caught:
        Path.cwd()
    assert os_error_sentence(caught.value).startswith("The current folder does not exist any more: change to another")
