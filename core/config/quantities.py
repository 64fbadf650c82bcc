"""Quantities with units as in ``plant.toml``, such as ``"500ms"`` and ``"2 GiB"``; and lists of patterns."""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationInfo

from core.durations import DURATION_LEGAL, DURATIONS, SECONDS, seconds_of
from core.status_words import status_of

_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_DELAYS = (0.001, 1.0)  # s
_AGES = (1.0, 36525 * 86400.0)  # s
_KEEPS = (60.0, 30 * 86400.0)  # s
_RETENTIONS = (86400.0, 36525 * 86400.0)  # s
_SIZES = (1024**2, 1024**5)
_TEXT_SIZES = (1024, 16 * 1024**2)

DELAY_LEGAL = 'a duration from "1ms" to "1s", such as "250ms"'
AGE_LEGAL = 'a duration from "1s" to "36525d", such as "1h", "30d", "3650d"'
KEEP_LEGAL = '"0s", or a duration from "1m" to "30d", such as "24h"'
SPAN_LEGAL = 'a duration from "1d" to "36525d", such as "30d"'
RETENTION_LEGAL = '"forever", or a duration from "1d" to "36525d", such as "90d"'
TEXT_BYTES_LEGAL = 'a size from "1 KiB" to "16 MiB", such as "64 KiB"'
BYTES_LEGAL = 'a size from "1 MiB" to "1024 TiB", such as "512 MiB" or "2 GiB"'
STATUS_PLACE_LEGAL = 'a field or a tag of a line, as in "field.quality" or "tag.quality"'
STATUS_CODES_LEGAL = 'a list of WORD=STATUS, as in ["192=Good", "stale=Uncertain", "fault=0x808B0000"]'
PATTERNS_LEGAL = 'a list of strings of 1 to 255 characters, as in ["pulses", "alarms.*"]'


def parse_duration(text: Any, info: ValidationInfo) -> float:
    """Seconds in ``"500ms"``; raises ValueError with what is legal. Programs give seconds, files must not."""
    return _seconds(text, info, DURATIONS, DURATION_LEGAL)


def parse_delay(text: Any, info: ValidationInfo) -> float:
    """Parse a delay of at most one second, as :func:`parse_duration` does."""
    return _seconds(text, info, _DELAYS, DELAY_LEGAL)


def parse_age(text: Any, info: ValidationInfo) -> float:
    """Parse a span of up to 100 years, as :func:`parse_duration` does."""
    return _seconds(text, info, _AGES, AGE_LEGAL)


def parse_keep(text: Any, info: ValidationInfo) -> float:
    """Parse a span of up to 30 days, as :func:`parse_duration` does; 0: not at all."""
    return 0.0 if text in ("0s", 0.0) else _seconds(text, info, _KEEPS, KEEP_LEGAL)


def parse_span(text: Any, info: ValidationInfo) -> float:
    """Parse a span of at least a day, as :func:`parse_duration` does."""
    return _seconds(text, info, _RETENTIONS, SPAN_LEGAL)


def parse_retention(text: Any, info: ValidationInfo) -> float | None:
    """Parse a retention period, as :func:`parse_duration` does; None for ``"forever"``."""
    if text == "forever" or (text is None and not from_file(info)):
        return None
    return _seconds(text, info, _RETENTIONS, RETENTION_LEGAL)


def _seconds(text: Any, info: ValidationInfo, limits: tuple[float, float], legal: str) -> float:
    if isinstance(text, float) and not from_file(info):
        return text
    return seconds_of(text, limits, legal)


def parse_bytes(text: Any, info: ValidationInfo) -> int:
    """Bytes in ``"2 GiB"``; raises ValueError with what is legal. Programs give bytes, files must not."""
    return _bytes_of(text, info, _SIZES, BYTES_LEGAL)


def parse_text_bytes(text: Any, info: ValidationInfo) -> int:
    """Parse a size of texts, as :func:`parse_bytes` does."""
    return _bytes_of(text, info, _TEXT_SIZES, TEXT_BYTES_LEGAL)


def _bytes_of(text: Any, info: ValidationInfo, limits: tuple[int, int], legal: str) -> int:
    if isinstance(text, int) and not from_file(info):
        return text
    # 18 digits: more cannot be a size, and takes time to parse
    match = re.fullmatch(r"\s*([0-9]{1,18})\s*(B|KiB|MiB|GiB|TiB)\s*", text) if isinstance(text, str) else None
    size = int(match[1]) * _BYTES[match[2]] if match is not None else 0
    if not limits[0] <= size <= limits[1]:
        raise ValueError(legal)
    return size


def span_text(seconds: float) -> str:
    """A span as written in plant.toml, in the largest unit of which it is a whole number: ``500ms``, ``2m``."""
    return _in_largest_unit(round(seconds * 1e6), {unit: round(seconds * 1e6) for unit, seconds in SECONDS.items()}, "")


def size_text(size: int) -> str:
    """A size as written in plant.toml: ``2 GiB``."""
    return _in_largest_unit(size, _BYTES, " ")


def _in_largest_unit(number: int, units: dict[str, int], space: str) -> str:
    unit, size = next((unit, size) for unit, size in reversed(units.items()) if number % size == 0)
    return f"{number // size}{space}{unit}"


def parse_patterns(texts: Any) -> tuple[str, ...]:
    """A list of names with ``*`` for any text, as TOML or a program has it; raises ValueError with what is legal."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and 0 < len(text) < 256 for text in texts):
        raise ValueError(PATTERNS_LEGAL)
    return tuple(texts)


def parse_status_place(text: Any) -> str:
    """A field or tag of a line; raises ValueError with what is legal."""
    if not isinstance(text, str) or (text and re.fullmatch(r"(field|tag)\..{1,255}", text) is None):
        raise ValueError(STATUS_PLACE_LEGAL)
    return text


def parse_status_codes(texts: Any) -> tuple[str, ...]:
    """A list of WORD=STATUS, as TOML or a program has it; raises ValueError with what is legal."""
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(STATUS_CODES_LEGAL)
    pairs = [text.rpartition("=") for text in texts]
    if not all(word and status_of(status) is not None for word, _, status in pairs):
        raise ValueError(STATUS_CODES_LEGAL)
    return tuple(texts)


def from_file(info: ValidationInfo) -> bool:
    """Return whether the value comes from a file and not from a program."""
    return bool(info.context and info.context.get("written"))


def parse_texts(value: Any) -> Any:
    """A TOML list as an immutable tuple."""
    return tuple(value) if isinstance(value, list) else value


Texts: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(parse_texts)]
Duration: TypeAlias = Annotated[float, BeforeValidator(parse_duration)]
Delay: TypeAlias = Annotated[float, BeforeValidator(parse_delay)]
Age: TypeAlias = Annotated[float, BeforeValidator(parse_age)]
Keep: TypeAlias = Annotated[float, BeforeValidator(parse_keep)]
Span: TypeAlias = Annotated[float, BeforeValidator(parse_span)]
Retention: TypeAlias = Annotated[float | None, BeforeValidator(parse_retention)]
ByteCount: TypeAlias = Annotated[int, BeforeValidator(parse_bytes)]
TextBytes: TypeAlias = Annotated[int, BeforeValidator(parse_text_bytes)]
StatusPlace: TypeAlias = Annotated[str, BeforeValidator(parse_status_place)]
StatusCodes: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(parse_status_codes)]
Patterns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(parse_patterns)]
