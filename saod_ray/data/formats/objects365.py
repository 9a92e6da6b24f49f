"""Objects365 v2: Obj45K, and the near-OOD subset (the paper's appendix A.1 and A.3).

The file is COCO JSON with 365 categories. Each of them matches a class of COCO, is ambiguous, or is OOD; the lists
are the paper's, with the data set's own spelling.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from saod_ray.config import OodSource, Part
from saod_ray.data.coco_json import (
    Category,
    Image,
    ImageCategory,
    check_coco,
    check_listed,
    check_unique,
    coco_image_table,
    iter_lists,
    read_coco,
)
from saod_ray.data.formats import FormatReader
from saod_ray.data.manifest import MAX_COORDINATE, Classes, Manifest, clean_boxes, empty_object_table, object_table
from saod_ray.data.source_files import SourceFiles
from saod_ray.errors import SaodError

DESCRIPTION = "Objects365's JSON"
LISTS = ("images", "annotations", "categories")

# COCO's class → the categories that count as it
MATCHES = {
    "person": ("Person",), "bicycle": ("Bicycle",), "car": ("Car", "SUV", "Sports Car", "Formula 1 "),
    "motorcycle": ("Motorcycle",), "airplane": ("Airplane",), "bus": ("Bus",), "train": ("Train",),
    "truck": ("Truck", "Pickup Truck", "Fire Truck", "Ambulance", "Heavy Truck"),
    "boat": ("Boat", "Sailboat", "Ship"), "traffic light": ("Traffic Light",), "fire hydrant": ("Fire Hydrant",),
    "stop sign": ("Stop Sign",), "parking meter": ("Parking meter",), "bench": ("Bench",),
    "bird": ("Wild Bird", "Duck", "Goose", "Parrot", "Chicken"), "cat": ("Cat",), "dog": ("Dog",),
    "horse": ("Horse",), "sheep": ("Sheep",), "cow": ("Cow",), "elephant": ("Elephant",), "bear": ("Bear",),
    "zebra": ("Zebra",), "giraffe": ("Giraffe",), "backpack": ("Backpack",), "umbrella": ("Umbrella",),
    "handbag": ("Handbag/Satchel",), "tie": ("Tie", "Bow Tie"), "suitcase": ("Luggage",), "frisbee": ("Frisbee",),
    "skis": ("Skiboard",), "snowboard": ("Snowboard",),
    "sports ball": ("Baseball", "Soccer", "Basketball", "Billards", "American Football", "Volleyball", "Golf Ball", "Table Tennis ", "Tennis"),
    "kite": ("Kite",), "baseball bat": ("Baseball Bat",), "baseball glove": ("Baseball Glove",),
    "skateboard": ("Skateboard",), "surfboard": ("Surfboard",), "tennis racket": ("Tennis Racket",),
    "bottle": ("Bottle",), "wine glass": ("Wine Glass",), "cup": ("Cup",), "fork": ("Fork",), "knife": ("Knife",),
    "spoon": ("Spoon",), "bowl": ("Bowl/Basin",), "banana": ("Banana",), "apple": ("Apple",),
    "sandwich": ("Sandwich",), "orange": ("Orange/Tangerine",), "broccoli": ("Broccoli",), "carrot": ("Carrot",),
    "hot dog": ("Hot dog",), "pizza": ("Pizza",), "donut": ("Donut",), "cake": ("Cake",),
    "chair": ("Chair", "Wheelchair"), "couch": ("Couch",), "potted plant": ("Potted Plant",), "bed": ("Bed",),
    "dining table": ("Dinning Table",), "toilet": ("Toilet", "Urinal"), "tv": ("Moniter/TV",), "laptop": ("Laptop",),
    "mouse": ("Mouse",), "remote": ("Remote",), "keyboard": ("Keyboard",), "cell phone": ("Cell Phone",),
    "microwave": ("Microwave",), "oven": ("Oven",), "toaster": ("Toaster",), "sink": ("Sink",),
    "refrigerator": ("Refrigerator",), "book": ("Book",), "clock": ("Clock",), "vase": ("Vase",),
    "scissors": ("Scissors",), "teddy bear": ("Stuffed Toy",), "hair drier": ("Hair Dryer",),
    "toothbrush": ("Toothbrush",),
}  # fmt: skip

# neither clearly ID nor clearly OOD: images with one of them are left out (the paper says 25 and lists these 24)
AMBIGUOUS = (
    "Nightstand", "Desk", "Coffee Table", "Side Table", "Watch", "Stool", "Machinery Vehicle", "Tricycle", "Carriage",
    "Rickshaw", "Van", "Traffic Sign", "Speed Limit Sign", "Crosswalk Sign", "Flower", "Telephone", "Tablet", "Flask",
    "Briefcase", "Egg tart", "Pie", "Dessert", "Cookies", "Wallet/Purse",
)  # fmt: skip

OOD = (
    "Sneakers", "Other Shoes", "Hat", "Lamp", "Glasses", "Street Lights", "Cabinet/shelf", "Bracelet",
    "Picture/Frame", "Helmet", "Gloves", "Storage box", "Leather Shoes", "Flag", "Pillow", "Boots", "Microphone",
    "Necklace", "Ring", "Belt", "Speaker", "Trash bin Can", "Slippers", "Barrel/bucket", "Sandals", "Bakset", "Drum",
    "Pen/Pencil", "High Heels", "Guitar", "Carpet", "Bread", "Camera", "Canned", "Traffic cone", "Cymbal",
    "Lifesaver", "Towel", "Candle", "Awning", "Faucet", "Tent", "Mirror", "Power outlet", "Air Conditioner",
    "Hockey Stick", "Paddle", "Ballon", "Tripod", "Hanger", "Blackboard/Whiteboard", "Napkin", "Other Fish",
    "Toiletry", "Tomato", "Lantern", "Fan", "Pumpkin", "Tea pot", "Head Phone", "Scooter", "Stroller", "Crane",
    "Lemon", "Surveillance Camera", "Jug", "Piano", "Gun", "Skating and Skiing shoes", "Gas stove", "Strawberry",
    "Other Balls", "Shovel", "Pepper", "Computer Box", "Toilet Paper", "Cleaning Products", "Chopsticks", "Pigeon",
    "Cutting/chopping Board", "Marker", "Ladder", "Radiator", "Grape", "Potato", "Sausage", "Violin", "Egg",
    "Fire Extinguisher", "Candy", "Converter", "Bathtub", "Golf Club", "Cucumber", "Cigar/Cigarette ", "Paint Brush",
    "Pear", "Hamburger", "Extention Cord", "Tong", "Folder", "earphone", "Mask", "Kettle", "Swing", "Coffee Machine",
    "Slide", "Onion", "Green beans", "Projector", "Washing Machine/Drying Machine", "Printer", "Watermelon",
    "Saxophone", "Tissue", "Ice cream", "Hotair ballon", "Cello", "French Fries", "Scale", "Trophy", "Cabbage",
    "Blender", "Peach", "Rice", "Deer", "Tape", "Cosmetics", "Trumpet", "Pineapple", "Mango", "Key", "Hurdle",
    "Fishing Rod", "Medal", "Flute", "Brush", "Penguin", "Megaphone", "Corn", "Lettuce", "Garlic", "Swan",
    "Helicopter", "Green Onion", "Nuts", "Induction Cooker", "Broom", "Trombone", "Plum", "Goldfish", "Kiwi fruit",
    "Router/modem", "Poker Card", "Shrimp", "Sushi", "Cheese", "Notepaper", "Cherry", "Pliers", "CD", "Pasta",
    "Hammer", "Cue", "Avocado", "Hamimelon", "Mushroon", "Screwdriver", "Soap", "Recorder", "Eggplant",
    "Board Eraser", "Coconut", "Tape Measur/ Ruler", "Pig", "Showerhead", "Globe", "Chips", "Steak", "Stapler",
    "Campel", "Pomegranate", "Dishwasher", "Crab", "Meat ball", "Rice Cooker", "Tuba", "Calculator", "Papaya",
    "Antelope", "Seal", "Buttefly", "Dumbbell", "Donkey", "Lion", "Dolphin", "Electric Drill", "Jellyfish",
    "Treadmill", "Lighter", "Grapefruit", "Game board", "Mop", "Radish", "Baozi", "Target", "French", "Spring Rolls",
    "Monkey", "Rabbit", "Pencil Case", "Yak", "Red Cabbage", "Binoculars", "Asparagus", "Barbell", "Scallop",
    "Noddles", "Comb", "Dumpling", "Oyster", "Green Vegetables", "Cosmetics Brush/Eyeliner Pencil", "Chainsaw",
    "Eraser", "Lobster", "Durian", "Okra", "Lipstick", "Trolley", "Cosmetics Mirror", "Curling", "Hoverboard",
    "Plate", "Pot", "Extractor", "Table Teniis paddle",
)  # fmt: skip


class Objects365Reader(FormatReader):
    """Obj45K as an ID source, and the near-OOD images as an OOD source."""

    def read_annotated(
        self, files: SourceFiles, part: Part, classes: Classes | None, class_names: tuple[str, ...] | None
    ) -> tuple[Classes, Manifest]:
        """Images with an object of a matched class and none of an ambiguous one; other objects are left out.

        SaodError for val, as Objects365 does not determine classes.
        """
        if classes is None:
            raise SaodError(
                "Objects365 has no classes of its own here: use it for `splits.id` or `splits.ood`, not val."
            )
        location = files.folder.display_path(part.annotations)
        file = read_coco(files, part.annotations, DESCRIPTION, LISTS)
        check_coco(file, location, min_size=-MAX_COORDINATE)
        _check_categories(file.categories, {a.category_id for a in file.annotations}, location)
        label_of = _label_of(file.categories, classes)
        ambiguous = _category_ids(file.categories, AMBIGUOUS)
        excluded = {a.image_id for a in file.annotations if a.category_id in ambiguous}
        rows = [a for a in file.annotations if a.category_id in label_of and a.image_id not in excluded]
        selected = {a.image_id for a in rows}
        images = coco_image_table([image for image in file.images if image.id in selected], part)
        objects = object_table(
            [a.image_id for a in rows],
            [label_of[a.category_id] for a in rows],
            clean_boxes([a.bbox for a in rows], location),
            areas=[max(a.bbox[2], 0) * max(a.bbox[3], 0) if a.area is None else a.area for a in rows],
            crowd=[bool(a.iscrowd) for a in rows],
        )
        return classes, Manifest(images, objects)

    def read_unlabelled(self, files: SourceFiles, part: Part, source: OodSource) -> Manifest:
        """Images all of whose objects are OOD, and with `source.unannotated` also images without any object.

        The train file is 5 GB: of its 26 million annotations only image and category ids are kept.
        """
        blocks = [coco_image_table([], part)]
        categories: list[Category] = []
        pairs: list[tuple[np.ndarray, np.ndarray]] = []  # image ids and category ids of a block of annotations
        kinds = {"images": Image, "annotations": ImageCategory, "categories": Category}
        for key, entries in iter_lists(files, part.annotations, DESCRIPTION, kinds, LISTS):
            if key == "images":
                blocks.append(coco_image_table(entries, part))
            elif key == "categories":
                categories += entries
            else:
                image_ids = np.fromiter((entry.image_id for entry in entries), np.int64, len(entries))
                pairs.append((image_ids, np.fromiter((entry.category_id for entry in entries), np.int32, len(entries))))
        images, location = pl.concat(blocks), files.folder.display_path(part.annotations)
        check_unique("image id", images["image_id"], location)
        used = {int(category_id) for _, category_ids in pairs for category_id in np.unique(category_ids)}
        _check_categories(categories, used, location)
        annotated = _distinct_ids([image_ids for image_ids, _ in pairs])
        check_listed(set(annotated.join(images, on="image_id", how="anti")["image_id"]), set(), "images", location)
        ood_ids = sorted(_category_ids(categories, OOD))
        excluded = _distinct_ids([image_ids[~np.isin(category_ids, ood_ids)] for image_ids, category_ids in pairs])
        images = images.join(excluded, on="image_id", how="anti", maintain_order="left")
        if not source.unannotated:
            images = images.join(annotated, on="image_id", how="semi", maintain_order="left")
        return Manifest(images, empty_object_table())


def _distinct_ids(blocks: list[np.ndarray]) -> pl.DataFrame:
    """The distinct image ids. Each block is reduced first: sorting all ids at once would take too much memory."""
    ids = np.concatenate([np.empty(0, np.int64), *(np.unique(block) for block in blocks)])
    return pl.DataFrame({"image_id": ids}).unique()


def _check_categories(categories: list[Category], used: set[int], location: str) -> None:
    """Refuse a file whose categories are not Objects365's, or that uses categories it does not list."""
    matched = (category for categories in MATCHES.values() for category in categories)
    expected = {_normalised(name) for name in (*AMBIGUOUS, *OOD, *matched)}
    check_unique("category id", [category.id for category in categories], location)
    if not any(_normalised(category.name) in expected for category in categories):
        raise SaodError(f"{location} has none of Objects365's categories: check that it is the right file.")
    check_listed(used, {category.id for category in categories}, "categories", location)


def _label_of(categories: list[Category], classes: Classes) -> dict[int, int]:
    """The label of each category id that matches a class."""
    label = {name: k for k, name in enumerate(classes.names)}
    by_name = {
        _normalised(match): label[name] for name, matches in MATCHES.items() if name in label for match in matches
    }
    label_of = {c.id: by_name[_normalised(c.name)] for c in categories if _normalised(c.name) in by_name}
    if not label_of:
        raise SaodError("None of Objects365's categories matches a class of the use case: check its val and id files.")
    return label_of


def _category_ids(categories: list[Category], names: Iterable[str]) -> set[int]:
    normalised = {_normalised(name) for name in names}
    return {category.id for category in categories if _normalised(category.name) in normalised}


def _normalised(name: str) -> str:
    """Without the case, and without the space that ends some names in some releases."""
    return name.strip().casefold()


READER = Objects365Reader()
