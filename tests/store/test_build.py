from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import raw
from conftest import saod_ray

from saod_ray.config import UseCase
from saod_ray.errors import SaodError
from saod_ray.store.build import build_manifests, use_case_status
from saod_ray.store.coco_import import import_results
from saod_ray.store.manifests import ManifestCache
from saod_ray.store.store import Store


def quiet(title: str):
    return lambda done, total: None


def build(name: str, root: Path, **options) -> list[str]:
    return build_manifests(UseCase.load(name, str(root)), quiet, **options)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", ["gen", "av"])
def test_build_writes_tables_that_anyone_can_read(name, tmp_path) -> None:
    getattr(raw, name)(tmp_path)
    assert build(name, tmp_path) == ["train is not there: only training needs it."]
    folder = tmp_path / "manifests" / name
    tables = {path.name: pl.read_parquet(path) for path in (folder / "manifest").iterdir()}
    assert set(tables) == {f"{s}.{p}.parquet" for s in ("val", "id", "ood") for p in ("images", "objects")}
    assert all((tmp_path / file).is_file() for file in tables["ood.images.parquet"]["file_name"])
    case = UseCase.load(name, str(tmp_path))
    status = use_case_status(case)
    assert status.built == "yes"
    counts = {each.source: (each.images, each.published) for each in status.sources}
    assert counts["ood/svhn"] == (5, 46470)
    assert counts["id"] == (3, 45391 if name == "gen" else 44831)
    assert [each.is_there for each in status.sources] == [False, True, True, True, True, True]


def test_train_is_built_where_it_is(tmp_path) -> None:
    raw.gen(tmp_path)
    raw.coco(tmp_path, "train", {5: [1], 6: [3, 62]})
    assert build("gen", tmp_path) == []
    train = ManifestCache(UseCase.load("gen", str(tmp_path))).manifest("train")
    assert (train.images.height, train.objects["label"].to_list()) == (2, [0, 1, 3])
    (tmp_path / "coco/train2017/000000000006.jpg").unlink()
    assert "1 of 2 image files of train are missing" in build("gen", tmp_path)[0]


def test_half_a_train_file_does_not_stop_the_benchmark(tmp_path) -> None:
    raw.gen(tmp_path)
    raw.coco(tmp_path, "train", {5: [1]})
    file = tmp_path / "coco/annotations/instances_train2017.json"
    file.write_bytes(file.read_bytes()[:-50])
    for _ in range(2):
        (remark,) = build("gen", tmp_path)
        assert remark.startswith("train cannot be used for training yet: ")
        assert "ends in the middle" in remark
    assert use_case_status(UseCase.load("gen", str(tmp_path))).built == "yes"


def test_progress_ends_at_the_whole(tmp_path) -> None:
    """Objects365's val file is read for id and for ood, and counts twice."""
    raw.gen(tmp_path)
    seen: list[tuple[int, int]] = []
    build_manifests(UseCase.load("gen", str(tmp_path)), lambda title: lambda *at: seen.append(at), checked=False)
    assert seen[-1][0] == seen[-1][1]
    assert all(done <= total for done, total in seen)


def test_a_folder_that_cannot_be_written_to_is_noticed_at_once(tmp_path) -> None:
    raw.gen(tmp_path)
    (tmp_path / "manifests").write_text("a file where a folder should be")
    began: list[str] = []

    def stage(title: str):
        began.append(title)
        return lambda done, total: None

    with pytest.raises(SaodError, match=r"manifests/gen cannot be written to \(Not a directory\)"):
        build_manifests(UseCase.load("gen", str(tmp_path)), stage)
    assert began == []


def test_a_second_build_does_nothing_and_a_changed_file_is_noticed(tmp_path) -> None:
    raw.gen(tmp_path)
    build("gen", tmp_path)
    case = UseCase.load("gen", str(tmp_path))
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "manifests").rglob("*") if path.is_file()}
    build("gen", tmp_path)
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "manifests").rglob("*") if path.is_file()}
    raw.coco(tmp_path, "val", {139: [1]})
    assert use_case_status(case).built == "stale"
    build("gen", tmp_path)
    assert use_case_status(case).built == "yes"
    assert ManifestCache(case).manifest("val").images.height == 1


def test_a_store_takes_what_was_built(tmp_path) -> None:
    raw.gen(tmp_path)
    case = UseCase.load("gen", str(tmp_path))
    found = [{"image_id": 4, "category_id": 62, "bbox": [1, 2, 3, 4], "score": 0.5}]
    file = raw.write(tmp_path / "found.json", found)
    import_results(str(tmp_path / "plain"), case, "d", "ood", file)
    raw.coco(tmp_path, "train", {5: [1]})
    build("gen", tmp_path)
    import_results(str(tmp_path / "built"), case, "d", "ood", file)
    assert files(tmp_path / "plain") == files(tmp_path / "built")
    assert Store.open(str(tmp_path / "built")).manifest("ood").images.row(4, named=True)["subset"] == "objects365"


@pytest.mark.parametrize(
    "name", ["use-case.json", "inputs.json", "manifest/val.images.parquet", "manifest/ood.objects.parquet"]
)
@pytest.mark.parametrize("harm", ["gone", "longer", "empty"])
def test_a_damaged_build_is_built_again(name, harm, tmp_path) -> None:
    raw.gen(tmp_path)
    build("gen", tmp_path)
    folder = tmp_path / "manifests/gen"
    before = files(folder)
    path = folder / name
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes() + b"x" if harm == "longer" else b"")
    case = UseCase.load("gen", str(tmp_path))
    assert use_case_status(case).built == ("no" if name == "inputs.json" else "damaged")
    build("gen", tmp_path)
    assert files(folder) == before


def test_a_flipped_byte_in_a_built_table_is_noticed(tmp_path) -> None:
    raw.gen(tmp_path)
    build("gen", tmp_path)
    path = tmp_path / "manifests/gen/manifest/id.images.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SaodError, match="is damaged or missing: build it again with `saod-ray data build gen --data"):
        Store.open_or_create(str(tmp_path / "store"), UseCase.load("gen", str(tmp_path)))
    assert not (tmp_path / "store/use-case.json").exists()


# bad input ---------------------------------------------------------------------------------------------------------


def test_a_missing_folder(tmp_path) -> None:
    result = saod_ray("data", "build", "av", "--data", tmp_path / "nowhere")
    assert result.returncode == 1
    place = f"{tmp_path}/nowhere"
    assert result.stderr == (
        f"saod-ray: There is no folder {place}: `saod-ray data status av --data {place}` says where to get the data; "
        "or give --data DIR.\n"
    )
    raw.av(tmp_path)
    (tmp_path / "svhn/test/digitStruct.mat").unlink()
    result = saod_ray("data", "build", "av", "--data", tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        f"saod-ray: There is no {tmp_path}/svhn/test/digitStruct.mat: `saod-ray data status av --data {tmp_path}` says "
        "where to get what is missing.\n"
    )
    assert not (tmp_path / "manifests").exists()


def test_images_that_are_not_there_or_no_images(tmp_path) -> None:
    raw.gen(tmp_path)
    (tmp_path / "objects365/val/images/v2/patch1/objets_é_31.jpg").unlink()
    with pytest.raises(SaodError, match=r"1 of 3 image files of id are missing .*objets_é_31.jpg.*--unchecked"):
        build("gen", tmp_path)
    assert not files(tmp_path / "manifests")
    raw.gen(tmp_path)
    (tmp_path / "svhn/test/2.png").write_text("<html>404</html>")
    (tmp_path / "svhn/train/1.png").write_bytes(b"")
    with pytest.raises(
        SaodError, match=r"2 of 12 image files of ood are not images .*svhn/test/2.png, svhn/train/1.png"
    ):
        build("gen", tmp_path)
    assert not files(tmp_path / "manifests")
    build("gen", tmp_path, checked=False)
    with pytest.raises(SaodError, match="are not images"):  # a build that is there is checked all the same
        build("gen", tmp_path)


def test_a_source_of_which_nothing_qualifies(tmp_path) -> None:
    raw.gen(tmp_path)
    raw.objects365(tmp_path, "val", {1: [9], 2: [1, 9], 3: [2]})
    with pytest.raises(SaodError, match=r"No image of .*zhiyuan_objv2_val.json qualifies: check that it is the right"):
        build("gen", tmp_path)
    raw.gen(tmp_path)
    raw.coco(tmp_path, "val", {1: [], 2: []})
    with pytest.raises(SaodError, match="val has no objects, so no threshold can be fitted"):
        build("gen", tmp_path)


def test_status_as_people_and_machines_read_it(tmp_path) -> None:
    raw.gen(tmp_path)
    shown = saod_ray("data", "status", "gen", "--data", tmp_path)
    assert shown.returncode == 0
    for part in ("45,391", "110,428", "missing  train: coco/annotations/instances_train2017.json", "not built yet"):
        assert part in shown.stdout
    assert saod_ray("data", "build", "gen", "--data", tmp_path).returncode == 0
    value = json.loads(saod_ray("data", "status", "gen", "--data", tmp_path, "--json").stdout)
    assert value["built"] == "yes"
    assert {each["source"]: each["images"] for each in value["sources"]} == {
        "train": None,
        "val": 3,
        "id": 3,
        "ood/inaturalist": 2,
        "ood/objects365": 5,
        "ood/svhn": 5,
    }


def test_options_of_shapes_are_for_shapes(tmp_path) -> None:
    result = saod_ray("data", "build", "gen", "--data", tmp_path, "--scale", "2")
    assert result.returncode == 1
    assert "--seed and --scale are for use cases that are drawn, not for 'gen'" in result.stderr


# custom use cases --------------------------------------------------------------------------------------------------

CUSTOM = """
name = "my bench"
root = "."
[splits.val]
annotations = ["coco/annotations/instances_val2017.json", "more.json"]
images = ["coco/val2017", "more"]
[splits.id]
annotations = "coco/annotations/instances_val2017.json"
images = "coco/val2017"
[[splits.ood]]
name = "plain"
images = "plain"
[[splits.ood]]
name = "listed"
annotations = "listed.json"
images = "plain"
"""


def test_a_custom_use_case(tmp_path) -> None:
    raw.gen(tmp_path)
    (tmp_path / "my.toml").write_text(CUSTOM)
    for name in ("b ü.PNG", "a.jpg"):
        raw.write_image(tmp_path / "plain" / name.lower())
    raw.write_image(tmp_path / "more/x.jpg")
    (tmp_path / "plain/notes.txt").write_text("not an image")
    more = {"images": [{"id": 140, "file_name": "x.jpg"}], "categories": raw.COCO_CATEGORIES, "annotations": []}
    raw.write(tmp_path / "more.json", more)
    raw.write(tmp_path / "listed.json", {"images": [{"id": 70, "file_name": "a.jpg"}]})
    case = UseCase.load(tmp_path / "my.toml")
    build_manifests(case, quiet)
    val, ood = ManifestCache(case).manifest("val"), ManifestCache(case).manifest("ood")
    assert val.images["file_name"].to_list()[-1] == "more/x.jpg"
    assert val.images["image_id"].to_list() == val.images["source_id"].to_list() == [139, 285, 632, 140]
    assert ood.images.select("image_id", "file_name").rows() == [
        (0, "plain/a.jpg"),
        (1, "plain/b ü.png"),
        (70, "plain/a.jpg"),
    ]
    raw.write_image(tmp_path / "plain/c.jpg")
    assert use_case_status(case).built == "stale"
    assert (tmp_path / "manifests/my bench/use-case.json").exists()
    raw.write(tmp_path / "more.json", {**more, "images": [{"id": 139, "file_name": "x.jpg"}]})
    with pytest.raises(
        SaodError, match=r"instances_val2017.json and more.json: the image id 139 occurs more than once"
    ):
        build_manifests(case, quiet)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('format = "cocoo"\nannotations = "a"', "'cocoo' is not a format \\(did you mean 'coco'\\?\\)"),
        ('annotations = ["a", "b"]\nimages = ["x", "y", "z"]', "give one of `images`"),
        ("annotations = []", "splits.val.annotations': name at least one file"),
        ('annotations = ""', "splits.val.annotations': name at least one file"),
        ('annotations = "a"\nlimits = [-1]', "splits.val.limits"),
    ],
)
def test_bad_sources_are_named(text, message, tmp_path) -> None:
    path = tmp_path / "case.toml"
    path.write_text(f'name = "x"\n[splits.val]\n{text}\n[splits.id]\nannotations = "a"\n')
    with pytest.raises(SaodError, match=message):
        UseCase.load(path)


def test_links_that_lead_in_circles_do_not_multiply_images(tmp_path) -> None:
    raw.gen(tmp_path)
    (tmp_path / "my.toml").write_text(
        CUSTOM.replace(
            'annotations = ["coco/annotations/instances_val2017.json", "more.json"]\nimages = ["coco/val2017", "more"]',
            'annotations = "coco/annotations/instances_val2017.json"\nimages = "coco/val2017"',
        ).split('[[splits.ood]]\nname = "listed"')[0]
    )
    raw.write_image(tmp_path / "plain/a.jpg")
    (tmp_path / "plain/self").symlink_to(tmp_path / "plain")
    case = UseCase.load(tmp_path / "my.toml")
    build_manifests(case, quiet)
    assert ManifestCache(case).manifest("ood").images["file_name"].to_list() == ["plain/a.jpg"]
    (tmp_path / os.fsdecode(b"plain/\xff.jpg")).write_bytes(b"")
    with pytest.raises(SaodError, match=r"The file name '\\udcff.jpg' below .*plain is not UTF-8: rename it"):
        build_manifests(case, quiet)


@pytest.mark.parametrize(
    ("text", "message"),
    [('name = "x"', "name its `annotations`"), ('name = "x"\nformat = "svhn"\nimages = "y"', "and no format")],
)
def test_an_ood_subset_says_what_it_is(text, message, tmp_path) -> None:
    path = tmp_path / "case.toml"
    path.write_text(
        f'name = "x"\n[splits.val]\nannotations = "a"\n[splits.id]\nannotations = "a"\n[[splits.ood]]\n{text}\n'
    )
    with pytest.raises(SaodError, match=message):
        UseCase.load(path)


# kills -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_killed_build_leaves_all_or_nothing(tmp_path) -> None:
    """After SIGKILL at random moments the manifests are complete or absent, and the next build gives the usual result."""
    raw.gen(tmp_path)
    build("gen", tmp_path)
    folder = tmp_path / "manifests/gen"
    expected = files(folder)
    case = UseCase.load("gen", str(tmp_path))
    command = [sys.executable, "-m", "saod_ray", "data", "build", "gen", "--data", str(tmp_path)]
    start = time.monotonic()
    for name in ("inputs.json",):
        (folder / name).unlink()
    subprocess.run(command, check=True, capture_output=True)
    whole = time.monotonic() - start
    moments = random.Random(7)
    for _ in range(8):
        for path in folder.rglob("*.*"):
            if path.is_file():
                path.unlink()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(moments.uniform(0.6, 1.05) * whole)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if ManifestCache(case).inputs() is not None:
            assert {name: data for name, data in files(folder).items() if not name.startswith(".")} == expected
    subprocess.run(command, check=True, capture_output=True)
    assert files(folder) == expected


def test_a_store_of_shapes_needs_its_scenes(tmp_path) -> None:
    with pytest.raises(SaodError, match=r"'shapes' has no images in .* yet: run `saod-ray data build shapes --data"):
        Store.open_or_create(str(tmp_path / "store"), UseCase.load("shapes", str(tmp_path)))
