"""Quantities with units as in ``plant.toml``, such as ``"500ms"`` and ``"2 GiB"``; and lists of patterns."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias

from pydantic import BeforeValidator, ValidationInfo

from core.durations import DURATION_LEGAL, DURATIONS, SECONDS, seconds_of
from core.status_codes import status_of

_BYTES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3, "TiB": 1024**4}
_DAY, _CENTURY = 86400.0, 36525 * 86400.0  # s

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


@dataclass(frozen=True, slots=True)
class Parsed:
    """Validator of an option as it is written in plant.toml. Raises ValueError with what is legal."""

    legal: str
    parse: Callable[[Any], Any]
    types: tuple[type, ...] = ()  # of the value itself, which programs give and files must not

    def __call__(self, value: Any, info: ValidationInfo) -> Any:
        """The value."""
        if isinstance(value, self.types) and not (info.context or {}).get("written"):
            return value
        return self.parse(value)


def _seconds(legal: str, least: float, most: float) -> BeforeValidator:
    """A duration between two limits (s)."""
    return BeforeValidator(Parsed(legal, lambda text: seconds_of(text, (least, most), legal), (float,)))


def _keep(text: Any) -> float:
    return 0.0 if text in ("0s", 0.0) else seconds_of(text, (60.0, 30 * _DAY), KEEP_LEGAL)


def _retention(text: Any) -> float | None:
    return None if text == "forever" else seconds_of(text, (_DAY, _CENTURY), RETENTION_LEGAL)


def _bytes(legal: str, least: int, most: int) -> BeforeValidator:
    """A size between two limits (bytes)."""

    def parse(text: Any) -> int:
        # 18 digits: more cannot be a size, and takes time to parse
        match = re.fullmatch(r"\s*([0-9]{1,18})\s*(B|KiB|MiB|GiB|TiB)\s*", text) if isinstance(text, str) else None
        size = int(match[1]) * _BYTES[match[2]] if match is not None else 0
        if not least <= size <= most:
            raise ValueError(legal)
        return size

    return BeforeValidator(Parsed(legal, parse, (int,)))


def span_text(seconds: float) -> str:
    """A span as written in plant.toml, in the largest unit of which it is a whole number: ``500ms``, ``2m``."""
    return _in_largest_unit(round(seconds * 1e6), {unit: round(seconds * 1e6) for unit, seconds in SECONDS.items()}, "")


def size_text(size: int) -> str:
    """A size as written in plant.toml: ``2 GiB``."""
    return _in_largest_unit(size, _BYTES, " ")


def _in_largest_unit(number: int, units: dict[str, int], space: str) -> str:
    unit, size = next((unit, size) for unit, size in reversed(units.items()) if number % size == 0)
    return f"{number // size}{space}{unit}"


def _patterns(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and 0 < len(text) < 256 for text in texts):
        raise ValueError(PATTERNS_LEGAL)
    return tuple(texts)


def _status_place(text: Any) -> str:
    if not isinstance(text, str) or (text and re.fullmatch(r"(field|tag)\..{1,255}", text) is None):
        raise ValueError(STATUS_PLACE_LEGAL)
    return text


def _status_codes(texts: Any) -> tuple[str, ...]:
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(STATUS_CODES_LEGAL)
    pairs = [text.rpartition("=") for text in texts]
    if not all(word and status_of(status) is not None for word, _, status in pairs):
        raise ValueError(STATUS_CODES_LEGAL)
    return tuple(texts)


def parse_texts(value: Any) -> Any:
    """A TOML list as an immutable tuple."""
    return tuple(value) if isinstance(value, list) else value


Texts: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(parse_texts)]
Duration: TypeAlias = Annotated[float, _seconds(DURATION_LEGAL, *DURATIONS)]
Delay: TypeAlias = Annotated[float, _seconds(DELAY_LEGAL, 0.001, 1.0)]
Age: TypeAlias = Annotated[float, _seconds(AGE_LEGAL, 1.0, _CENTURY)]
Keep: TypeAlias = Annotated[float, BeforeValidator(Parsed(KEEP_LEGAL, _keep, (float,)))]
Span: TypeAlias = Annotated[float, _seconds(SPAN_LEGAL, _DAY, _CENTURY)]
Retention: TypeAlias = Annotated[
    float | None, BeforeValidator(Parsed(RETENTION_LEGAL, _retention, (float, type(None))))
]
ByteCount: TypeAlias = Annotated[int, _bytes(BYTES_LEGAL, 1024**2, 1024**5)]
TextBytes: TypeAlias = Annotated[int, _bytes(TEXT_BYTES_LEGAL, 1024, 16 * 1024**2)]
StatusPlace: TypeAlias = Annotated[str, BeforeValidator(Parsed(STATUS_PLACE_LEGAL, _status_place))]
StatusCodes: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(Parsed(STATUS_CODES_LEGAL, _status_codes))]
Patterns: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(Parsed(PATTERNS_LEGAL, _patterns))]
