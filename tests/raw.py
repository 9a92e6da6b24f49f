"""Write miniatures of the public data sets, in their real formats and folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import h5py
import numpy as np

COCO_CATEGORIES = [
    {"id": 62, "name": "chair", "supercategory": "furniture"},
    {"id": 1, "name": "person", "supercategory": "person"},
    {"id": 3, "name": "car", "supercategory": "vehicle"},
    {"id": 18, "name": "dog", "supercategory": "animal"},
]
# unordered, and spelt as in the real file
OBJECTS365_CATEGORIES = {
    11: "Formula 1 ",
    2: "Sneakers",
    1: "Person",
    9: "Desk",
    35: "SUV",
    3: "Chair",
    7: "Wheelchair",
    5: "Hat",
    20: "Cigar/Cigarette ",
    8: "Dog",
    12: "Flask",
}


def write_image(path: Path, width: int = 40, height: int = 30) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(path.name)).integers(0, 256, (height, width, 3), np.uint8)
    path.write_bytes(cv2.imencode(path.suffix, pixels)[1].tobytes())


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def coco(root: Path, part: str, images: dict[int, list[int]]) -> None:
    """COCO. `images` maps an image id to the category ids of its objects."""
    image_entries = [{"id": i, "file_name": f"{i:012d}.jpg", "width": 40, "height": 30, "license": 1} for i in images]
    objects = [(i, category) for i, categories in images.items() for category in categories]
    annotations = [
        {"id": 900 - k, "image_id": i, "category_id": c, "bbox": [k, 2, 10.5, 8], "area": 50.25, "iscrowd": int(k == 1)}
        | {"segmentation": [[1, 2, 3, 4, 5, 6]]}
        for k, (i, c) in enumerate(objects)
    ]
    value = {"info": {"year": 2017}, "licenses": [{"id": 1}], "images": image_entries, "annotations": annotations}
    write(root / f"coco/annotations/instances_{part}2017.json", {**value, "categories": COCO_CATEGORIES})
    for image in image_entries:
        write_image(root / f"coco/{part}2017" / str(image["file_name"]))


def objects365(root: Path, part: str, images: dict[int, list[int]], name: str = "objects365_v2_{:08d}.jpg") -> None:
    """Objects365 v2. `images` maps an image id to the category ids of its objects."""
    files = {i: f"images/v{1 + i % 2}/patch{i % 3}/{name.format(i)}" for i in images}
    image_entries = [
        {"height": 30, "id": i, "license": 5, "width": 40, "file_name": files[i], "url": ""} for i in images
    ]
    objects = [(i, category) for i, categories in images.items() for category in categories]
    annotations = [
        {"id": 10 * k, "iscrowd": int(k == 3), "isfake": 0, "area": 12.5, "isreflected": 0}
        | {"bbox": [k + 0.25, 1.5, 5, 2.5], "image_id": i, "category_id": c}
        for k, (i, c) in enumerate(objects)
    ]
    order = np.random.default_rng(len(annotations)).permutation(len(annotations))
    value = {
        "images": image_entries,
        "annotations": [annotations[k] for k in order],
        "licenses": [{"name": "", "id": 0, "url": ""}],
        "categories": [{"name": n, "id": i} for i, n in OBJECTS365_CATEGORIES.items()],
    }
    write(root / f"objects365/annotations/zhiyuan_objv2_{part}.json", value)
    for file in files.values():
        write_image(root / f"objects365/{part}" / file)


def inaturalist(root: Path, images: dict[int, list[str]]) -> None:
    """iNaturalist 2017. `images` maps an image id to the super-classes of its boxes."""
    kinds = sorted({kind for image_kinds in images.values() for kind in image_kinds}, reverse=True)
    categories = [{"id": k, "name": f"Species {k}", "supercategory": kind} for k, kind in enumerate(kinds)]
    image_entries = [
        {"id": i, "file_name": f"train_val_images/Insecta/Espèce {i}/{i}.jpg", "width": 40, "height": 30, "license": 3}
        for i in images
    ]
    boxes = [(i, kinds.index(kind)) for i, image_kinds in images.items() for kind in image_kinds]
    annotations = [
        {"id": k, "image_id": i, "category_id": c, "bbox": [1, 1, 9, 9], "area": 81.0, "iscrowd": 0}
        for k, (i, c) in enumerate(boxes)
    ]
    value = {"info": {}, "images": image_entries, "licenses": [], "annotations": annotations, "categories": categories}
    write(root / "inaturalist/annotations/val_2017_bboxes.json", value)
    for image in image_entries:
        write_image(root / "inaturalist/images" / str(image["file_name"]))


def svhn(root: Path, part: str, count: int) -> None:
    """SVHN: digitStruct.mat is HDF5 after a MATLAB header, with references to names and boxes."""
    folder = root / "svhn" / part
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / "digitStruct.mat", "w", userblock_size=512) as mat:
        names = mat.create_dataset("digitStruct/name", (count, 1), h5py.ref_dtype)
        boxes = mat.create_dataset("digitStruct/bbox", (count, 1), h5py.ref_dtype)
        for k in range(count):
            codes = np.array([[ord(c)] for c in f"{k + 1}.png"], np.uint16)
            names[k, 0] = mat.create_dataset(f"#refs#/n{k}", data=codes).ref
            box = mat.create_group(f"#refs#/b{k}")
            box.create_dataset("label", data=np.array([[5.0]]))
            boxes[k, 0] = box.ref
            write_image(folder / f"{k + 1}.png", 12, 9)
    with (folder / "digitStruct.mat").open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file".ljust(116) + bytes(8) + b"\0\2IM")


def nuimages(root: Path, part: str, frames: list[tuple[str, bool]], objects: list[dict[str, Any]]) -> None:
    """nuImages: ten tables. `frames` has (token, is key frame); `objects` name their category."""
    folder = root / f"nuimages/v1.0-{part}"
    names = sorted({row["category"] for row in objects})
    tables: dict[str, list[dict[str, Any]]] = {
        "category": [{"token": f"c-{name}", "name": name, "description": "é"} for name in names],
        "sample_data": [
            {
                "token": token,
                "filename": f"samples/CAM_FRONT/{token}.jpg",
                "width": 40,
                "height": 30,
                "fileformat": "jpg",
            }
            | {"is_key_frame": key, "sample_token": "s", "timestamp": 1}
            for token, key in frames
        ],
        "object_ann": [
            {"token": row["token"], "category_token": f"c-{row['category']}", "bbox": row["bbox"]}
            | {"sample_data_token": row["frame"], "attribute_tokens": []}
            | {"mask": {"size": [30, 40], "counts": "UFk="} if row.get("mask", True) else None}
            for row in objects
        ],
    }
    empty_tables = ("attribute", "calibrated_sensor", "ego_pose", "log", "sample", "sensor", "surface_ann")
    for table in (*tables, *empty_tables):
        write(folder / f"{table}.json", tables.get(table, []))
    for token, key in frames:
        if key:
            write_image(root / f"nuimages/samples/CAM_FRONT/{token}.jpg")


def bdd100k(root: Path, part: str, frames: dict[str, list[tuple[str, list[float]]] | None]) -> None:
    """BDD100K, labels of 2020. `frames` maps an image name to (category, corners); None leaves out the key `labels`."""
    value = []
    for number, (name, labels) in enumerate(frames.items()):
        frame: dict[str, Any] = {"name": name, "timestamp": 10000, "attributes": {"weather": "clear"}}
        if labels is not None:
            frame["labels"] = [
                {"id": f"{number:04d}{k:04d}", "category": category, "attributes": {"occluded": False}}
                | {"box2d": dict(zip(("x1", "y1", "x2", "y2"), corners, strict=True))}
                for k, (category, corners) in enumerate(labels)
            ]
        value.append(frame)
        write_image(root / f"bdd100k/images/{part}" / name)
    write(root / f"bdd100k/annotations/det_{part}.json", value)


def ood(root: Path) -> None:
    """The sources of SiNObj110K. `gen` also takes Obj45K from Objects365 val."""
    inaturalist(root, {7: ["Insecta"], 3: ["Aves"], 5: ["Insecta", "Mammalia"], 4: [], 9: ["Reptilia", "Mollusca"]})
    objects365(root, "train", {400: [2], 12: [1, 2], 77: [], 5: [20, 5, 5], 6: [2, 9]})
    objects365(
        root, "val", {31: [1, 2], 4: [1, 9], 25: [2, 5], 8: [], 17: [35, 7, 11, 5], 2: [12], 10: [8]}, "objets_é_{}.jpg"
    )
    svhn(root, "train", 3)
    svhn(root, "test", 2)


def gen(root: Path) -> None:
    """All sources of gen except train."""
    coco(root, "val", {139: [1, 62], 285: [], 632: [18]})
    ood(root)


def av(root: Path) -> None:
    """All sources of av except train."""
    car, box = "vehicle.car", [1.0, 2.0, 11.0, 8.0]
    objects = [
        {"token": "o2", "frame": "b", "category": car, "bbox": box},
        {"token": "o1", "frame": "b", "category": "human.pedestrian.child", "bbox": [0, 0, 4, 9]},
        {"token": "o3", "frame": "b", "category": "vehicle.bicycle", "bbox": box, "mask": False},
        {"token": "o4", "frame": "a", "category": "vehicle.emergency.police", "bbox": box},
        {"token": "o5", "frame": "sweep", "category": car, "bbox": box},
        {"token": "o6", "frame": "c", "category": "vehicle.bicycle", "bbox": [3, 3, 5, 6]},
    ]
    nuimages(root, "val", [("b", True), ("sweep", False), ("a", True), ("c", True)], objects)
    ridden = [("rider", [10.0, 0, 20, 20]), ("bicycle", [10.0, 10, 22, 30]), ("car", [100.0, 100, 150, 130])]
    bdd100k(
        root,
        "train",
        {
            "t0.jpg": ridden,
            "nothing.jpg": None,
            "empty.jpg": [],
            "signs.jpg": [("traffic sign", [0.0, 0, 9, 9])],
            "walks.jpg": [("rider", [0.0, 0, 9, 9]), ("car", [50.0, 50, 60, 60])],
            "apart.jpg": [("rider", [0.0, 0, 9, 9]), ("motorcycle", [50.0, 50, 60, 60])],
        },
    )
    passenger = [("rider", [0.0, 0, 10, 20]), ("rider", [2.0, 0, 12, 20]), ("motorcycle", [0.0, 10, 12, 22])]
    bdd100k(root, "val", {"v0.jpg": [("other person", [1.0, 1, 5, 9])], "v1.jpg": passenger})
    ood(root)
