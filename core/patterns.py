"""Names with ``*``, which stands for any text; nothing else in them is special."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from core.errors import OperationError


class Patterns:
    """Names and patterns (None: any name), in which a name is looked up in no more time if there are many names."""

    def __init__(self, patterns: Iterable[str] | None) -> None:
        self._names = frozenset(["*"] if patterns is None else patterns)
        self._expression = re.compile("|".join(_text(one) for one in self._names if "*" in one) or "(?!)", re.DOTALL)

    def __contains__(self, name: str) -> bool:
        return name in self._names or self._expression.fullmatch(name) is not None


def matches(name: str, pattern: str) -> bool:
    """Return whether a name is that of a pattern."""
    return name == pattern or ("*" in pattern and _expression(pattern).fullmatch(name) is not None)


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """The patterns that match none of the names."""
    known = frozenset(names)
    missing = (one for one in patterns if one not in known)
    return [one for one in missing if "*" not in one or not any(matches(name, one) for name in known)]


def no_match(option: str, patterns: Iterable[object], more: str = "") -> OperationError:
    """Error that no channel matches ``patterns``, the value of an option."""
    return OperationError(f"{option}: no channel matches {', '.join(map(str, patterns))} (* matches any text{more})")


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(_text(pattern), re.DOTALL)


def _text(pattern: str) -> str:
    """The pattern as a regular expression."""
    return ".*".join(map(re.escape, pattern.split("*")))
