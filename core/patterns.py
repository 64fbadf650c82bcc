"""Names with ``*``, which stands for any text; nothing else in them is special."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from core.errors import OperationError


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a name is one of the patterns."""
    return any(_expression(pattern).fullmatch(name) for pattern in patterns)


def no_match(option: str, patterns: Iterable[object], more: str = "") -> OperationError:
    """Error that no channel matches ``patterns``, the value of an option."""
    return OperationError(f"{option}: no channel matches {', '.join(map(str, patterns))} (* matches any text{more})")


@cache
def _expression(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
