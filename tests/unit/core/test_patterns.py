"""Names with ``*``."""

from __future__ import annotations

import pytest

from core.patterns import matches


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
    assert matches(name, patterns) is expected
