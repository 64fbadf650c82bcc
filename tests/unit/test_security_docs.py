"""docs/security.md answers every requirement of IEC 62443-3-3, and names tests that exist."""

from __future__ import annotations

import re

from core.paths import CHECKOUT

TEXT = (CHECKOUT / "docs" / "security.md").read_text()
# System requirements of each foundational requirement (IEC 62443-3-3:2013, clauses 5 to 11)
NUMBERS = {1: 13, 2: 12, 3: 9, 4: 3, 5: 4, 6: 2, 7: 8}
ROWS = re.findall(r"^\| (\d)\.(\d+) \| [^|]+ \| (\w+) \|(.*)\|$", TEXT, re.MULTILINE)


def test_every_requirement_is_answered_once_and_in_order() -> None:
    assert [(int(part), int(number)) for part, number, *_ in ROWS] == [
        (part, number) for part, count in NUMBERS.items() for number in range(1, count + 1)
    ]
    assert {state for _, _, state, _ in ROWS} == {"met", "option", "plant", "no"}


def test_the_tests_that_it_names_exist() -> None:
    named = {path for *_, how in ROWS for path in re.findall(r"`((?:tests/|test_)[\w/.]+)`", how)}
    assert len(named) > 30
    files = list((CHECKOUT / "tests").rglob("*"))
    known = {str(path.relative_to(CHECKOUT)) for path in files} | {path.name for path in files}
    assert not named - known
