from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from conftest import saod_ray

from saod_ray import __version__
from saod_ray.cli import find_command
from saod_ray.cli.commands import COMMANDS
from saod_ray.config import CALIBRATORS, CONVENTIONS, UNCERTAINTIES
from saod_ray.score.self_aware import SelfAware

HEAVY = ("ray", "torch", "mmdet", "mmcv", "mmengine", "sklearn", "matplotlib", "cv2")


def loaded_by(*args: object) -> set[str]:
    """The modules that a command has loaded when it ends."""
    code = "import sys, atexit\natexit.register(lambda: print('\\n' + ' '.join(sys.modules), file=sys.stderr))\n"
    code += f"from saod_ray.cli import main\nmain({[str(a) for a in args]!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stderr.splitlines()[-1].split())


@pytest.fixture
def copy(golden_store, tmp_path) -> Path:
    shutil.copytree(golden_store.uri, tmp_path / "store", ignore=shutil.ignore_patterns("cache"))
    return tmp_path / "store"


def test_help_loads_next_to_nothing() -> None:
    light = {*HEAVY, "numpy", "polars", "pyarrow", "numba", "scipy"}
    assert loaded_by("--help").isdisjoint({*light, "pydantic", "saod_ray.cli.run"})
    for name in COMMANDS:
        assert loaded_by(name, "--help").isdisjoint(light)  # typer itself parses options with pydantic


def test_scoring_loads_no_engine_and_no_models(copy) -> None:
    assert loaded_by("score", copy).isdisjoint(HEAVY)


def test_help_names_every_command() -> None:
    lines = saod_ray("--help").stdout.splitlines()
    listed = {line.split()[1] for line in lines if re.match(r"│ [a-z]", line)}
    assert listed >= {"run", "import", "score", "export", "verify"}
    assert listed == COMMANDS.keys()


@pytest.mark.parametrize("name", COMMANDS)
def test_summaries_are_those_of_the_commands(name) -> None:
    command, _ = find_command(name)
    assert command.help.split("\n\n")[0] == COMMANDS[name].summary


def test_help_names_every_choice() -> None:
    shown = saod_ray("score", "--help", env={"COLUMNS": "200"}).stdout
    text = "".join(shown.replace("│", "").split())
    helps = {option.name: option.help for option in find_command("score")[0].params}
    for name, choices in (("calibrator", CALIBRATORS), ("conventions", CONVENTIONS), ("uncertainty", UNCERTAINTIES)):
        assert names_in(helps[name]) >= set(choices)
        assert "".join(helps[name].split()) in text


def names_in(sentence: str) -> set[str]:
    """The words of a help text."""
    return set(re.split(r"[^a-z-]+", sentence))


def test_the_version_is_that_of_the_package_metadata() -> None:
    run = saod_ray("--version")
    assert run.returncode == 0
    assert run.stdout.split()[-1] == __version__ == version("saod-ray")


def test_no_arguments_is_help() -> None:
    run = saod_ray()
    assert run.returncode == 0 and "Usage: saod-ray" in run.stdout


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["scroe"], "No such command 'scroe'"),
        (["score"], "Missing argument 'STORE'"),
        (["score", "nowhere"], "There is no store at nowhere"),
        (["score", "{store}", "--calibrator", "isotnic"], "'isotnic' is not one of"),
        (["score", "{store}", "--aggregate", "top-0"], "'top-0' is not an aggregation"),
        (["score", "{store}", "--image-threshold", "tpr-95"], "outside 0 to 1"),
        (["score", "{store}", "--image-threshold", "often"], "'often' is not an image threshold"),
        (["score", "{store}", "--detection-threshold", "nan"], "'nan' is not a detection threshold"),
        (["score", "{store}", "--uncertainty", "entropi"], "uncertainty: "),
        (["score", "{store}", "--uncertainty", "trace"], "needs the column 'variance'"),
        (["score", "{store}", "--tau", "1"], "tau: "),
        (["score", "{store}", "--bins", "0"], "'0' is not a whole number of at least 1"),
        (["score", "{store}", "--daq-weights", "1,2"], "is not 3 weights"),
        (["score", "{store}", "--detectors", "tyo"], "has no detector 'tyo' (did you mean 'toy'?)"),
        (["export", "{store}", "--detector", "toy", "--split", "idd", "--out", "x.json"], "'idd' is not a split"),
        (["export", "{store}", "--detector", "toy", "--split", "id", "--out", "/nowhere/x.json"], "cannot be written"),
        (["export", "{store}", "--detector", "toy", "--split", "id", "--out", "."], "is not a file"),
        (["export", "{store}", "--detector", "toy", "--split", "id", "--out", "x" * 255], "cannot be written"),
        (["score", "{store}", "--out", "/tmp"], "'/tmp' is not a file"),
        (["score", "x" * 300], "File name too long"),
        (["verify", "nowhere"], "There is no store at nowhere"),
        (["run", "--gpus-per-actor", "1.5"], "'1.5' is neither a part of a GPU"),
        (["run", "--gpus-per-actor", "nan"], "'nan' is not a number"),
        (["run", "--actors", "²:3"], "'²:3' is not MIN:MAX"),
        (["run", "--max-errors", "nan"], "'nan' is not a number"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_1(args, message, golden_store) -> None:
    run = saod_ray(*(arg.replace("{store}", golden_store.uri) for arg in args))
    assert run.returncode == 1
    assert run.stdout == ""
    assert message in run.stderr
    assert run.stderr.count("\n") == 1 and "Traceback" not in run.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name = ", "is not valid TOML"),
        ('name = "x"\n[splits.val]\nanotations = "a"\n[splits.id]\nannotations = "b"', "did you mean 'annotations'?"),
        ('name = "x"\n[splits.val]\nannotations = "a"', "'splits.id' is missing"),
        (
            'name = "x"\nclases = []\n[splits.val]\nannotations = "a"\n[splits.id]\nannotations = "b"',
            "did you mean 'classes'?",
        ),
        ('name = "x"\n[splits.val]\nannotations = "a"\n[splits.id]\nannotations = "b"', "There is no file"),
    ],
)
def test_a_bad_use_case_file(text, message, tmp_path) -> None:
    (tmp_path / "case.toml").write_text(text)
    (tmp_path / "d.json").write_text("[]")
    args = [
        "--use-case",
        tmp_path / "case.toml",
        "--detector",
        "d",
        "--split",
        "id",
        "--detections",
        tmp_path / "d.json",
    ]
    run = saod_ray("import", tmp_path / "store", *args)
    assert run.returncode == 1 and message in run.stderr and run.stderr.count("\n") == 1, run.stderr
    assert not (tmp_path / "store").exists()


def test_the_table_and_the_files(copy) -> None:
    run = saod_ray("score", copy, env={"COLUMNS": "80"})
    assert run.returncode == 0
    assert max(len(line.rstrip()) for line in run.stdout.splitlines()) <= 80
    titles = run.stdout.splitlines()[2].split()
    assert titles == ["detector", "DAQ↑", "BA↑", "IDQ↑", "LaECE↓", "LRP↓", "IDQ_T↑", "LaECE_T↓", "LRP_T↓", "AP↑"]
    assert run.stdout.splitlines()[4].split()[:3] == ["toy", "43.95", "83.81"]
    value = json.loads((copy / "results.json").read_text())
    assert value["detectors"]["toy"]["daq"] == pytest.approx(0.43951682785922774, abs=1e-9)
    assert set(value) == {"format", "use_case", "conventions", "settings", "provenance", "detectors", "digest"}
    assert "NaN" not in (copy / "results.json").read_text()
    fitted = SelfAware.load(copy / "selfaware" / "toy.json")
    assert fitted.image_threshold == value["detectors"]["toy"]["image_threshold"]
    names = [category["name"] for category in golden_categories()]  # by label: class10 is the last, not the second
    thresholds = [value["detectors"]["toy"]["detection_thresholds"][name] for name in names]
    got = [None if threshold != threshold else threshold for threshold in fitted.detection_thresholds.tolist()]
    assert got == thresholds and thresholds[-1] is None
    file = json.loads((copy / "selfaware" / "toy.json").read_text())
    assert [c.slope for c in fitted.calibrators] == [file["calibrators"][name]["slope"] for name in names]


def test_names_are_shown_as_text(copy) -> None:
    from rich.console import Console

    from saod_ray.report.table import result_table
    from saod_ray.score.results import BenchmarkResult

    value = json.loads(saod_ray("score", copy, "--json").stdout)
    value["use_case"] = "a[/b] [red]x"
    value["detectors"] = {"[bold]d": value["detectors"]["toy"]}
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(result_table(BenchmarkResult.from_json(value)))
    text = console.export_text()
    assert "a[/b] [red]x, official" in text and "[bold]d" in text


def golden_categories() -> list[dict[str, object]]:
    import gzip

    from conftest import GOLDEN

    with gzip.open(GOLDEN / "val.json.gz") as file:
        return sorted(json.load(file)["categories"], key=lambda category: category["id"])


def test_scoring_again_writes_nothing(copy) -> None:
    saod_ray("score", copy)
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()}
    assert saod_ray("score", copy).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in copy.rglob("*") if path.is_file()} == before


def test_out_writes_elsewhere(copy, tmp_path) -> None:
    run = saod_ray("score", copy, "--out", tmp_path / "other" / "r.json", "--json")
    assert run.returncode == 0
    assert (tmp_path / "other" / "r.json").read_text() == run.stdout
    assert (tmp_path / "other" / "selfaware" / "toy.json").exists()
    assert not (copy / "results.json").exists() and not (copy / "selfaware").exists()


def test_out_must_be_a_file(copy, tmp_path) -> None:
    import os

    os.mkfifo(tmp_path / "pipe")
    for command in (["score", copy], ["export", copy, "--detector", "toy", "--split", "id"]):
        run = saod_ray(*command, "--out", tmp_path / "pipe")
        assert run.returncode == 1 and "is not a file" in run.stderr
    assert (tmp_path / "pipe").is_fifo()


def test_partial_is_said(copy) -> None:
    shutil.rmtree(copy / "ledger" / "toy" / "id-c1")
    run = saod_ray("score", copy)
    assert run.returncode == 1 and "or score the detections that exist with --partial" in run.stderr
    run = saod_ray("score", copy, "--partial")
    assert run.returncode == 0
    assert "PARTIAL" in run.stdout and "images missing: 240 of id-c1" in run.stderr
    assert json.loads((copy / "results.json").read_text())["partial"] is True
