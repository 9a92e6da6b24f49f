"""Files that name code: a self-aware JSON cannot, and a TOML file can name detector classes alone."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import saod_ray

from saod_ray import SelfAware
from saod_ray.detect import registry
from saod_ray.errors import SaodError
from saod_ray.predict.predictor import PredictorConfig
from saod_ray.store.store import Store

EVIL = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n\nclass Evil:\n    def detect(self, images): ...\n"


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    """A TOML file beside a module that leaves a trace when it is imported."""
    (tmp_path / "evil_module.py").write_text(EVIL)
    (tmp_path / "trap.toml").write_text('[trap]\nbackend = "evil_module:Evil"\n')
    return tmp_path / "trap.toml"


@pytest.fixture
def selfaware(golden_store: Store, tmp_path: Path) -> Path:
    """A self-aware file of `toy`."""
    path = tmp_path / "toy.json"
    SelfAware.fit(golden_store.uri, "toy").save(path)
    return path


def named(path: Path, detector: str, use_case: str = "shapes") -> SelfAware:
    """What `path` holds, for another detector."""
    aware = SelfAware.load(path)
    assert aware.identity is not None
    whose = aware.identity._replace(detector=detector, use_case=use_case, fingerprint="0" * 40, origin="run")
    return SelfAware(**{**vars(aware), "identity": whose})


def test_a_self_aware_file_cannot_name_a_toml_file(trap: Path, selfaware: Path, tmp_path: Path) -> None:
    for name in (str(trap), "trap.toml", f"atss,{trap}"):
        named(selfaware, name).save(tmp_path / "hostile.json")
        for command in ("predict", "serve"):
            image = ["x.png"] if command == "predict" else ["--port", "0"]
            run = saod_ray(command, *image, "--selfaware", tmp_path / "hostile.json", cwd=tmp_path)
            assert run.returncode == 1 and "does not come with saod-ray" in run.stderr, run.stderr
        with pytest.raises(SaodError, match="--detector FILE"):
            SelfAware.load(tmp_path / "hostile.json").predict([])
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["all", "", "atss,f-rcnn", "../atss", "no such"])
def test_only_the_very_name_of_a_detector_counts(selfaware: Path, name: str) -> None:
    with pytest.raises(SaodError, match="does not come with saod-ray"):
        PredictorConfig.from_self_aware(named(selfaware, name))


def test_another_fingerprint_is_refused_before_a_class_of_ones_own_is_imported(trap: Path, selfaware: Path) -> None:
    with pytest.raises(SaodError, match="is for 'trap' with fingerprint 0000"):
        PredictorConfig.from_self_aware(named(selfaware, "trap"), str(trap))
    assert not trap.with_name("ran").exists() and "evil_module" not in sys.modules


def test_a_fingerprint_is_the_same_whether_the_class_was_imported_or_not(tmp_path: Path) -> None:
    (tmp_path / "inner_module.py").write_text("class Kind:\n    def detect(self, images): ...\n")
    (tmp_path / "outer_module.py").write_text("from inner_module import Kind as Kind\n")
    marks = []
    for module in ("inner_module", "outer_module", "inner_module"):  # the second has to be imported to find the class
        (tmp_path / "mine.toml").write_text(f'[mine]\nbackend = "{module}:Kind"\n')
        (entry,) = registry.choose("shapes", str(tmp_path / "mine.toml"))
        marks.append(registry.fingerprint(entry, ("a",), tmp_path))
    assert "inner_module" in sys.modules and marks[0] == marks[2] != marks[1]


@pytest.mark.parametrize(
    "backend", ["os:system", "builtins:eval", "subprocess:Popen", "os.path:join", "json:JSONDecoder"]
)
def test_what_comes_with_python_is_no_backend(backend: str, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(f'[mine]\nbackend = "{backend}"\n')
    with pytest.raises(SaodError, match="is part of Python itself and not a detector"):
        registry.choose("shapes", str(tmp_path / "mine.toml"))


@pytest.mark.parametrize("name", ["system", "Popen", "Callable", "number"])
def test_a_module_of_ones_own_cannot_lend_them(name: str, tmp_path: Path) -> None:
    (tmp_path / f"lender_{name}.py").write_text(
        "from os import system\nfrom subprocess import Popen\nnumber = 3\nclass Callable:\n    def __call__(self): ...\n"
    )
    (tmp_path / "mine.toml").write_text(
        f'[mine]\nbackend = "lender_{name}:{name}"\noptions = {{ args = "touch ran" }}\n'
    )
    (entry,) = registry.choose("shapes", str(tmp_path / "mine.toml"))
    with pytest.raises(SaodError, match=r"has no class|is not a detector"):
        registry.build(entry, ("a",), tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("use_case", ["../../etc", "/etc", "a/b", "..", "a\0b"])
def test_a_hostile_use_case_name_leads_nowhere(selfaware: Path, tmp_path: Path, use_case: str) -> None:
    """Weights are looked up by the use case's name, which a foreign file may set to a path."""
    (tmp_path / "mine.toml").write_text('[mine]\nbackend = "torchvision"\noptions = { model = "x" }\n')
    with pytest.raises(SaodError, match="cannot name a folder or file of weights"):
        PredictorConfig.from_self_aware(named(selfaware, "mine", use_case), str(tmp_path / "mine.toml"))
