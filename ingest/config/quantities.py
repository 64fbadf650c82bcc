"""Quantities with a unit, as they are written in ``plant.toml``: ``"500ms"``, ``"2 GiB"``."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator

_SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}

DURATION_LEGAL = 'a positive duration such as "500ms", "1s", "2m", "1h"'
BYTES_LEGAL = 'a size such as "512 MiB" or "2 GiB"'


def parse_duration(text: Any) -> float:
    """Seconds in ``"500ms"``; raises ValueError with what is legal."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|m|h|d)\s*", text) if isinstance(text, str) else None
    if isinstance(text, float):  # a default, or a value made in Python
        return text
    if match is None or float(match[1]) <= 0:
        raise ValueError(DURATION_LEGAL)
    return float(match[1]) * _SECONDS[match[2]]


def parse_bytes(text: Any) -> int:
    """Bytes in ``"2 GiB"``; raises ValueError with what is legal."""
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    match = re.fullmatch(r"\s*(\d+)\s*(B|KiB|MiB|GiB|TiB)\s*", text) if isinstance(text, str) else None
    if match is None or int(match[1]) <= 0:
        raise ValueError(BYTES_LEGAL)
    return int(match[1]) * _BYTES[match[2]]


Duration: TypeAlias = Annotated[float, BeforeValidator(parse_duration)]
ByteCount: TypeAlias = Annotated[int, BeforeValidator(parse_bytes)]
