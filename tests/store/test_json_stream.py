from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saod_ray.errors import SaodError
from saod_ray.store import json_stream
from saod_ray.store.json_stream import JsonList

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
    return [json.loads(line) for block in JsonList(path).blocks() for line in block.split(b"\n") if line.strip()]


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
