"""Durations with units, such as ``"500ms"``. Commands parse them without the library that parses configurations."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from core.errors import OperationError

SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
DURATIONS = (0.001, 366 * 86400.0)  # s
DURATION_LEGAL = 'a duration from "1ms" to "366d", such as "500ms", "1s", "2m", "1h"'


def seconds_of(text: Any, limits: tuple[float, float] = DURATIONS, legal: str = DURATION_LEGAL) -> float:
    """Seconds of a text; raises ValueError with what is legal."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|m|h|d)\s*", text) if isinstance(text, str) else None
    seconds = float(match[1]) * SECONDS[match[2]] if match is not None else 0.0
    if not limits[0] <= seconds <= limits[1]:
        raise ValueError(legal)
    return seconds


def parse_duration(option: str, text: str) -> timedelta:
    """The duration that ``text`` means as the value of ``option``. Raises OperationError."""
    try:
        return timedelta(seconds=seconds_of(text))
    except ValueError:
        raise OperationError(f"{option}: found {text!r}; legal: {DURATION_LEGAL}") from None
