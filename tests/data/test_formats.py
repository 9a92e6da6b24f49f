"""A data format is one module with a reader: nothing else lists formats."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from saod_ray import config
from saod_ray.config import FORMATS, OodSource, Part, Source
from saod_ray.data import formats
from saod_ray.data.formats import FormatReader, reader_for
from saod_ray.data.source_files import SourceFiles
from saod_ray.errors import SaodError

# what each format can serve: annotated splits, and OOD
EXPECTED = {
    "bdd100k": (True, False),
    "coco": (True, True),
    "inaturalist": (False, True),
    "nuimages": (True, False),
    "objects365": (True, True),
    "svhn": (False, True),
}


def test_every_module_is_a_format_with_a_reader() -> None:
    assert set(FORMATS) == set(EXPECTED)
    for name, expected in EXPECTED.items():
        reader = import_module(f"{formats.__name__}.{name}").READER
        assert isinstance(reader, FormatReader) and reader.name == name
        kind = type(reader)
        overridden = (
            kind.read_annotated is not FormatReader.read_annotated,
            kind.read_unlabelled is not FormatReader.read_unlabelled,
        )
        assert overridden == expected, name


def test_a_source_gets_the_reader_of_its_format() -> None:
    assert reader_for(Source(annotations="a.json")).name == "coco"
    assert reader_for(Source(format="nuimages", annotations="a")).name == "nuimages"
    assert reader_for(OodSource(name="x", images="folder")).inputs(Part("", "folder")) == ["folder/"]


def test_a_format_says_where_it_fits(tmp_path: Path) -> None:
    files, part = SourceFiles(str(tmp_path)), Part("a", "b")
    with pytest.raises(SaodError, match=r"'svhn' has images without objects: use it for `splits\.ood` only"):
        reader_for(Source(format="svhn", annotations="a")).read_annotated(files, part, None, None)
    source = OodSource(name="x", format="bdd100k", annotations="a")
    with pytest.raises(
        SaodError, match=r"'bdd100k' has objects: use it for `splits\.val` or `splits\.id`, not for ood"
    ):
        reader_for(source).read_unlabelled(files, part, source)


def test_the_names_of_formats_come_from_the_folder() -> None:
    folder = Path(formats.__file__).parent
    assert folder == config._FORMATS
    assert {f"{name}.py" for name in FORMATS} == {path.name for path in folder.glob("[!_]*.py")}
