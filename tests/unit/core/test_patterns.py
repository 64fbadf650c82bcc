"""Names with ``*``."""

from __future__ import annotations

import pytest

from core.patterns import Patterns, matches, unmatched


@pytest.mark.parametrize(
    ("name", "patterns", "expected"),
    [
        ("unit/flow", ["unit/flow"], True),
        ("unit/flow", ["unit"], False),
        ("unit/flow", ["*"], True),
        ("", ["*"], True),
        ("unit/flow", ["other", "u*/f*w"], True),
        ("unit/flow", [], False),
        ("unit/x1", ["unit/x."], False),
        ("unit/a+b", ["unit/a+*"], True),
        ("unit/[1]", ["unit/[1]*"], True),
        ("unit/flow\n", ["unit/flow"], False),
        ("unit/flow\nrate", ["unit/*rate"], True),
    ],
)
def test_only_the_asterisk_is_special(name: str, patterns: list[str], expected: bool) -> None:
    assert (name in Patterns(patterns)) is expected
    assert any(matches(name, pattern) for pattern in patterns) is expected
    assert (unmatched(patterns, [name]) != list(patterns)) is expected


def test_pattern_that_matches_nothing_is_told() -> None:
    assert unmatched(["*", "u*", "a/x", "b/*", "a*x"], ["a/x", "unit"]) == ["b/*"]
    assert unmatched(["*"], []) == ["*"]


@pytest.mark.timeout(20)
def test_all_names_of_a_large_plant_are_matched_at_once() -> None:
    names = [f"unit{number}/flow" for number in range(20_000)]
    wanted = Patterns([*names[1:], "pump/*"])
    assert [name for name in names if name not in wanted] == names[:1]
    assert unmatched(names, names[1:]) == names[:1]
