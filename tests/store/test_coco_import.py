from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import numpy as np
import pytest
from conftest import saod_ray, write_json
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.config import UseCase
from saod_ray.errors import SaodError
from saod_ray.store.coco_export import export_results
from saod_ray.store.coco_import import import_results
from saod_ray.store.rows import LISTS
from saod_ray.store.store import Store

TRUTH = {
    "images": [{"id": i, "file_name": f"{i}.jpg"} for i in (30, 10, 20)],
    "annotations": [{"id": 1, "image_id": 10, "category_id": 7, "bbox": [0, 0, 5, 5]}],
    "categories": [{"id": 7, "name": "seven"}, {"id": 3, "name": "three"}],
}
GOOD = {"image_id": 10, "category_id": 7, "bbox": [1.5, 2.25, 10.1, 20.7], "score": 0.75}


@pytest.fixture
def case(tmp_path: Path) -> UseCase:
    write_json(tmp_path / "truth.json", TRUTH)
    (tmp_path / "use-case.toml").write_text(
        'name = "tiny"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
        '[[splits.ood]]\nname = "near"\nannotations = "truth.json"\n[[splits.ood]]\nname = "far"\nannotations = "truth.json"\n'
    )
    return UseCase.load(tmp_path / "use-case.toml")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def by_content(rows: list[dict]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in rows)


# the round trip ---------------------------------------------------------------------------------------------------

NUMBER = st.one_of(
    st.floats(0, 700, width=32).map(float),  # what detectors write
    st.integers(0, 700_000).map(lambda k: k / 1000),  # rounded decimals
    st.floats(0, 700),  # anything
)
DETECTION = st.fixed_dictionaries(
    {
        "image_id": st.sampled_from([10, 20, 30]),
        "category_id": st.sampled_from([3, 7]),
        "bbox": st.tuples(NUMBER, NUMBER, NUMBER, NUMBER).map(list),
        "score": st.one_of(st.floats(0, 1, width=32).map(float), st.floats(0, 1)),
    }
)


@settings(max_examples=60)
@given(st.lists(DETECTION, max_size=12), st.integers(0, 4), st.booleans(), st.integers(1, 3))
def test_import_then_export_gives_the_same_detections(
    tmp_path_factory, rows, uncertainties, variance, shard_images
) -> None:
    folder = tmp_path_factory.mktemp("trip")
    write_json(folder / "truth.json", TRUTH)
    (folder / "use-case.toml").write_text(
        'name = "tiny"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
    )
    rng = np.random.default_rng(len(rows))
    for row in rows:
        if uncertainties:
            row["uncertainty"] = rng.random(uncertainties).tolist()
        if variance:
            row["variance"] = rng.random(4).tolist()
    file = write_json(folder / "in.json", rows)
    case = UseCase.load(folder / "use-case.toml")
    import_results(str(folder / "store"), case, "d", "val", file, shard_images=shard_images)
    for name in ("out.json", "out.json.gz"):
        count = export_results(Store.open(str(folder / "store")), "d", "val", folder / name)
        opened = gzip.open if name.endswith(".gz") else open
        with opened(folder / name) as back:
            again = json.load(back)
        assert count == len(again) == len(rows)
        assert by_content(again) == by_content(rows)
        for image in (10, 20, 30):  # the order within an image stays
            assert [r for r in again if r["image_id"] == image] == [r for r in rows if r["image_id"] == image]


def test_float32_stays_float32_and_more_digits_stay_float64(case, tmp_path) -> None:
    single = {**GOOD, "bbox": [1.5, 2.25, 10.125, 20.75], "score": float(np.float32(0.3))}
    for name, row, box, score, size in (
        ("a", single, np.float32, np.float32, False),
        ("b", {**GOOD, "bbox": [100.1, 0, 10.1, 1]}, np.float64, np.float32, True),  # 100.1 + 10.1 - 100.1 is not 10.1
        ("c", {**single, "score": 0.3}, np.float32, np.float64, False),
    ):
        file = write_json(tmp_path / "d.json", [row])
        page = import_results(str(tmp_path / "store"), case, name, "val", file)
        rows = Store.open(str(tmp_path / "store")).read_shard(name, "val", page.shards[0])
        assert (rows.columns["box"].dtype, rows.columns["score"].dtype) == (box, score)
        assert ("size" in rows.columns) == size


def test_images_without_detections_are_rows_too(case, tmp_path) -> None:
    page = import_results(str(tmp_path / "store"), case, "d", "id", write_json(tmp_path / "d.json", [GOOD, GOOD]))
    (shard,) = page.shards
    assert (shard.images, shard.detections, shard.empty, shard.failed) == (3, 2, 2, 0)
    rows = Store.open(str(tmp_path / "store")).read_shard("d", "id", shard)
    assert rows.image_id.tolist() == [10, 20, 30]
    assert np.diff(rows.offsets).tolist() == [2, 0, 0]
    assert rows.columns["label"].tolist() == [1, 1]  # category 7 is the second by rising id
    page = import_results(str(tmp_path / "store"), case, "d", "val", write_json(tmp_path / "d.json", []))
    assert page.shards[0].empty == 3


def test_the_schema_is_the_contract(case, tmp_path) -> None:
    import pyarrow.parquet as pq

    import_results(str(tmp_path / "store"), case, "d", "id", write_json(tmp_path / "d.json", [GOOD]))
    (file,) = (tmp_path / "store" / "detections" / "d" / "id").iterdir()
    schema = pq.read_schema(file)
    assert schema.names == ["image_id", "status", "error", "corruption", *LISTS]
    assert str(schema.field("label").type) == "list<element: int16 not null>"
    assert str(schema.field("box").type) == "list<element: fixed_size_list<element: double not null>[4] not null>"
    assert str(schema.field("variance").type) == "list<element: fixed_size_list<element: float not null>[4] not null>"
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(file)
    assert frame["box"].explode().drop_nulls().to_list() == [[1.5, 2.25, 11.6, 22.95]]


def test_names_follow_content(case, tmp_path) -> None:
    file = write_json(tmp_path / "d.json", [GOOD])
    first = import_results(str(tmp_path / "one"), case, "d", "id", file)
    again = import_results(str(tmp_path / "two"), case, "d", "id", file)
    assert first == again
    assert snapshot(tmp_path / "one") == snapshot(tmp_path / "two")
    other = import_results(str(tmp_path / "one"), case, "d", "val", file)
    assert other.shards[0].name != first.shards[0].name


def test_ood_subsets_that_share_ids_are_imported_one_by_one(case, tmp_path) -> None:
    uri, file = str(tmp_path / "store"), write_json(tmp_path / "d.json", [GOOD])
    with pytest.raises(SaodError, match=r"share image ids: take them one by one, with --split ood/near, ood/far"):
        import_results(uri, case, "d", "ood", file)
    for subset in ("near", "far"):
        import_results(uri, case, "d", f"ood/{subset}", file)
    store = Store.open(uri)
    shards = store.shards("d", "ood")
    ids = [i for shard in shards for i in store.read_shard("d", "ood", shard).image_id.tolist()]
    assert sorted(ids) == [0, 1, 2, 3, 4, 5]
    import_results(uri, case, "e", "ood/near", file)
    with pytest.raises(SaodError, match="has no detections of 'e' on ood/far: import them first"):
        export_results(store, "e", "ood/far", tmp_path / "far.json")
    export_results(store, "d", "ood/far", tmp_path / "far.json")
    assert json.loads((tmp_path / "far.json").read_text()) == [GOOD]


def test_a_second_import_needs_replace(case, tmp_path) -> None:
    uri = str(tmp_path / "store")
    import_results(uri, case, "d", "id", write_json(tmp_path / "d.json", [GOOD]))
    before = snapshot(tmp_path / "store")
    other = write_json(tmp_path / "e.json", [GOOD, GOOD])
    with pytest.raises(SaodError, match="has detections of 'd' on id already: add --replace"):
        import_results(uri, case, "d", "id", other)
    assert snapshot(tmp_path / "store") == before
    import_results(uri, case, "d", "id", other, replace=True)
    store = Store.open(uri)
    assert [shard.detections for shard in store.shards("d", "id")] == [2]
    assert len(list((tmp_path / "store" / "detections" / "d" / "id").iterdir())) == 1


def test_a_subset_does_not_replace_the_whole(tmp_path) -> None:
    for name, first in (("near", 0), ("far", 50)):
        write_json(tmp_path / f"{name}.json", {"images": [{"id": first + i} for i in range(3)]})
    write_json(tmp_path / "truth.json", TRUTH)
    (tmp_path / "use-case.toml").write_text(
        'name = "two"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
        '[[splits.ood]]\nname = "near"\nannotations = "near.json"\n[[splits.ood]]\nname = "far"\nannotations = "far.json"\n'
    )
    case, uri = UseCase.load(tmp_path / "use-case.toml"), str(tmp_path / "store")
    both = write_json(tmp_path / "both.json", [{**GOOD, "image_id": 1}, {**GOOD, "image_id": 51}])
    near = write_json(tmp_path / "near-found.json", [{**GOOD, "image_id": 2}])
    import_results(uri, case, "d", "ood", both)
    before = snapshot(tmp_path / "store")
    with pytest.raises(SaodError, match="on all of ood: import ood as a whole again with --replace"):
        import_results(uri, case, "d", "ood/near", near, replace=True)
    assert snapshot(tmp_path / "store") == before
    import_results(uri, case, "e", "ood/near", near)
    with pytest.raises(SaodError, match="on ood already: add --replace"):
        import_results(uri, case, "e", "ood", both)
    import_results(uri, case, "e", "ood", both, replace=True)
    assert [page.unit for page in Store.open(uri).pages("e", "ood")] == ["all"]


def test_export_is_by_rising_image_id(tmp_path) -> None:
    ids = list(range(0, 200, 3))
    write_json(tmp_path / "truth.json", {**TRUTH, "images": [{"id": i} for i in ids], "annotations": []})
    (tmp_path / "use-case.toml").write_text(
        'name = "many"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
    )
    rows = [{**GOOD, "image_id": i} for i in reversed(ids)]
    file, case = write_json(tmp_path / "d.json", rows), UseCase.load(tmp_path / "use-case.toml")
    import_results(str(tmp_path / "store"), case, "d", "id", file, shard_images=4)
    export_results(Store.open(str(tmp_path / "store")), "d", "id", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == rows[::-1]


def test_a_failed_first_import_does_not_pin_the_use_case(case, tmp_path) -> None:
    uri = str(tmp_path / "store")
    with pytest.raises(SaodError):
        import_results(uri, case, "d", "id", write_json(tmp_path / "d.json", [{**GOOD, "score": 2}]))
    assert Store.open(uri).detectors() == []
    text = (tmp_path / "use-case.toml").read_text()
    (tmp_path / "use-case.toml").write_text(text.replace("[splits.id]", "[splits.id]\nseverities = [2]"))
    case = UseCase.load(tmp_path / "use-case.toml")
    import_results(uri, case, "d", "id-c2", write_json(tmp_path / "d.json", [GOOD]))
    assert Store.open(uri).description.severities == [2]


def test_chosen_classes_keep_their_order_and_leave_the_others_out(tmp_path) -> None:
    other = {"id": 2, "image_id": 20, "category_id": 5, "bbox": [0, 0, 5, 5]}
    truth = {**TRUTH, "categories": [*TRUTH["categories"], {"id": 5, "name": "five"}]}
    write_json(tmp_path / "truth.json", {**truth, "annotations": [*TRUTH["annotations"], other]})
    (tmp_path / "use-case.toml").write_text(
        'name = "some"\nclasses = ["seven", "three"]\n'
        '[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
    )
    case = UseCase.load(tmp_path / "use-case.toml")
    rows = [GOOD, {**GOOD, "category_id": 3}]
    page = import_results(str(tmp_path / "store"), case, "d", "id", write_json(tmp_path / "d.json", rows))
    store = Store.open(str(tmp_path / "store"))
    assert (store.description.classes, store.description.category_ids) == (["seven", "three"], [7, 3])
    assert store.read_shard("d", "id", page.shards[0]).columns["label"].tolist() == [0, 1]
    assert store.manifest("val").objects["object_id"].to_list() == [1]
    export_results(store, "d", "id", tmp_path / "out.json")
    assert json.loads((tmp_path / "out.json").read_text()) == rows


def test_images_of_a_folder_are_an_ood_subset(tmp_path) -> None:
    write_json(tmp_path / "truth.json", TRUTH)
    (tmp_path / "use-case.toml").write_text(
        'name = "folder"\n[splits.val]\nannotations = "truth.json"\n[splits.id]\nannotations = "truth.json"\n'
        '[[splits.ood]]\nname = "far"\nimages = "far"\n'
    )
    case, uri = UseCase.load(tmp_path / "use-case.toml"), str(tmp_path / "store")
    file = write_json(tmp_path / "d.json", [{**GOOD, "image_id": 1}])
    with pytest.raises(SaodError, match=r"There is no folder .*far: check"):
        import_results(uri, case, "d", "ood", file)
    (tmp_path / "far" / "deep.jpg").mkdir(parents=True)
    with pytest.raises(SaodError, match="There is no image below"):
        import_results(uri, case, "d", "ood", file)
    for name in ("b.png", "deep.jpg/a.JPG", ".hidden.jpg", "notes.txt"):
        (tmp_path / "far" / name).write_bytes(b"")
    import_results(uri, case, "d", "ood", file)
    assert Store.open(uri).manifest("ood").images["file_name"].to_list() == ["far/b.png", "far/deep.jpg/a.JPG"]


def test_shards_stay_small_where_detections_crowd(case, tmp_path, monkeypatch) -> None:
    from saod_ray.store import spill

    monkeypatch.setattr(spill, "SHARD_DETECTIONS", 5)
    rows = [{**GOOD, "image_id": i} for i in (10, 20, 30) for _ in range(4)]
    file = write_json(tmp_path / "d.json", rows[::-1])
    for name, images in (("a", 4096), ("c", 3)):  # three images a spill file: it is cut in half, and again
        page = import_results(str(tmp_path / name), case, "d", "id", file, shard_images=images)
        assert [shard.detections for shard in page.shards] == [4, 4, 4]
        export_results(Store.open(str(tmp_path / name)), "d", "id", tmp_path / "out.json")
        assert json.loads((tmp_path / "out.json").read_text()) == rows
    monkeypatch.setattr(spill, "IMAGE_DETECTIONS", 3)
    with pytest.raises(SaodError, match="image 10 has over 3 detections: keep those with the highest scores"):
        import_results(str(tmp_path / "b"), case, "d", "id", tmp_path / "d.json")


def test_a_byte_order_mark_is_no_mistake(case, tmp_path) -> None:
    (tmp_path / "d.json").write_bytes(b"\xef\xbb\xbf" + json.dumps([GOOD], indent=1).replace("\n", "\r\n").encode())
    assert import_results(str(tmp_path / "store"), case, "d", "id", tmp_path / "d.json").shards[0].detections == 1


def test_a_store_holds_one_use_case(case, tmp_path) -> None:
    uri, file = str(tmp_path / "store"), write_json(tmp_path / "d.json", [GOOD])
    import_results(uri, case, "d", "id", file)
    write_json(tmp_path / "truth.json", {**TRUTH, "annotations": []})
    with pytest.raises(SaodError, match="with other annotations than 'tiny' version 1 has now: use another store"):
        import_results(uri, case, "d", "val", file)
    write_json(tmp_path / "truth.json", TRUTH)
    text = (tmp_path / "use-case.toml").read_text()
    (tmp_path / "use-case.toml").write_text(text.replace("[splits.id]", "[splits.id]\nseverities = [2]"))
    with pytest.raises(SaodError, match="with another use case file than 'tiny' version 1 has now"):
        import_results(uri, UseCase.load(tmp_path / "use-case.toml"), "d", "val", file)


# bad input --------------------------------------------------------------------------------------------------------

BAD = {
    "not JSON": ("hello", "is not a JSON list of detections"),
    "an object": ('{"annotations": []}', "must begin with '\\['"),
    "truncated": (json.dumps([GOOD, GOOD])[:-40], "ends in the middle after"),
    "nothing": ("", "ends in the middle after 0 bytes"),
    "no comma": ("[{} {}]", "syntax error at byte 4"),
    "trailing text": (json.dumps([GOOD]) + "x", "syntax error at byte \\d+"),
    "not an element": ("[1, 2]", "syntax error at byte 1"),
    "broken element": ('[{"image_id": 10,, }]', "detection 0 is not JSON"),
    "unknown image": (json.dumps([GOOD, {**GOOD, "image_id": 11}]), "image id 11 is not in the use case 'tiny'"),
    "unknown category": (json.dumps([{**GOOD, "category_id": 4}]), "category id 4 is not in the use case"),
    "NaN score": (json.dumps([GOOD, {**GOOD, "score": math.nan}]), "detection 1 of image 10 has the score nan"),
    "infinite score": (json.dumps([{**GOOD, "score": math.inf}]), "has the score inf"),
    "huge score": (json.dumps([GOOD]).replace("0.75", "1e999"), "has the score inf"),
    "score above one": (json.dumps([{**GOOD, "score": 1.01}]), "score 1.01, which is not in \\[0, 1\\]"),
    "negative score": (json.dumps([{**GOOD, "score": -0.1}]), "score -0.1"),
    "text score": (json.dumps([{**GOOD, "score": "0.5"}]), "needs a number as score but has '0.5'"),
    "no score": (json.dumps([{k: v for k, v in GOOD.items() if k != "score"}]), "has no score"),
    "null box": (json.dumps([{**GOOD, "bbox": None}]), "needs a bbox of four numbers but has None"),
    "negative width": (json.dumps([{**GOOD, "bbox": [1, 2, -3, 4]}]), "width or height is negative"),
    "three numbers": (
        json.dumps([GOOD, {**GOOD, "bbox": [1, 2, 3]}]),
        "detection 1 .* four numbers but has \\[1, 2, 3\\]",
    ),
    "all three numbers": (json.dumps([{**GOOD, "bbox": [1, 2, 3]}]), "four numbers but has \\[1, 2, 3\\]"),
    "NaN box": (json.dumps([{**GOOD, "bbox": [1, math.nan, 3, 4]}]), "a number that is not finite"),
    "text image": (json.dumps([{**GOOD, "image_id": "10"}]), "needs a whole number as image_id but has '10'"),
    "fractional image": (json.dumps([{**GOOD, "image_id": 10.5}]), "needs a whole number as image_id but has 10.5"),
    "five uncertainties": (json.dumps([{**GOOD, "uncertainty": [1, 2, 3, 4, 5]}]), "5 values of uncertainty"),
    "some uncertainties": (
        json.dumps([{**GOOD, "uncertainty": [1]}, GOOD]),
        "detection 1 of image 10 has 0 values of uncertainty where earlier detections have 1",
    ),
    "negative variance": (
        json.dumps([{**GOOD, "variance": [1, 2, 3, -4]}]),
        "needs four numbers of at least 0 as variance",
    ),
    "huge box": (json.dumps([{**GOOD, "bbox": [1, 1e300, 3, 4]}]), "beyond a billion"),
    "huge whole number": (json.dumps([{**GOOD, "bbox": [1, 10**400, 3, 4]}]), "beyond a billion"),
    "huge whole score": (json.dumps([{**GOOD, "score": 10**400}]), "which is not in"),
    "deep": (json.dumps([{**GOOD, "score": 2}])[:-2] + ', "x": ' + "[" * 9000 + "]" * 9000 + "}]", "detection 0"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_bad_detections_are_named_and_nothing_changes(what, packed, case, tmp_path) -> None:
    uri = str(tmp_path / "store")
    import_results(uri, case, "d", "val", write_json(tmp_path / "good.json", [GOOD]))
    before = snapshot(tmp_path / "store")
    text, message = BAD[what]
    file = tmp_path / ("bad.json.gz" if packed else "bad.json")
    file.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    with pytest.raises(SaodError, match=message) as caught:
        import_results(uri, case, "d", "id", file)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert snapshot(tmp_path / "store") == before


def test_a_truncated_gzip_is_refused(case, tmp_path) -> None:
    file = tmp_path / "cut.json.gz"
    file.write_bytes(gzip.compress(json.dumps([GOOD] * 500).encode())[:-30])
    with pytest.raises(SaodError, match="is not a complete gzip file"):
        import_results(str(tmp_path / "store"), case, "d", "id", file)


BAD_TRUTH = {
    "duplicate image id": ({**TRUTH, "images": [{"id": 10}, {"id": 10}]}, "the image id 10 occurs more than once"),
    "unknown image": ({**TRUTH, "images": [{"id": 20}]}, "annotations name unknown images 10"),
    "unknown category": (
        {**TRUTH, "annotations": [{"id": 1, "image_id": 10, "category_id": 9, "bbox": [0, 0, 1, 1]}]},
        "category id 9 is not one of val's classes",
    ),
    "three numbers": (
        {**TRUTH, "annotations": [{"id": 1, "image_id": 10, "category_id": 7, "bbox": [0, 0, 1]}]},
        r"is not COCO JSON \(.*\$.annotations\[0\].bbox",
    ),
    "negative width": (
        {**TRUTH, "annotations": [{"id": 5, "image_id": 10, "category_id": 7, "bbox": [0, 0, -1, 1]}]},
        "annotation 5 has the box",
    ),
    "no images": ({"annotations": []}, "it has no list `images`"),
    "huge width": ({**TRUTH, "images": [{"id": 10, "width": 2**40}]}, "is not COCO JSON"),
    "huge id": ({**TRUTH, "images": [{"id": 2**63}]}, "is not COCO JSON"),
    "same names": (
        {**TRUTH, "categories": [{"id": 7, "name": "x"}, {"id": 3, "name": "x"}]},
        "two categories are named x",
    ),
}


@pytest.mark.parametrize("what", BAD_TRUTH)
def test_bad_annotations_are_named_and_no_store_is_made(what, case, tmp_path) -> None:
    value, message = BAD_TRUTH[what]
    write_json(tmp_path / "truth.json", value)
    with pytest.raises(SaodError, match=message):
        import_results(str(tmp_path / "store"), case, "d", "id", write_json(tmp_path / "d.json", [GOOD]))
    assert not (tmp_path / "store").exists()


def test_annotations_that_are_not_utf8_or_not_whole(case, tmp_path) -> None:
    file = write_json(tmp_path / "d.json", [GOOD])
    (tmp_path / "truth.json").write_bytes(
        json.dumps(TRUTH).replace("seven", "é").encode("latin-1").replace(b"\\u00e9", b"\xe9")
    )
    with pytest.raises(SaodError, match="is not COCO JSON"):
        import_results(str(tmp_path / "store"), case, "d", "id", file)
    packed = bytearray(gzip.compress(json.dumps(TRUTH).encode()))
    packed[20] ^= 0xFF
    (tmp_path / "truth.json.gz").write_bytes(packed)
    text = (tmp_path / "use-case.toml").read_text().replace("truth.json", "truth.json.gz")
    (tmp_path / "packed.toml").write_text(text)
    with pytest.raises(SaodError, match="is not a complete gzip file"):
        import_results(str(tmp_path / "store"), UseCase.load(tmp_path / "packed.toml"), "d", "id", file)
    with pytest.raises(SaodError, match="foo://x cannot be opened"):
        import_results(str(tmp_path / "store"), UseCase.load(tmp_path / "packed.toml", "foo://x"), "d", "id", file)


def test_bad_names(case, tmp_path) -> None:
    file = write_json(tmp_path / "d.json", [GOOD])
    with pytest.raises(SaodError, match=r"'\.\./d' is not a detector name"):
        import_results(str(tmp_path / "store"), case, "../d", "id", file)
    with pytest.raises(SaodError, match=r"'id-c2' is not a split \(did you mean 'id-c\d'\?\): use val, pseudo-ood"):
        import_results(str(tmp_path / "store"), case, "d", "id-c2", file)
    with pytest.raises(SaodError, match="There is no file"):
        import_results(str(tmp_path / "store"), case, "d", "id", tmp_path / "no.json")


def test_the_command_says_one_sentence_and_fails(case, tmp_path) -> None:
    write_json(tmp_path / "d.json", [{**GOOD, "score": 2}])
    run = saod_ray(
        "import", tmp_path / "store", "--use-case", tmp_path / "use-case.toml",
        "--detector", "d", "--split", "id", "--detections", tmp_path / "d.json",
    )  # fmt: skip
    assert run.returncode == 1
    assert run.stdout == ""
    assert run.stderr.count("\n") == 1 and run.stderr.startswith("saod-ray: ") and "score 2" in run.stderr


def test_a_file_of_another_kind_creates_no_store(golden, tmp_path) -> None:
    (tmp_path / "text").write_text("not JSON")
    case = UseCase.load(golden / "use-case.toml")
    with pytest.raises(SaodError, match="is not a JSON list of detections: it must begin with"):
        import_results(str(tmp_path / "store"), case, "toy", "id", tmp_path / "text")
    assert not (tmp_path / "store").exists()
