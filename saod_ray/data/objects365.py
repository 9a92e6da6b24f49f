"""Objects365 v2: Obj45K, and the near-OOD subset (the paper's appendix A.1 and A.3).

The file is COCO JSON with 365 categories. Each of them matches a class of COCO, is ambiguous, or is OOD; the lists
are the paper's, with the data set's own spelling.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import polars as pl

from saod_ray.config import OodSource, Part
from saod_ray.data import coco
from saod_ray.data.coco import Category, Image, Tag
from saod_ray.data.manifest import FARTHEST, Classes, Manifest, object_table, sane
from saod_ray.data.raw import Raw
from saod_ray.errors import SaodError

WHAT = "Objects365's JSON"
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

# neither surely ID nor surely OOD: an image with one of them is left out (the paper says 25 and lists these 24)
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

inputs = coco.inputs


def annotated(raw: Raw, part: Part, classes: Classes | None, names: tuple[str, ...] | None) -> tuple[Classes, Manifest]:
    """Obj45K: images with an object of a matched class and none of an ambiguous one; other objects are left out."""
    if classes is None:
        raise SaodError("Objects365 has no classes of its own here: use it for `splits.id` or `splits.ood`, not val.")
    place = raw.folder.display_path(part.annotations)
    file = coco.read(raw, part.annotations, WHAT, LISTS)
    coco.refuse_bad(file, place, -FARTHEST)
    _refuse_other(file.categories, {a.category_id for a in file.annotations}, place)
    label_of = _labels(file.categories, classes)
    ambiguous = _ids(file.categories, AMBIGUOUS)
    spoilt = {a.image_id for a in file.annotations if a.category_id in ambiguous}
    rows = [a for a in file.annotations if a.category_id in label_of and a.image_id not in spoilt]
    chosen = {a.image_id for a in rows}
    images = coco.images_of([image for image in file.images if image.id in chosen], part)
    objects = object_table(
        [a.image_id for a in rows],
        [label_of[a.category_id] for a in rows],
        sane([a.bbox for a in rows], place),
        [max(a.bbox[2], 0) * max(a.bbox[3], 0) if a.area is None else a.area for a in rows],
        [bool(a.iscrowd) for a in rows],
    )
    return classes, Manifest(images, objects)


def unlabelled(raw: Raw, part: Part, source: OodSource) -> Manifest:
    """The images all of whose objects are OOD; those without any object too where the source says so.

    The train file is 5 GB: of each of its 26 million annotations no more is kept than the image and the category.
    """
    images = [coco.images_of([], part)]
    categories: list[Category] = []
    tags: list[tuple[np.ndarray, np.ndarray]] = []
    kinds = {"images": Image, "annotations": Tag, "categories": Category}
    for key, found in coco.lists(raw, part.annotations, WHAT, kinds, LISTS):
        if key == "images":
            images.append(coco.images_of(found, part))
        elif key == "categories":
            categories += found
        else:
            image_ids = np.fromiter((tag.image_id for tag in found), np.int64, len(found))
            tags.append((image_ids, np.fromiter((tag.category_id for tag in found), np.int32, len(found))))
    table, place = pl.concat(images), raw.folder.display_path(part.annotations)
    coco.refuse_twice("image id", table["image_id"], place)
    _refuse_other(categories, {int(each) for _, category_ids in tags for each in np.unique(category_ids)}, place)
    tagged = _distinct([image_ids for image_ids, _ in tags])
    strangers = tagged.join(table, on="image_id", how="anti")["image_id"]
    coco.refuse_strangers(set(strangers), set(), "images", place)
    far = sorted(_ids(categories, OOD))
    spoilt = _distinct([image_ids[~np.isin(category_ids, far)] for image_ids, category_ids in tags])
    table = table.join(spoilt, on="image_id", how="anti", maintain_order="left")
    if not source.unannotated:
        table = table.join(tagged, on="image_id", how="semi", maintain_order="left")
    return Manifest(table, object_table([], [], []))


def _distinct(blocks: list[np.ndarray]) -> pl.DataFrame:
    """The image ids, block by block because all of them at once would be sorted in memory."""
    found = np.concatenate([np.empty(0, np.int64), *(np.unique(block) for block in blocks)])
    return pl.DataFrame({"image_id": found}).unique()


def _refuse_other(categories: list[Category], used: set[int], place: str) -> None:
    """Refuse a file whose categories are not Objects365's, or whose annotations have others than it lists."""
    known = {_plain(name) for name in (*AMBIGUOUS, *OOD, *(each for names in MATCHES.values() for each in names))}
    coco.refuse_twice("category id", [each.id for each in categories], place)
    if not any(_plain(each.name) in known for each in categories):
        raise SaodError(f"{place} has none of Objects365's categories: check that it is the right file.")
    coco.refuse_strangers(used, {each.id for each in categories}, "categories", place)


def _labels(categories: list[Category], classes: Classes) -> dict[int, int]:
    """Category id → label."""
    label = {name: k for k, name in enumerate(classes.names)}
    wanted = {_plain(match): label[name] for name, matches in MATCHES.items() if name in label for match in matches}
    found = {each.id: wanted[_plain(each.name)] for each in categories if _plain(each.name) in wanted}
    if not found:
        raise SaodError("None of Objects365's categories matches a class of the use case: check its val and id files.")
    return found


def _ids(categories: list[Category], names: Iterable[str]) -> set[int]:
    wanted = {_plain(name) for name in names}
    return {each.id for each in categories if _plain(each.name) in wanted}


def _plain(name: str) -> str:
    """Some names end in a space in some releases."""
    return name.strip().casefold()
