"""Paths within a variable's value, as text."""

from __future__ import annotations

from itertools import product
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from core.config.addresses.value_path import Path, flat_index, joined, parse, parse_index, split
from core.config.sources import OpcuaTag

INDEXES = st.lists(st.integers(0, 999_999_999), min_size=1, max_size=3).map(tuple)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters=".[]"), min_size=1, max_size=4)


@st.composite
def paths(draw: st.DrawFn) -> Path:
    """Members, with an element before, between and behind them at most."""
    found: list[str | tuple[int, ...]] = []
    for name in draw(st.lists(NAMES, max_size=3)):
        found += [*draw(st.lists(INDEXES, max_size=1)), name] if found == [] or isinstance(found[-1], str) else [name]
    last = draw(st.lists(INDEXES, max_size=1)) if not found or isinstance(found[-1], str) else []
    return (*found, *last)


def text(path: Path) -> str:
    parts = [f"[{','.join(map(str, step))}]" if isinstance(step, tuple) else f".{step}" for step in path]
    return "".join(parts).removeprefix(".")


@given(paths())
def test_path_is_parsed_as_it_was_written(path: Path) -> None:
    assert parse(text(path)) == path
    element, rest = split(path)
    assert (element, *rest) == path if element else rest == path


@given(paths())
def test_columns_of_a_tag_give_each_path_in_one_way(path: Path) -> None:
    index = path[-1] if path and isinstance(path[-1], tuple) else None
    member = text(path[:-1] if index else path)
    cell = ",".join(map(str, index)) if index else None
    tag = OpcuaTag(name="a", address="ns=2;s=a", member=member, index=cell)
    assert (tag.path, parse(tag.path)) == (joined(member, cell), path)
    if index and member:
        with pytest.raises(ValidationError):
            OpcuaTag(name="a", address="ns=2;s=a", member=tag.path)


@given(st.text(st.sampled_from("ab.[]0,1"), max_size=8))
def test_anything_else_is_refused(written: str) -> None:
    try:
        path = parse(written)
    except ValueError:
        with pytest.raises(ValidationError):
            OpcuaTag(name="a", address="ns=2;s=a", member=written)
        return
    assert text(path) == written


@given(st.lists(st.integers(0, 3), min_size=1, max_size=3).map(tuple))
def test_elements_of_an_array_are_in_the_order_of_the_standard(lengths: tuple[int, ...]) -> None:
    """The last dimension comes first; what is beyond, or of other dimensions, is not there."""
    every = [flat_index(one, lengths) for one in product(*map(range, lengths))]
    assert every == list(range(prod(lengths)))
    assert flat_index(lengths, lengths) is None
    assert flat_index((0,) * (len(lengths) + 1), lengths) is None
    assert parse_index(",".join(map(str, lengths))) == lengths
