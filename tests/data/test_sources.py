from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import raw
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.config import UseCase
from saod_ray.data import sources
from saod_ray.data.formats import objects365
from saod_ray.data.formats.bdd100k import MIN_RIDER_IOU, Box, Label, merge_riders
from saod_ray.errors import SaodError


def built(name: str, root: Path) -> sources.Sources:
    return sources.read(UseCase.load(name, str(root)))


def objects(table) -> list[tuple]:
    return table.select("image_id", "label", "x", "y", "w", "h").rows()


def test_gen(tmp_path) -> None:
    raw.gen(tmp_path)
    found = built("gen", tmp_path)
    assert found.classes.names == ("person", "car", "dog", "chair")
    assert found.classes.category_ids == (1, 3, 18, 62)
    val = found.manifests["val"]
    assert val.images["image_id"].to_list() == [139, 285, 632]
    assert val.images["file_name"].to_list()[0] == "coco/val2017/000000000139.jpg"
    assert objects(val.objects) == [(139, 0, 0, 2, 10.5, 8), (139, 3, 1, 2, 10.5, 8), (632, 2, 2, 2, 10.5, 8)]
    assert val.objects["object_id"].to_list() == [900, 899, 898]
    assert val.objects["crowd"].to_list() == [False, True, False]
    assert val.objects["area"].to_list() == [50.25] * 3


def test_obj45k_has_matched_and_no_ambiguous_classes(tmp_path) -> None:
    raw.gen(tmp_path)
    found = built("gen", tmp_path).manifests["id"]
    names = [f"objects365/val/images/v2/patch1/objets_é_{i}.jpg" for i in (31, 25)]
    assert found.images["file_name"].to_list() == [
        names[0],
        "objects365/val/images/v2/patch2/objets_é_17.jpg",
        "objects365/val/images/v1/patch1/objets_é_10.jpg",
    ]
    assert found.images["image_id"].to_list() == [0, 1, 2]  # as in the published file
    assert found.objects["object_id"].to_list() == list(range(5))
    by_image = {i: sorted(found.objects.filter(image_id=i)["label"].to_list()) for i in range(3)}
    assert by_image == {0: [0], 1: [1, 1, 3], 2: [2]}  # SUV and Formula 1 are cars, a wheelchair is a chair
    assert found.objects["image_id"].is_sorted()


def test_ood_subsets_have_the_published_numbers(tmp_path) -> None:
    raw.gen(tmp_path)
    images = built("gen", tmp_path).manifests["ood"].images
    assert images["image_id"].to_list() == images["source_id"].to_list() == list(range(12))
    names = [Path(name).name for name in images["file_name"]]
    assert names[:2] == ["7.jpg", "9.jpg"]  # iNaturalist: boxes of the seven super-classes only
    near = ["objects365_v2_00000400.jpg", "objects365_v2_00000077.jpg", "objects365_v2_00000005.jpg"]
    assert names[2:7] == [*near, "objets_é_25.jpg", "objets_é_8.jpg"]
    assert images["file_name"].to_list()[7:] == [f"svhn/test/{k}.png" for k in (1, 2)] + [
        f"svhn/train/{k}.png" for k in (1, 2, 3)
    ]
    assert images["subset"].to_list() == ["inaturalist"] * 2 + ["objects365"] * 5 + ["svhn"] * 5


def test_the_paper_s_text_leaves_unannotated_images_out(tmp_path) -> None:
    raw.gen(tmp_path)
    case = UseCase.load("gen", str(tmp_path))
    near = case.splits.ood[1].model_copy(update={"unannotated": False})
    ood = (case.splits.ood[0], near, case.splits.ood[2])
    text = case.model_copy(update={"splits": case.splits.model_copy(update={"ood": ood})})
    names = [
        Path(name).name for name in sources.read(text).manifests["ood"].images.filter(subset="objects365")["file_name"]
    ]
    assert names == ["objects365_v2_00000400.jpg", "objects365_v2_00000005.jpg", "objets_é_25.jpg"]


def test_av(tmp_path) -> None:
    raw.av(tmp_path)
    found = built("av", tmp_path)
    assert found.classes == type(found.classes)(("pedestrian", "vehicle", "bicycle"), (0, 1, 2))
    val = found.manifests["val"]
    assert val.images["file_name"].to_list() == [f"nuimages/samples/CAM_FRONT/{t}.jpg" for t in "bac"]
    assert val.images["image_id"].to_list() == [0, 1, 2]
    # by token; without a mask, of another class or between key frames it is no object
    assert objects(val.objects) == [(0, 0, 0, 0, 4, 9), (0, 1, 1, 2, 10, 6), (2, 2, 3, 3, 2, 3)]
    assert val.objects["object_id"].to_list() == [0, 1, 2]


def test_nuimages_takes_the_classes_it_is_told(tmp_path) -> None:
    raw.av(tmp_path)
    case = UseCase.load("av", str(tmp_path)).model_copy(update={"classes": ("bicycle", "pedestrian")})
    splits = case.splits.model_copy(update={"id": case.splits.id.model_copy(update=dict(case.splits.val))})
    found = sources.read(case.model_copy(update={"splits": splits}))
    assert (found.classes.names, found.classes.category_ids) == (("bicycle", "pedestrian"), (2, 0))
    for manifest in (found.manifests["val"], found.manifests["id"]):
        assert objects(manifest.objects) == [(0, 1, 0, 0, 4, 9), (2, 0, 3, 3, 2, 3)]
    with pytest.raises(SaodError, match="nuImages has no class car"):
        sources.read(case.model_copy(update={"classes": ("car",)}))


def test_boxes_turned_inside_out_have_no_extent(tmp_path) -> None:
    raw.av(tmp_path)
    objects_ = [{"token": "o", "frame": "b", "category": "vehicle.car", "bbox": [30, 20, 5, 5]}]
    raw.nuimages(tmp_path, "val", [("b", True)], objects_)
    assert objects(built("av", tmp_path).manifests["val"].objects) == [(0, 1, 30, 20, 0, 0)]


def test_names_and_nesting_that_no_file_has(tmp_path) -> None:
    raw.gen(tmp_path)
    file = tmp_path / "coco/annotations/instances_val2017.json"
    deep = "[" * 100_000 + "]" * 100_000
    file.write_text('{"images": [{"id": 1, "extra": ' + deep + "}]}")
    with pytest.raises(SaodError, match=r"is not COCO JSON .*\$\.images\[0\]"):
        built("gen", tmp_path)


def test_bdd45k_merges_riders(tmp_path) -> None:
    raw.av(tmp_path)
    found = built("av", tmp_path).manifests["id"]
    files = ["train/t0.jpg", "val/v0.jpg", "val/v1.jpg"]
    assert found.images["file_name"].to_list() == [f"bdd100k/images/{name}" for name in files]
    assert objects(found.objects) == [
        (0, 2, 10, 0, 12, 30),
        (0, 1, 100, 100, 50, 30),
        (1, 0, 1, 1, 4, 8),
        (2, 1, 0, 0, 12, 22),
    ]
    assert found.images["width"].to_list() == [1280] * 3


def test_limits_take_the_first_images_that_qualify(tmp_path) -> None:
    raw.av(tmp_path)
    cars = {f"{k}.jpg": [("car", [0.0, 0, k + 1, 9])] if k % 2 else [] for k in range(9)}
    raw.bdd100k(tmp_path, "train", cars)
    case = UseCase.load("av", str(tmp_path))
    few = case.model_copy(
        update={"splits": case.splits.model_copy(update={"id": case.splits.id.model_copy(update={"limits": (2, 0)})})}
    )
    found = sources.read(few).manifests["id"]
    assert [Path(name).name for name in found.images["file_name"]] == ["1.jpg", "3.jpg", "v0.jpg", "v1.jpg"]
    assert found.objects["image_id"].to_list() == [0, 1, 2, 3]
    assert case.splits.id.limits == (35000, 0)


def test_the_classes_of_objects365_are_accounted_for() -> None:
    matched = [name for names in objects365.MATCHES.values() for name in names]
    all_of_them = [*matched, *objects365.AMBIGUOUS, *objects365.OOD]
    assert (len(objects365.MATCHES), len(objects365.AMBIGUOUS), len(objects365.OOD)) == (80, 24, 237)
    assert len(set(all_of_them)) == len(all_of_them) == 365


# against slow definitions ------------------------------------------------------------------------------------------

CATEGORY = st.sampled_from(sorted(raw.OBJECTS365_CATEGORIES))


@settings(max_examples=40)
@given(st.dictionaries(st.integers(0, 50), st.lists(CATEGORY, max_size=5), max_size=9), st.booleans())
def test_objects365_as_the_paper_says_it(tmp_path_factory, images, unannotated) -> None:
    root = tmp_path_factory.mktemp("o365")
    raw.gen(root)
    raw.objects365(root, "val", {99: [1], 98: [2], **images})
    chosen_id, chosen_ood = [], []
    for image, categories in {99: [1], 98: [2], **images}.items():
        names = [raw.OBJECTS365_CATEGORIES[c] for c in categories]
        matched = [n for n in names if any(n in each for each in objects365.MATCHES.values())]
        if matched and not any(n in objects365.AMBIGUOUS for n in names):
            chosen_id.append(image)
        if all(n in objects365.OOD for n in names) and (names or unannotated):
            chosen_ood.append(image)
    case = UseCase.load("gen", str(root))
    near = case.splits.ood[1].model_copy(update={"unannotated": unannotated})
    splits = case.splits.model_copy(update={"ood": (near,)})
    found = sources.read(case.model_copy(update={"splits": splits})).manifests

    def ids(table) -> list[int]:
        return [int(Path(name).stem[-8:]) for name in table["file_name"] if "/val/" in name]

    assert ids(found["id"].images) == chosen_id
    assert ids(found["ood"].images) == chosen_ood


def iou(a: list[float], b: list[float]) -> float:
    w = min(a[2], b[2]) - max(a[0], b[0])
    h = min(a[3], b[3]) - max(a[1], b[1])
    both = max(w, 0) * max(h, 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both
    return both / union if union else 0.0


def slowly_merged(labels: list[tuple[str, list[float]]]) -> list[set[tuple[str, tuple[float, ...]]]]:
    """Every outcome of a best assignment, by trying all of them."""
    riders = [box for name, box in labels if name == "rider"]
    others = [(name, box) for name, box in labels if name != "rider"]
    ridden = [k for k, (name, _) in enumerate(others) if name in ("bicycle", "motorcycle")]
    if not riders:
        return [{(n, tuple(b)) for n, b in others}]
    if not ridden:
        return [set()]
    small, large = sorted((range(len(riders)), ridden), key=len)
    pairings = [list(zip(small, p, strict=True)) for p in itertools.permutations(large, len(small))]
    if len(riders) > len(ridden):
        pairings = [[(rider, mount) for mount, rider in pairing] for pairing in pairings]
    totals = [sum(iou(riders[r], others[m][1]) for r, m in pairing) for pairing in pairings]
    outcomes = []
    for pairing, total in zip(pairings, totals, strict=True):
        if total < max(totals) - 1e-12:
            continue
        if any(iou(riders[r], others[m][1]) < MIN_RIDER_IOU for r, m in pairing):
            outcomes.append(set())
            continue
        boxes = {m: riders[r] for r, m in pairing}
        joined = []
        for k, (name, box) in enumerate(others):
            with_rider = boxes.get(k, box)
            low = [min(p) for p in zip(box[:2], with_rider[:2], strict=True)]
            high = [max(p) for p in zip(box[2:], with_rider[2:], strict=True)]
            joined.append((name, (*low, *high)))
        outcomes.append(set(joined))
    return outcomes


SPAN = st.tuples(st.integers(0, 12), st.integers(1, 8)).map(lambda s: (s[0], s[0] + s[1]))
BOX = st.tuples(SPAN, SPAN).map(lambda s: [float(s[0][0]), float(s[1][0]), float(s[0][1]), float(s[1][1])])
LABELS = st.lists(st.tuples(st.sampled_from(["rider", "rider", "bicycle", "motorcycle", "car"]), BOX), max_size=7)


@settings(max_examples=300)
@given(LABELS)
def test_riders_as_the_paper_says_it(labels) -> None:
    found = merge_riders([Label(name, Box(*box)) for name, box in labels])
    assert {(name, tuple(box.tolist())) for name, box in found} in slowly_merged(labels)


def test_a_rider_needs_a_tenth() -> None:
    rider, just = ("rider", [0.0, 0, 10, 10]), ("bicycle", [0.0, 9, 1, 19])
    assert (
        len(
            merge_riders([Label(n, Box(*b)) for n, b in (rider, ("bicycle", [0.0, 0, 10, 1]), ("car", [0.0, 0, 1, 1]))])
        )
        == 2
    )
    assert merge_riders([Label(n, Box(*b)) for n, b in (rider, just, ("car", [0.0, 0, 1, 1]))]) == []


# bad input ---------------------------------------------------------------------------------------------------------


def test_half_a_download_is_named(tmp_path) -> None:
    raw.gen(tmp_path)
    file = tmp_path / "objects365/annotations/zhiyuan_objv2_train.json"
    file.write_bytes(file.read_bytes()[:-300])
    with pytest.raises(
        SaodError, match=r"zhiyuan_objv2_train.json ends in the middle after [\d,]+ bytes: it was cut off"
    ):
        built("gen", tmp_path)


def test_half_a_mat_file_is_named(tmp_path) -> None:
    raw.gen(tmp_path)
    file = tmp_path / "svhn/test/digitStruct.mat"
    file.write_bytes(file.read_bytes()[:700])
    with pytest.raises(SaodError, match=r"svhn/test/digitStruct.mat is not SVHN's digitStruct.mat"):
        built("gen", tmp_path)


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("coco/annotations/instances_val2017.json", {"images": [{"id": "x"}]}, r"\$\.images\[0\]\.id"),
        ("nuimages/v1.0-val/object_ann.json", [{"token": 3}], r"is not a nuImages table \(.*\$\[0\]\.token"),
        ("nuimages/v1.0-val/category.json", [], "names none of nuImages' road users"),
        ("bdd100k/annotations/det_val.json", {"frames": []}, "is not BDD100K's JSON: it must begin with"),
        ("bdd100k/annotations/det_val.json", [{"name": "x", "labels": [{"category": 3}]}], r"\$\[0\]\.labels\[0\]"),
        ("objects365/annotations/zhiyuan_objv2_val.json", {"images": []}, "has no list `annotations`"),
        (
            "objects365/annotations/zhiyuan_objv2_train.json",
            {"images": [], "annotations": []},
            "has no list `categories`",
        ),
        (
            "objects365/annotations/zhiyuan_objv2_train.json",
            {"images": [{"id": 1}], "annotations": [], "categories": [{"id": 1, "name": "chair lift"}]},
            "has none of Objects365's categories",
        ),
        *(
            (
                f"objects365/annotations/zhiyuan_objv2_{part}.json",
                {"images": [{"id": 1}], "annotations": [annotation], "categories": [{"id": 1, "name": "Hat"}]},
                message,
            )
            for part in ("train", "val")
            for annotation, message in (
                ({"id": 1, "image_id": 2, "category_id": 1, "bbox": [0, 0, 1, 1]}, "annotations name unknown images 2"),
                ({"id": 1, "image_id": 1, "category_id": 5, "bbox": [0, 0, 1, 1]}, "name unknown categories 5"),
            )
        ),
        ("inaturalist/annotations/val_2017_bboxes.json", {"images": [], "annotations": []}, "no list `categories`"),
        ("bdd100k/annotations/det_train.json", [], "No image of .*det_train.json qualifies"),
        (
            "bdd100k/annotations/det_val.json",
            [{"name": "x", "labels": [{"category": "car", "box2d": {"x1": -1e308}}]}],
            "x1",
        ),
        ("nuimages/v1.0-val/sample_data.json", [{"token": "b", "filename": "b", "width": 2**40}], r"\$\[0\]\.width"),
        ("nuimages/v1.0-val/sample_data.json", [], "names an image or a category that the other"),
    ],
)
def test_what_is_not_in_its_format_is_named(tmp_path, file, value, message) -> None:
    raw.gen(tmp_path)
    raw.av(tmp_path)
    raw.write(tmp_path / file, value)
    name = "av" if "nuimages" in file or "bdd100k" in file else "gen"
    with pytest.raises(SaodError, match=message):
        built(name, tmp_path)


def test_a_format_in_the_wrong_place_is_refused(tmp_path) -> None:
    raw.gen(tmp_path)
    for split, text, message in (
        ("val", 'format = "svhn"\nannotations = "svhn/test/digitStruct.mat"', "use it for `splits.ood` only"),
        ("val", 'format = "objects365"\nannotations = "objects365/annotations/zhiyuan_objv2_val.json"', "not val"),
        ("ood", 'name = "x"\nformat = "nuimages"\nannotations = "nuimages/v1.0-val"', "not for ood"),
    ):
        coco = '[splits.{}]\nannotations = "coco/annotations/instances_val2017.json"\n'
        splits = {"val": coco.format("val"), "id": coco.format("id"), "ood": ""}
        splits[split] = f"[[splits.{split}]]\n{text}\n" if split == "ood" else f"[splits.{split}]\n{text}\n"
        path = tmp_path / "case.toml"
        path.write_text('name = "x"\n' + "".join(splits.values()))
        with pytest.raises(SaodError, match=message):
            sources.read(UseCase.load(path))


def test_the_iou_of_the_reference_is_one_on_itself() -> None:
    assert iou([0, 0, 2, 2], [0, 0, 2, 2]) == 1
    assert np.isclose(iou([0, 0, 2, 2], [1, 1, 3, 3]), 1 / 7)
