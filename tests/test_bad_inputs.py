"""Bad inputs on every command: one sentence that says what, where and what to do next; exit code 1; nothing left behind."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from usecases import import_all, random_use_case

from saod_ray.cli import main
from saod_ray.cli.commands import COMMANDS

# the command line, and a part of its one sentence; {placeholders} are those of `places`
BAD_INPUTS = [
    ("leaderboard", "RESULTS"),
    ("leaderboard {file}", "{file}"),
    ("leaderboard {tmp}/nowhere", "nowhere"),
    ("leaderboard {store} --open", "add --out leaderboard.html"),
    ("leaderboard {store} --out {tmp}", "is not a file: give --out"),
    ("report {file}", "{file}"),
    ("diff {store} {file}", "{file}"),
    ("scroe {store}", "'score'"),
    ("--log-level loud doctor", "--log-level"),
    ("score", "STORE"),
    ("score {store} --tua 0.2", "--tau"),
    ("score {store} --tau", "--tau"),
    ("score {store} --tau one", "'one'"),
    ("score {store} --tau 1", "of at least 0 and below 1"),
    ("score {store} --bins 0", "is not a whole number of at least 1"),
    ("score {store} --bins 2.5", "'2.5'"),
    ("score {store} --calibrator liner", "isotonic"),
    ("score {store} --uncertainty entropi", "did you mean 'entropy'"),
    ("score {store} --uncertainty trace", "needs the column 'variance', which toy lacks"),
    ("score {store} --aggregate top-0", "use min, mean, sum or top-N"),
    ("score {store} --image-threshold often", "use pseudo-ood, tpr-0.95 or a number"),
    ("score {store} --image-threshold tpr-2", "outside 0 to 1"),
    ("score {store} --detection-threshold nan", "use lrp or a number"),
    ("score {store} --daq-weights 1,2", "3 weights"),
    ("score {store} --detectors tyo", "did you mean 'toy'"),
    ("score {store} --metric nonsense", "package.module:function"),
    ("score {store} --out {file}/results.json", "{file} is a file, not a folder"),
    ("score {store} --out {tmp}", "is not a file: give --out"),
    ("score {store} --address 127.0.0.1:1", "(Connection refused): start the cluster"),
    ("score {store} --address nonsense", "HOST:PORT or ray://HOST:PORT"),
    ("score {tmp}/runs/shape", "(did you mean '{store}'?)"),
    ("score {tmp}/runs", "but in that folder: give {store}"),
    ("score {file}", "is a file: give the folder of a store"),
    ("score {store}/results.json", "is a file: give the folder of a store, for instance {store}"),
    ("score {tmp}/empty", "a folder without use-case.json"),
    ("report {tmp}/runs/shape", "(did you mean '{store}'?)"),
    ("report {store} --out {file}/report.html", "{file} is a file, not a folder"),
    ("report {store} --out /proc/report.html", "cannot be written to"),
    ("report {store} --figures {file}", "give --figures the path of a folder"),
    ("experiment {store}", "is a store, not an experiment"),
    ("experiment {store} tau", "The arguments are swapped: run `saod-ray experiment tau {store}`"),
    ("experiment tua {store}", "did you mean 'tau'"),
    ("experiment tau", "'tau' needs a store"),
    ("experiment tau {tmp}/nowhere", "There is no store at"),
    ("experiment all {store} --csv {tmp}/a.csv", "name one experiment"),
    ("experiment tau {store} --csv {file}/a.csv", "{file} is a file, not a folder"),
    ("diff {store} {tmp}/runs/shape", "(did you mean '{store}'?)"),
    ("diff {store} --detectors toy", "--detectors A,B"),
    ("diff {store} --bootstrap -1", "--bootstrap"),
    ("export {store} --detector tyo --split id --out {tmp}/x.json", "did you mean 'toy'"),
    ("export {store} --detector toy --split idd --out {tmp}/x.json", "did you mean 'id'"),
    ("export {store} --detector toy --split id --out {file}/x.json", "{file} is a file, not a folder"),
    ("verify {tmp}/nowhere", "There is no store at"),
    ("verify {store} --detectors tyo", "did you mean 'toy'"),
    ("import {tmp}/new --use-case {case} --detector toy --split id", "--detections"),
    (
        "import {tmp}/new --use-case {case} --detector toy --split id --detections {tmp}/nowhere.json",
        "There is no file {tmp}/nowhere.json",
    ),
    (
        "import {tmp}/new --use-case {case} --detector toy --split id --detections {file}",
        "is not a JSON list of detections",
    ),
    ("import {tmp}/new --use-case {case} --detector a/b --split id --detections {file}", "is not a detector name"),
    ("import {tmp}/new --use-case shape --detector toy --split id --detections {file}", "did you mean 'shapes'"),
    ("run --use-case shape", "did you mean 'shapes'"),
    ("run --use-case {tmp}/broken.toml", "is not valid TOML"),
    ("run --use-case gen --data {tmp}/nowhere", "`saod-ray data status gen --data {tmp}/nowhere`"),
    ("run --detectors atts", "did you mean 'atss'"),
    ("run --store {file}", "give --store the path of a folder"),
    ("run --use-case {case} --detectors all", "give --detectors FILE.toml"),
    ("run --limit 0", "--limit"),
    ("run --max-errors 2", "--max-errors"),
    ("run --actors 4:1", "MIN:MAX"),
    ("run --probe", "add --dry-run"),
    (
        "run --detectors {tmp}/nowhere.toml --use-case {case} --store {tmp}/new",
        "{tmp}/nowhere.toml cannot be read (No such file or directory)",
    ),
    ("data build gem", "did you mean 'gen'"),
    ("data build gen --data {tmp}/nowhere", "`saod-ray data status gen --data {tmp}/nowhere`"),
    ("data build gen --data {tmp}/empty", "and 7 more: `saod-ray data status gen"),
    ("data build gen --seed 3", "leave them out"),
    ("data build shapes --scale 0", "--scale"),
    ("data status {tmp}/nowhere.toml", "There is no use case"),
    ("data preview shapes --out {tmp}/sheet.gif", "neither PNG nor JPEG"),
    ("data preview {case} --split idd --out {tmp}/sheet.png", "did you mean 'id'"),
    ("data preview {case} --out {file}/sheet.png", "{file} is a file, not a folder"),
    ("data preview {case} --out {tmp}/sheet.png --image 3", "--all-corruptions"),
    ("detectors --use-case shape", "did you mean 'shapes'"),
    ("detectors --detectors {tmp}/detectors.toml", "put a line [NAME] above it"),
    ("train", "--detector"),
    ("train --detector atts --use-case av --data {tmp}/empty", "did you mean 'atss'"),
    ("train --detector atss --epochs 0", "--epochs"),
    ("train --detector atss --use-case {case}", "has no `splits.train`"),
    ("predict x.jpg", "--selfaware"),
    ("predict x.jpg --selfaware {tmp}/nowhere.json", "There is no file {tmp}/nowhere.json"),
    ("predict x.jpg --selfaware {file}", "is not a self-aware detector"),
    ("predict x.jpg --selfaware {store}/selfaware/toy.json", "with --detector FILE.toml"),
    ("predict x.jpg --selfaware {store}/selfaware/toy.json --detector f-rcnn", "give --detector FILE.toml"),
    ("predict x.jpg --selfaware {store}/selfaware/toy.json --draw {file}", "{file}"),
    ("serve --selfaware {tmp}/nowhere.json", "There is no file {tmp}/nowhere.json"),
    ("serve --selfaware {store}/selfaware/toy.json --port 99999", "--port"),
    ("serve --selfaware {store}/selfaware/toy.json --max-bytes many", "20MB"),
    ("doctor --jason", "--json"),
    ("doctor here", "here"),
]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, str]:
    """A folder with a use case, a scored store of it, and files of the wrong kind."""
    tmp = tmp_path_factory.mktemp("bad")
    random_use_case(tmp / "case", 3)
    store = tmp / "runs" / "shapes"
    import_all(str(store), tmp / "case", "toy")
    with pytest.raises(SystemExit) as end:
        main(["score", str(store)])
    assert end.value.code == 0
    (tmp / "file").write_text("not a store")
    (tmp / "empty").mkdir()
    (tmp / "broken.toml").write_text("name = ")
    (tmp / "detectors.toml").write_text("x = 3")
    return {
        "tmp": str(tmp),
        "case": str(tmp / "case" / "use-case.toml"),
        "store": str(store),
        "file": str(tmp / "file"),
    }


def snapshot(folder: Path) -> dict[Path, bytes | None]:
    """All files and folders below a folder."""
    return {path: path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


@pytest.mark.parametrize(("command", "fragment"), BAD_INPUTS, ids=[command for command, _ in BAD_INPUTS])
def test_a_bad_input_gets_one_sentence(command, fragment, places, capsys, monkeypatch) -> None:
    monkeypatch.chdir(places["tmp"])
    before = snapshot(Path(places["tmp"]))
    with pytest.raises(SystemExit) as end:
        main([word.format(**places) for word in shlex.split(command)])
    shown = capsys.readouterr()
    assert end.value.code == 1
    assert shown.out == ""
    assert shown.err.startswith("saod-ray: ") and shown.err.count("\n") == 1, shown.err
    assert fragment.format(**places) in shown.err
    assert "Traceback" not in shown.err and "Errno" not in shown.err and ".tmp" not in shown.err
    assert snapshot(Path(places["tmp"])) == before


def test_there_are_at_least_sixty() -> None:
    assert len({command for command, _ in BAD_INPUTS}) >= 60
    assert {command.split()[0] for command, _ in BAD_INPUTS} >= COMMANDS.keys() - {"doctor"}
