from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.data import json_stream
from saod_ray.data.json_stream import JsonFile
from saod_ray.errors import SaodError

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text('ab{}[],"\\\n é', max_size=6)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text("k}{,", max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)
LISTS = st.lists(st.dictionaries(st.text("abc", max_size=3), VALUES, max_size=3), max_size=8)


def elements(path) -> list:
    with JsonFile.from_path(path, "a list") as file:
        return [json.loads(line) for block in file.blocks() for line in block.split(b"\n") if line.strip()]


@settings(max_examples=200)
@given(LISTS, st.sampled_from([None, 2]), st.integers(1, 40))
def test_any_list_in_blocks_of_any_size(tmp_path_factory, value, indent, block) -> None:
    path = tmp_path_factory.mktemp("json") / "list.json"
    path.write_text(json.dumps(value, indent=indent))
    old, json_stream.BLOCK = json_stream.BLOCK, block
    try:
        assert elements(path) == value
    finally:
        json_stream.BLOCK = old


@settings(max_examples=200)
@given(LISTS.filter(bool), st.data())
def test_any_cut_is_noticed(tmp_path_factory, value, data) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text) - 1))
    path = tmp_path_factory.mktemp("json") / "list.json"
    path.write_text(text[:cut])
    with pytest.raises(SaodError, match="ends in the middle"):
        elements(path)


OBJECTS = st.dictionaries(st.sampled_from(["images", "info", 'a"b', "annotations", "é"]), st.one_of(VALUES, LISTS))


def lists(path, wanted) -> dict[str, list]:
    found: dict[str, list] = {}
    with JsonFile.from_path(path, "an object") as file:
        for key, block in file.lists(wanted):
            lines = [json.loads(line) for line in block.split(b"\n") if line.strip()]
            found.setdefault(key, []).extend(lines)
    return found


@settings(max_examples=300)
@given(OBJECTS, LISTS, st.sampled_from([None, 2]), st.integers(1, 40))
def test_lists_of_any_object_in_blocks_of_any_size(tmp_path_factory, value, wanted, indent, block) -> None:
    path = tmp_path_factory.mktemp("json") / "object.json"
    value = {**value, "annotations": wanted}
    path.write_text(json.dumps(value, indent=indent))
    old, json_stream.BLOCK = json_stream.BLOCK, block
    try:
        assert lists(path, ["annotations"]) == {"annotations": wanted}
    finally:
        json_stream.BLOCK = old


@settings(max_examples=200)
@given(OBJECTS.filter(bool), st.data())
def test_any_cut_of_an_object_is_noticed(tmp_path_factory, value, data) -> None:
    text = json.dumps({**value, "images": [{"id": 1}]})
    cut = data.draw(st.integers(0, len(text) - 1))
    path = tmp_path_factory.mktemp("json") / "object.json"
    path.write_text(text[:cut])
    with pytest.raises(SaodError, match=r"ends in the middle|syntax error"):
        lists(path, ["images"])


@pytest.mark.parametrize(
    "text",
    ["[]", '{"images": 3}', '{"images": [1]}', '{"images" []}', "{'images': []}", "{} x", "{,}"],
)
def test_what_is_not_an_object_of_lists_is_refused(text, tmp_path) -> None:
    path = tmp_path / "object.json"
    path.write_text(text)
    with pytest.raises(SaodError, match=r"is not an object: syntax error at byte \d+"):
        lists(path, ["images", "annotations"])
