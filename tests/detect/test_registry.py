from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import saod_ray
from safetensors.torch import load_file, save_file

from saod_ray.config import DetectorSpec
from saod_ray.detect import configs, registry
from saod_ray.detect.adapter import MmdetDetector
from saod_ray.errors import SaodError

torch.set_num_threads(1)
CLASSES = ("circle", "square", "star")
IMAGE = np.random.default_rng(0).integers(0, 256, (64, 80, 3), dtype=np.uint8)
SIX = ["f-rcnn", "rs-rcnn", "atss", "d-detr", "nll-rcnn", "es-rcnn"]


def only(text: str, folder: Path, use_case: str = "shapes") -> registry.Entry:
    """The one detector of a user's TOML file."""
    (folder / "mine.toml").write_text(text)
    (entry,) = registry.choose(use_case, str(folder / "mine.toml"))
    return entry


def random_weights(name: str, path: Path, classes: int = len(CLASSES)) -> Path:
    torch.manual_seed(1)
    spec = DetectorSpec(name=name, classes=CLASSES, fingerprint="")
    model = MmdetDetector(spec, configs.build_config(name, classes), None).model
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, path)
    return path


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A weights folder in which two detectors of shapes are; tests must not change it."""
    folder = tmp_path_factory.mktemp("weights")
    for name in ("f-rcnn", "atss"):
        random_weights(f"small/{name}", folder / f"shapes/{name}.safetensors")
    return folder


def test_all_leaves_the_variants_out() -> None:
    assert [each.name for each in registry.choose("gen")] == SIX
    assert [each.name for each in registry.choose("shapes")] == SIX
    assert [each.name for each in registry.choose("av")] == ["f-rcnn", "atss"]
    assert [each.name for each in registry.choose("gen", "f-rcnn-large-dcn, atss,atss")] == ["f-rcnn-large-dcn", "atss"]
    variants = {case: sum(each.variant for each in registry.all_entries(case)) for case in registry.use_cases()}
    assert variants == {"gen": 4, "av": 0, "shapes": 3}


def test_every_name_has_a_config_and_every_config_a_name() -> None:
    used = {entry.config for case in registry.use_cases() for entry in registry.all_entries(case)}
    assert used == set(configs.NAMES)


@pytest.mark.parametrize(
    ("use_case", "asked", "answer"),
    [
        ("gen", "f-rccn", r"no detector 'f-rccn' of 'gen' \(did you mean 'f-rcnn'\?\): use all, f-rcnn, .*TOML file"),
        ("av", "d-detr", r"no detector 'd-detr' of 'av': use all, f-rcnn, atss, or"),
        ("farm", "all", r"No detectors come with the use case 'farm': give --detectors FILE\.toml"),
        ("gen", " ,", "names no detector"),
        ("gen", "none.toml", r"none\.toml cannot be read \(No such file"),
    ],
)
def test_names_that_mean_nothing(use_case, asked, answer) -> None:
    with pytest.raises(SaodError, match=answer):
        registry.choose(use_case, asked)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("[mine", "is not TOML"),
        ('config = "paper/atss"', r"the key 'config' belongs to no detector: put a line \[NAME\] above it"),
        (
            '[mine]\nconfig = "paper/atss"\ncheckpiont = "a.pth"',
            r"mine\.toml: \[mine\]: the key 'checkpiont' is unknown \(did you mean 'checkpoint'\?\)",
        ),
        ('[mine]\nname = "other"\nconfig = "paper/atss"', "the key 'name' is unknown"),
        ('[mine]\ncheckpoint = "a.pth"', "`config` is required by the backend mmdet"),
        ('[mine]\nbackend = "a:B"\nconfig = "c.py"', "no other backend accepts it"),
        ('[mine]\nbackend = "torchvison"', r"is not a backend \(did you mean 'torchvision'\?\)"),
        ('[mine]\nbackend = "a:B"\noptions = {device = "cuda"}', "`options` cannot have device"),
        ('[mine]\nbackend = "a:B"\nclasses = ["a", "a"]', "two of `classes` have the same name"),
        ('[mine]\nbackend = "transformers"', "`checkpoint` must be the folder"),
        ('[mine]\nbackend = "a:B"\nvariant = "perhaps"', "the key 'variant'"),
        ("", "names no detector"),
    ],
)
def test_mistakes_in_a_file(text, answer, tmp_path) -> None:
    with pytest.raises(SaodError, match=answer) as error:
        only(text, tmp_path)
    assert "\n" not in str(error.value)


def test_names_and_files_mix_unless_two_have_one_name(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[mine]\nbackend = "a:B"\n[other]\nbackend = "a:C"\nvariant = true')
    chosen = registry.choose("gen", f"atss,{path},{path}")
    assert [(each.name, each.use_case) for each in chosen] == [("atss", "gen"), ("mine", "gen"), ("other", "gen")]
    assert [each.use_case for each in registry.choose("farm", str(path))] == ["farm", "farm"]
    path.write_text('[atss]\nbackend = "a:B"')
    with pytest.raises(SaodError, match="two that are called 'atss': rename yours"):
        registry.choose("gen", f"atss,{path}")


def test_weights_are_looked_for_in_order(tmp_path) -> None:
    (entry,) = registry.choose("gen", "atss")
    order = ["gen/atss.safetensors", "gen/atss.pth", "atss_r50_fpn_straug_3x_coco/epoch_36.pth"]
    with pytest.raises(SaodError) as error:
        registry.find_weights(entry, tmp_path)
    assert ", ".join(str(tmp_path / place) for place in order) in str(error.value)
    assert "--weights DIR" in str(error.value)
    for place in reversed(order):  # each goes before those that were there already
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
        assert registry.find_weights(entry, tmp_path) == tmp_path / place


def test_weights_of_shapes_lie_in_the_package_and_a_users_go_before_them(tmp_path) -> None:
    (entry,) = registry.choose("shapes", "atss")
    inside = Path(registry.__file__).parent / "weights/shapes/atss.safetensors"
    places = registry.weight_paths(entry, tmp_path)
    assert places == [tmp_path / "shapes/atss.safetensors", tmp_path / "shapes/atss.pth", inside]
    assert not any(
        inside.parents[2] in place.parents for place in registry.weight_paths(registry.all_entries("av")[0], tmp_path)
    )


def test_weights_of_a_users_file_lie_beside_it_or_in_the_weights_folder(tmp_path) -> None:
    here, weights = tmp_path / "here", tmp_path / "weights"
    here.mkdir()
    named = only('[mine]\nconfig = "small/atss"\ncheckpoint = "a.pth"', here)
    assert registry.weight_paths(named, weights) == [here / "a.pth", weights / "a.pth"]
    absolute = only(f'[mine]\nconfig = "small/atss"\ncheckpoint = "{tmp_path}/b.pth"', here)
    assert registry.weight_paths(absolute, weights) == [tmp_path / "b.pth"]
    unnamed = only('[mine]\nconfig = "small/atss"', here, "farm")
    assert registry.weight_paths(unnamed, weights) == [weights / "farm/mine.safetensors", weights / "farm/mine.pth"]
    without = only('[mine]\nbackend = "a:B"', here)
    assert registry.find_weights(without, weights) is None


def test_the_weights_folder(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SAOD_WEIGHTS", raising=False)
    assert registry.weights_folder() == tmp_path / "weights"
    monkeypatch.setenv("SAOD_WEIGHTS", "/elsewhere")
    assert registry.weights_folder() == Path("/elsewhere")
    assert registry.weights_folder("given") == tmp_path / "given"


def test_a_fingerprint_does_not_depend_on_where_things_lie(weights, tmp_path) -> None:
    (ours,) = registry.choose("shapes", "f-rcnn")
    before = registry.fingerprint(ours, CLASSES, weights)
    assert re.fullmatch("[0-9a-f]{40}", before)
    (tmp_path / "w.safetensors").write_bytes((weights / "shapes/f-rcnn.safetensors").read_bytes())
    for checkpoint in ("w.safetensors", tmp_path / "w.safetensors"):
        text = f'[other-name]\nconfig = "small/f-rcnn"\ncheckpoint = "{checkpoint}"\nabout = "the same"'
        assert registry.fingerprint(only(text, tmp_path), CLASSES, tmp_path / "none") == before
    script = (
        "import sys; from pathlib import Path; from saod_ray.detect import registry; "
        f"print(registry.fingerprint(registry.choose('shapes', 'f-rcnn')[0], {CLASSES}, Path(sys.argv[1])))"
    )
    again = subprocess.run([sys.executable, "-c", script, str(weights)], capture_output=True, text=True, check=True)
    assert again.stdout.strip() == before


def test_a_fingerprint_changes_with_each_thing_it_covers(weights, tmp_path) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes((weights / "shapes/f-rcnn.safetensors").read_bytes())
    text = f'[mine]\nconfig = "small/f-rcnn"\ncheckpoint = "{path}"\n'
    seen = [registry.fingerprint(only(text, tmp_path), CLASSES, weights)]
    seen.append(registry.fingerprint(only(text + "options = {half = true}", tmp_path), CLASSES, weights))
    seen.append(registry.fingerprint(only(text, tmp_path), CLASSES[::-1], weights))
    seen.append(registry.fingerprint(only(text.replace("f-rcnn", "rs-rcnn"), tmp_path), CLASSES, weights))
    for source in ("class B: ...\nclass C: ...\n", "class B: ...\nclass C: ...\n# another\n"):
        (tmp_path / "their_classes.py").write_text(source)
        for name in ("B", "C"):
            other = only(f'[mine]\nbackend = "their_classes:{name}"\ncheckpoint = "{path}"', tmp_path)
            seen.append(registry.fingerprint(other, CLASSES, weights))
    tensors = load_file(path)
    last = sorted(tensors)[-1]
    save_file({**tensors, last: torch.nextafter(tensors[last], torch.tensor(9.0))}, path)
    seen.append(registry.fingerprint(only(text, tmp_path), CLASSES, weights))
    assert len(set(seen)) == len(seen)


@pytest.fixture(scope="module")
def config() -> str:
    """An mmdet config as people write them."""
    made = configs.build_config("small/f-rcnn", 3)
    made.model.test_cfg.rcnn.score_thr = 0.0
    return made.pretty_text


def test_a_users_config_counts_as_far_as_detections_depend_on_it(config, weights, tmp_path) -> None:
    text = f'[mine]\nconfig = "c.py"\ncheckpoint = "{weights}/shapes/f-rcnn.safetensors"'
    entry = only(text, tmp_path)
    seen = []
    for more in (
        "",
        "work_dir = '/elsewhere'",
        "model['train_cfg']['rcnn']['pos_weight'] = 2",
        "model['test_cfg']['rcnn']['max_per_img'] = 7",
    ):
        (tmp_path / "c.py").write_text(f"{config}\n{more}")
        seen.append(registry.fingerprint(entry, CLASSES, weights))
    assert seen[0] == seen[1] == seen[2] != seen[3]
    (found,) = registry.build(entry, CLASSES, weights, threads=1).detect([IMAGE])
    assert len(found.score) == 7  # the config that was written last


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("1 / 0", r"c\.py is not a config for mmdet 3 \(ZeroDivisionError"),
        ("model = {}", r"c\.py is not a config for mmdet 3"),
        (None, r"c\.py is not a config for mmdet 3 \(FileNotFoundError"),
    ],
)
def test_what_is_no_config(text, answer, weights, tmp_path) -> None:
    if text is not None:
        (tmp_path / "c.py").write_text(text)
    entry = only(f'[mine]\nconfig = "c.py"\ncheckpoint = "{weights}/shapes/f-rcnn.safetensors"', tmp_path)
    with pytest.raises(SaodError, match=answer):
        registry.build(entry, CLASSES, weights)


def test_a_config_for_other_classes(config, weights, tmp_path) -> None:
    (tmp_path / "c.py").write_text(config)
    entry = only(f'[mine]\nconfig = "c.py"\ncheckpoint = "{weights}/shapes/f-rcnn.safetensors"', tmp_path)
    with pytest.raises(SaodError, match=r"c\.py is for 3 classes, not 2: set `num_classes` of its bbox_head"):
        registry.fingerprint(entry, CLASSES[:2], weights)


def test_a_config_that_we_do_not_have(weights, tmp_path) -> None:
    entry = only(f'[mine]\nconfig = "small/f-rccn"\ncheckpoint = "{weights}/shapes/f-rcnn.safetensors"', tmp_path)
    with pytest.raises(SaodError, match=r"no config 'small/f-rccn' .did you mean 'small/f-rcnn'"):
        registry.build(entry, CLASSES, weights)


def test_a_detector_of_ours_is_built_and_detects(weights) -> None:
    (entry,) = registry.choose("shapes", "atss")
    built = registry.build(entry, CLASSES, weights, batch_size=1, threads=1)
    assert built.spec == registry.describe(entry, CLASSES, weights)
    direct = MmdetDetector(
        built.spec, configs.build_config("small/atss", 3), weights / "shapes/atss.safetensors", batch_size=1
    )
    (found,), (expected,) = built.detect([IMAGE]), direct.detect([IMAGE])
    np.testing.assert_array_equal(found.box, expected.box)
    np.testing.assert_array_equal(found.score, expected.score)


def test_checkpoints_that_will_not_do(weights, tmp_path) -> None:
    (entry,) = registry.choose("shapes", "f-rcnn")
    (tmp_path / "shapes").mkdir()
    path = tmp_path / "shapes/f-rcnn.safetensors"
    path.write_bytes((weights / "shapes/f-rcnn.safetensors").read_bytes()[:-100])
    with pytest.raises(SaodError, match=r"f-rcnn\.safetensors cannot be read .* fetch it again"):
        registry.build(entry, CLASSES, tmp_path)
    path.write_bytes((weights / "shapes/atss.safetensors").read_bytes())
    with pytest.raises(SaodError, match=r"f-rcnn\.safetensors does not fit the model: .* keys are missing"):
        registry.build(entry, CLASSES, tmp_path)


OWN = '''
import numpy as np
from saod_ray.detect.detections import Detections

class Corner:
    """Finds a box in the corner of every image."""
    def __init__(self, spec, checkpoint, device, batch_size, side=4):
        self.spec, self.side = spec, side
        self.given = (checkpoint, device, batch_size)

    def detect(self, images):
        box = np.array([[0, 0, self.side, self.side]], dtype=np.float32)
        return [Detections(np.array([2], dtype=np.int16), box, np.array([0.5], dtype=np.float32)) for _ in images]

class NoDetect:
    def __init__(self, spec, **others):
        self.spec = spec

class NoSpec:
    def __init__(self, **others): ...
    def detect(self, images): ...

number = 3
'''


def test_a_class_of_ones_own_beside_its_file(tmp_path) -> None:
    (tmp_path / "own_corner.py").write_text(OWN)
    (tmp_path / "w.bin").write_bytes(b"weights")
    entry = only(
        '[mine]\nbackend = "own_corner:Corner"\ncheckpoint = "w.bin"\nclasses = ["star", "circle", "square"]\n'
        "options = {side = 9}",
        tmp_path,
    )
    built: Any = registry.build(entry, CLASSES, tmp_path / "none", device="cpu", batch_size=5, threads=1)
    assert built.given == (tmp_path / "w.bin", "cpu", 5)
    (found,) = built.detect([IMAGE])
    assert built.spec.classes[found.label[0]] == "square"
    assert found.box.tolist() == [[0, 0, 9, 9]]


@pytest.mark.parametrize(
    ("backend", "options", "answer"),
    [
        ("own_broken.none:Any", "", r"own_broken\.none cannot be imported \(ModuleNotFoundError.*put it into"),
        ("own_syntax:Any", "", r"own_syntax cannot be imported \(SyntaxError"),
        ("own_wrong:Missing", "", "own_wrong has no class Missing: fix its `backend`"),
        ("own_wrong:number", "", "own_wrong has no class number"),
        ("own_wrong:NoDetect", "", r"is not a detector: give it `detect\(images\)`"),
        ("own_wrong:NoSpec", "", "is not a detector"),
        ("own_wrong:Corner", "options = {size = 3}", "unexpected keyword argument 'size': fix its `options`"),
    ],
)
def test_classes_that_will_not_do(backend, options, answer, tmp_path) -> None:
    (tmp_path / "own_wrong.py").write_text(OWN)
    (tmp_path / "own_syntax.py").write_text("def")
    with pytest.raises(SaodError, match=answer):
        registry.build(only(f'[mine]\nbackend = "{backend}"\n{options}', tmp_path), CLASSES, tmp_path)


def test_classes_must_be_the_use_cases(tmp_path) -> None:
    entry = only('[mine]\nbackend = "a:B"\nclasses = ["circle", "square", "blob"]', tmp_path)
    with pytest.raises(SaodError, match="it lacks star and has also blob: name its `classes`"):
        registry.describe(entry, CLASSES, tmp_path)
    more = only('[mine]\nbackend = "a:B"\nclasses = ["circle", "square", "star", "blob"]', tmp_path)
    with pytest.raises(SaodError, match="it has also blob: name"):
        registry.describe(more, CLASSES, tmp_path)


@pytest.mark.parametrize("columns", ["80", "200"])
def test_the_command_shows_what_there_is(columns, tmp_path) -> None:
    (tmp_path / "gen").mkdir()
    (tmp_path / "gen/atss.pth").touch()
    shown = saod_ray("detectors", "--use-case", "gen", "--weights", tmp_path, env={"COLUMNS": columns})
    assert shown.returncode == 0, shown.stderr
    lines = [line.rstrip() for line in shown.stdout.splitlines()]
    assert "found    atss: gen/atss.pth" in lines
    assert "missing  f-rcnn-short: gen/f-rcnn-short.safetensors, gen/f-rcnn-short.pth" in lines
    assert any(re.fullmatch(r"\s*atss\s+ATSS, ResNet-50\s+yes", line) for line in lines)
    assert any(re.fullmatch(r"\s*f-rcnn-large-dcn\s+ResNet-101.*\(variant\)\s+no", line) for line in lines)
    assert f"next     put weights into {tmp_path}" in lines[-1]


def test_the_command_without_arguments_shows_every_use_case_and_imports_no_torch(tmp_path) -> None:
    script = (
        "import sys; from saod_ray.cli import main\n"
        "try: main(['detectors', '--json'])\n"
        "finally: print(sorted({'torch', 'mmdet', 'mmengine'} & set(sys.modules)), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert shown.stderr.strip() == "[]"
    counts: dict[str, int] = {}
    for each in json.loads(shown.stdout):
        counts[each["use_case"]] = counts.get(each["use_case"], 0) + 1
    assert counts == {"gen": 10, "av": 2, "shapes": 9}


def test_the_command_shows_a_users_file(tmp_path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('[mine]\nbackend = "a:B"\nabout = "[b]old"\n[other]\nconfig = "c.py"\ncheckpoint = "c.pth"')
    shown = saod_ray("detectors", "--detectors", path, "--weights", tmp_path / "w")
    assert shown.returncode == 0, shown.stderr
    assert re.search(r"mine\s+\[b\]old\s+none needed", shown.stdout)
    assert f"missing  other: {tmp_path}/c.pth, c.pth" in shown.stdout
    wrong = saod_ray("detectors", "--use-case", "gne")
    assert wrong.returncode == 1
    assert "did you mean 'gen'?" in wrong.stderr


@pytest.mark.parametrize(
    ("use_case", "word", "message"),
    [
        ("farm", "mine", r"No detectors come with the use case 'farm': give --detector FILE\.toml"),
        ("gen", "f-rccn", r"\(did you mean 'f-rcnn'\?\): use f-rcnn, rs-rcnn, .*or a TOML file"),
        ("gen", ",", "--detector ',' names no detector: give a name or a TOML file"),
    ],
)
def test_a_sentence_names_the_option_of_its_caller(use_case, word, message) -> None:
    with pytest.raises(SaodError, match=message):
        registry.choose(use_case, word, "--detector")
