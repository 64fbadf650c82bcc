"""The status of a line's values, which a field or tag of the line tells."""

from __future__ import annotations

from collections.abc import Sequence

from core.status_words import status_of
from ingest.push.line_protocol import Point, Value


class StatusRule:
    """The source's options ``status`` and ``status_codes``."""

    def __init__(self, place: str = "", codes: Sequence[str] = ()) -> None:
        kind, _, name = place.partition(".")
        self._field = name if kind == "field" else None
        self._tag = name if kind == "tag" else None
        pairs = [code.rpartition("=") for code in codes]
        self._codes = {word.strip().lower(): status_of(status) for word, _, status in pairs}

    def values(self, point: Point) -> Sequence[tuple[str, Value]]:
        """The fields of a line that are values."""
        return point.fields if self._field is None else [one for one in point.fields if one[0] != self._field]

    def word(self, point: Point) -> str | None:
        """Status word that a line gives its values; None: none."""
        if self._tag is not None:
            return point.series.tags.get(self._tag)
        if self._field is None:
            return None
        return next((_text(value) for name, value in point.fields if name == self._field), None)

    def status(self, word: str) -> int | None:
        """The StatusCode that a word means; None: unknown."""
        code = self._codes.get(word.strip().lower())
        return status_of(word) if code is None else code


NO_STATUS = StatusRule()


def _text(value: Value) -> str:
    """Text as in ``status_codes``: true, 192."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
