"""Times of other systems: how a column writes them, and what they are in µs since 1970."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, timezone
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from history.imports.fields import BadField

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]  # of a number since 1970
Order: TypeAlias = Literal["ymd", "dmy", "mdy"] | Unit  # of a date
Ambiguous: TypeAlias = Literal["first", "second", "order"]

_UNIT_OF_DIGITS: dict[int, Unit] = {9: "s", 10: "s", 12: "ms", 13: "ms", 15: "us", 16: "us", 18: "ns", 19: "ns"}
_NUMBER = re.compile(r"([0-9]{9,19})(?:\.([0-9]{1,9}))?")
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_LONG_MONTH_NAMES = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october")
_MONTHS |= {name: number for number, name in enumerate((*_LONG_MONTH_NAMES, "november", "december"), 1)}
_CLOCK = (
    r"(?P<hour>[0-9]{1,2}):(?P<minute>[0-9]{2})(?::(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?)?"
    r"(?: ?(?P<half>[AaPp][Mm]))?"
)
_BASIC_CLOCK = r"(?P<hour>[0-9]{2})(?P<minute>[0-9]{2})(?P<second>[0-9]{2})(?:[.,](?P<fraction>[0-9]{1,9}))?(?P<half>)?"
_OFFSET = r"(?: ?(?P<offset>Z|UTC|GMT|[+-](?:[01][0-9]|2[0-3]):?[0-5][0-9]))?"
# A date alone is the begin of the day. Names of months tell the order, and so do years of four digits that are first.
_FORMS = (
    re.compile(  # 2026-03-10 13:45, 10.03.2026, 10-Mar-26, 10 March 2026
        r"(?P<a>[0-9]{1,4})(?P<between>[-/. ])(?P<b>[0-9]{1,2}|[A-Za-z]{3,9})[-/. ](?P<c>[0-9]{1,4})"
        rf"(?:[T ]{{1,3}}{_CLOCK}{_OFFSET})?"
    ),
    re.compile(  # March 10, 2026 1:45 PM
        rf"(?P<b>[A-Za-z]{{3,9}})(?P<between> )(?P<a>[0-9]{{1,2}}),? (?P<c>[0-9]{{4}})(?:,? {_CLOCK}{_OFFSET})?"
    ),
    re.compile(  # 20260310T134500Z, 20260310134500, 20260310
        rf"(?P<a>[0-9]{{4}})(?P<between>)(?P<b>[0-9]{{2}})(?P<c>[0-9]{{2}})(?:[T ]?{_BASIC_CLOCK}{_OFFSET})?"
    ),
)
_LEGAL = (
    "a time such as 2026-03-10 13:45:00, 2026-03-10T13:45:00.5+01:00, 20260310T134500Z, 10.03.2026 13:45, "
    "10-Mar-26 13:45:00, 10 March 2026 13:45 or March 10, 2026 1:45 PM, or a date alone"
)
_SLOT_US = 900_000_000  # 15 minutes: the offset of a zone changes at such times only
# Places of year, month and day, and of what is between them, in a date of 10 characters
_FIXED = {"ymd": ((0, 4), (5, 7), (8, 10), (4, 7)), "dmy": ((6, 10), (3, 5), (0, 2), (2, 5))}
_FIXED["mdy"] = (_FIXED["dmy"][0], _FIXED["dmy"][2], _FIXED["dmy"][1], _FIXED["dmy"][3])


@dataclass(slots=True)
class TimeFormat:
    """Format of a column of times. ``zone``: of times without an offset; None: they have one, or are numbers.

    ``ambiguous``: which one is meant by a local time that occurs twice, as the clocks go back; None: an error.
    """

    order: Order
    zone: ZoneInfo | None = None
    ambiguous: Ambiguous | None = None
    _offsets: dict[int, tuple[int, int]] = field(default_factory=dict)  # slot → offsets of both meanings, µs

    def describe(self) -> str:
        """The form of times in words."""
        if self.order in get_args(Unit):
            return f"number of {self.order} since 1970"
        written = {"ymd": "year-month-day", "dmy": "day-month-year", "mdy": "month-day-year"}[self.order]
        return f"{written}, {'with an offset from UTC' if self.zone is None else f'in the time zone {self.zone.key}'}"

    def parse(self, texts: Sequence[str]) -> Int64s:
        """µs since 1970, (n,). Finer fractions are rounded down. Raises BadField."""
        return self.parse_both(texts)[0]

    def parse_both(self, texts: Sequence[str]) -> tuple[Int64s, Int64s]:
        """Times, and how much later the second meaning of a local time that occurs twice is; 0 for all others.

        It is 0 for all but with ``ambiguous`` "order".
        """
        once = np.zeros(len(texts), np.int64)
        if not texts:
            return once, once
        if self.order in get_args(Unit):
            return np.array([self._number(index, text) for index, text in enumerate(texts)], np.int64), once
        array = np.array(texts)
        width = array.dtype.itemsize // 4
        chars = array.view(np.uint32).reshape(len(texts), width)
        lengths = width - np.argmax(chars[:, ::-1] != 0, axis=1)
        times = np.empty(len(texts), np.int64)
        slow = np.zeros(len(texts), bool)
        for length in np.unique(lengths).tolist():
            of_length = lengths == length
            parsed = _fixed(chars[of_length, :length], self.order, self.zone is None)
            if parsed is None:
                slow |= of_length
            else:
                times[of_length] = parsed
        parsed_texts: dict[str, int] = {}
        for index in np.flatnonzero(slow).tolist():
            text = texts[index]
            if text not in parsed_texts:
                parsed_texts[text] = self._one(index, text)
            times[index] = parsed_texts[text]
        return (times, once) if self.zone is None else self.to_utc(times, texts.__getitem__, self.zone)

    def parse_fixed(self, chars: NDArray[np.uint8]) -> Int64s | None:
        """µs since 1970, of texts of one length, (n, length). None: some are unusual or wrong. Raises BadField."""
        if self.order in get_args(Unit):
            return None
        times = _fixed(chars, self.order, self.zone is None)
        if times is None or self.zone is None:
            return times
        return self.to_utc(times, lambda index: bytes(chars[index]).decode(), self.zone)[0]

    def _number(self, index: int, text: str) -> int:
        match = _NUMBER.fullmatch(text.strip())
        if match is None or _UNIT_OF_DIGITS.get(len(match[1])) != self.order:
            raise BadField(index, text, f"a number of {self.order} since 1970, as in the lines before")
        number = int(match[1])
        match self.order:
            case "s":
                return number * 1_000_000 + int(f"{match[2] or '':0<6.6}")
            case "ms":
                return number * 1000 + int(f"{match[2] or '':0<3.3}")
            case "us":
                return number
        return number // 1000

    def _one(self, index: int, text: str) -> int:
        """µs since 1970, of a local time as if it were UTC."""
        match = _matched(index, text)
        if (match["offset"] is None) != (self.zone is not None):
            legal = "with an offset from UTC" if self.zone is None else "without an offset from UTC"
            raise BadField(index, text, f"a time {legal}, as in the lines before: a file has one kind of times")
        try:
            moment = _date(match, self.order)
        except ValueError as error:
            raise BadField(index, text, f"{_LEGAL}, in the order {self.order} ({error})") from None
        if match["offset"] is not None:
            moment = moment.replace(tzinfo=_offset(match["offset"])).astimezone(UTC)
        fraction = int(f"{match['fraction'] or '':0<6.6}")
        return (moment.replace(tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) + fraction

    def to_utc(self, local: Int64s, text: Callable[[int], str], zone: ZoneInfo) -> tuple[Int64s, Int64s]:
        """Convert local times (µs, as if they were UTC) like :meth:`parse_both`; ``text``: one of them as written."""
        slots, slot_indices = np.unique(local // _SLOT_US, return_inverse=True)
        offsets = np.array([self._offsets_of(slot, zone) for slot in slots.tolist()], np.int64)
        first, second = offsets[slot_indices].T
        missing = np.flatnonzero(second > first)
        if len(missing):
            index = int(missing[0])
            legal = f"a time that exists in {zone.key}: the clocks were put forward then. Is the time zone right?"
            raise BadField(index, text(index), legal)
        twice = np.flatnonzero(second < first)
        if len(twice) and self.ambiguous is None:
            index = int(twice[0])
            legal = (
                f"a time that occurs once in {zone.key}: the clocks were put back then. Export in UTC or with offsets, "
                "or say which is meant: --ambiguous first, second or order"
            )
            raise BadField(index, text(index), legal)
        offset: Int64s = second if self.ambiguous == "second" else first
        later: Int64s = first - second
        return local - offset, later if self.ambiguous == "order" else np.zeros(len(local), np.int64)

    def _offsets_of(self, slot: int, zone: ZoneInfo) -> tuple[int, int]:
        if slot not in self._offsets:
            moment = datetime(1970, 1, 1) + timedelta(microseconds=slot * _SLOT_US)
            first, second = (moment.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta() for fold in (0, 1))
            self._offsets[slot] = first // timedelta(microseconds=1), second // timedelta(microseconds=1)
        return self._offsets[slot]


def detect(
    texts: Sequence[str], zone: ZoneInfo | None, order: Order | None = None, ambiguous: Ambiguous | None = None
) -> TimeFormat:
    """The format of a column, from its first texts. Raises BadField, also if ``zone`` is missing or not needed."""
    if not texts:
        raise BadField(0, "no line", _LEGAL)
    if _NUMBER.fullmatch(texts[0].strip()) and not _FORMS[-1].fullmatch(texts[0].strip()):
        unit = unit_of(texts[0])
        if unit is None:
            raise BadField(0, texts[0], "a number of s, ms, us or ns since 1970, or digits of year to second")
        if zone is not None:
            raise BadField(0, texts[0], "without --time-zone: numbers count from 1970 in UTC")
        return TimeFormat(unit)
    matches = [_matched(index, text) for index, text in enumerate(texts)]
    if matches[0]["offset"] is not None and zone is not None:
        raise BadField(0, texts[0], "without --time-zone: the times have an offset from UTC")
    if matches[0]["offset"] is None and zone is None:
        raise BadField(0, texts[0], "a time with an offset from UTC; or name its time zone: --time-zone Europe/Berlin")
    return TimeFormat(order or _order(matches, texts[0]), zone, ambiguous)


def unit_of(text: str) -> Unit | None:
    """The unit of a number since 1970, by its digits: times of 1973 to 2286; None: it is no such number."""
    number = _NUMBER.fullmatch(text.strip())
    return None if number is None else _UNIT_OF_DIGITS.get(len(number[1]))


def _matched(index: int, text: str) -> re.Match[str]:
    stripped = text.strip()
    for form in _FORMS:
        if match := form.fullmatch(stripped):
            return match
    raise BadField(index, text, _LEGAL)


def _order(matches: Sequence[re.Match[str]], first: str) -> Order:
    if len(matches[0]["a"]) == 4:
        return "ymd"
    if matches[0]["between"] == "." or matches[0]["b"].isalpha():
        return "dmy"
    if any(int(match["a"]) > 12 for match in matches) and not all(map(_may_begin_with_year, matches)):
        return "dmy"
    if any(match["b"].isdigit() and int(match["b"]) > 12 for match in matches):
        return "mdy"
    raise BadField(0, first, "a date whose order is plain; say it: --date-order dmy, mdy or ymd")


def _may_begin_with_year(match: re.Match[str]) -> bool:
    a, b, c = match["a"], match["b"], match["c"]
    return len(a) == len(c) == 2 and b.isdigit() and 1 <= int(b) <= 12 and 1 <= int(c) <= 31


def _date(match: re.Match[str], order: Order) -> datetime:
    """Date and time without the fraction. Raises ValueError."""
    a, b, c = match["a"], match["b"], match["c"]
    if b.isalpha() and len(a) < 4:
        order = "dmy"
    year, month, day = {"ymd": (a, b, c), "dmy": (c, b, a), "mdy": (c, a, b)}[order]
    if len(year) not in (2, 4):
        raise ValueError(f"{year} is no year")
    whole_year = int(year) if len(year) == 4 else int(year) + (2000 if int(year) < 70 else 1900)
    whole_month = int(month) if month.isdigit() else _MONTHS.get(month.lower(), 0)
    hour = int(match["hour"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ValueError("hour must be in 1..12")
        hour = hour % 12 + (12 if match["half"].lower() == "pm" else 0)
    return datetime(whole_year, whole_month, int(day), hour, int(match["minute"] or 0), int(match["second"] or 0))


def _offset(text: str) -> timezone:
    if text in ("Z", "UTC", "GMT"):
        return UTC
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return timezone(timedelta(minutes=-minutes if text[0] == "-" else minutes))


def _fixed(chars: NDArray[np.uint32] | NDArray[np.uint8], order: Order, with_offset: bool) -> Int64s | None:
    """µs of texts of one length whose fields are where they usually are; None: some are elsewhere, or wrong.

    ``chars``: (n, length).
    """
    offset = _fixed_offset(chars) if with_offset else (chars.shape[1], np.zeros(len(chars), np.int64))
    if offset is None:
        return None
    length, offset_us = offset
    year_at, month_at, day_at, between = _FIXED[order]
    legal = ((between, "-./"), ((10,), "T "), ((13, 16), ":"), ((19,) if length > 19 else (), ".,"))
    if not (length == 19 or 21 <= length <= 29) or not all(
        np.isin(chars[:, places], [ord(char) for char in texts]).all() for places, texts in legal
    ):
        return None
    fields = [_digits(chars, *at) for at in (year_at, month_at, day_at, (11, 13), (14, 16), (17, 19))]
    if length > 19:  # what is finer than µs is cut off, but has to be digits
        fraction = _digits(chars, 20, length)
        fields.append(None if fraction is None else fraction * 1_000_000 // 10 ** (length - 20))
    valid = [field for field in fields if field is not None]
    return _moments(valid, offset_us) if len(valid) == len(fields) else None


def _fixed_offset(chars: NDArray[np.uint32] | NDArray[np.uint8]) -> tuple[int, Int64s] | None:
    """The length without the offset from UTC, and the offset, (n,) µs."""
    length = chars.shape[1]
    if (chars[:, -1] == ord("Z")).all():
        return length - 1, np.zeros(len(chars), np.int64)
    if length < 25 or not (np.isin(chars[:, -6], (ord("+"), ord("-"))) & (chars[:, -3] == ord(":"))).all():
        return None
    hours, minutes = _digits(chars, length - 5, length - 3), _digits(chars, length - 2, length)
    if hours is None or minutes is None or (hours > 23).any() or (minutes > 59).any():
        return None
    return length - 6, np.where(chars[:, -6] == ord("-"), -1, 1) * (hours * 60 + minutes) * 60_000_000


def _moments(fields: Sequence[Int64s], offset: Int64s) -> Int64s | None:
    """µs; ``fields``: year to second, and perhaps the fraction in µs."""
    year, month, day, hour, minute, second = fields[:6]
    if not (
        (month >= 1) & (month <= 12) & (hour < 24) & (minute < 60) & (second < 60) & (day >= 1) & (year >= 1)
    ).all():
        return None
    months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
    first, after = (month.astype("datetime64[D]").astype(np.int64) for month in (months, months + 1))
    if (first + day > after).any():
        return None
    moments: Int64s = ((first + day - 1) * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000 - offset
    return moments + fields[6] if len(fields) > 6 else moments


def _digits(chars: NDArray[np.uint32] | NDArray[np.uint8], begin: int, end: int) -> Int64s | None:
    """The number at these places, (n,); None: there is something else."""
    digits = chars[:, begin:end].astype(np.int64) - 48
    if ((digits < 0) | (digits > 9)).any():
        return None
    number: Int64s = digits @ (10 ** np.arange(end - begin - 1, -1, -1, dtype=np.int64))
    return number
