"""Values, statuses and channel names of other systems, the order of lines, and errors of a field."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from core.batch import Float64s, Int32s, Int64s, UInt32s
from core.config.explain import shown
from core.config.sources import CHANNEL_NAME_LENGTH
from core.errors import OperationError, Problem
from core.status_codes import BAD, UNCERTAIN, WORDS, status_of

Decimal: TypeAlias = Literal[".", ","]
StatusCodes: TypeAlias = Literal["opcua", "opcda"]

_DA_QUALITY = {0b11: 0, 0b01: UNCERTAIN, 0b00: BAD}  # OPC DA: bits 6 and 7
_DA_NOT_BAD = range(0x40, 0x100)  # qualities without bits of the vendor
_UA_INFO = range(0x400, 0x800)  # Good in OPC UA, with bits of a data value such as Overflow
_BAD_NO_COMMUNICATION, _BAD_TIME_OUT, _BAD_NO_DATA = 0x80310000, 0x800A0000, 0x809B0000
# System digital states of PI, which stand in place of a number
_PI_STATES = {
    **dict.fromkeys(("no data", "no result", "no sample", "pt created", "arc off-line"), _BAD_NO_DATA),
    **dict.fromkeys(("i/o timeout", "scan timeout"), _BAD_TIME_OUT),
    **dict.fromkeys(("comm fail", "not connect", "intf shut"), _BAD_NO_COMMUNICATION),
    **dict.fromkeys(("bad", "bad input", "calc failed", "configure", "equip fail", "failed", "inp outrange"), BAD),
    **dict.fromkeys(("over range", "under range", "scan off", "shutdown", "out of serv", "error"), BAD),
}
EXACT = 2.0**53  # up to which every integer is a float64
_NOT_ZERO = re.compile(r"[^eE]*[1-9]")
_BOOLEANS = {"true": "1", "false": "0"}
_NO_NAME = re.compile(r"[^\w.%/-]")
_NEAR_US = 86_400_000_000  # of the same change of the clocks


class BadField(Exception):  # noqa: N818  (caught where the line is known)
    """A text of a column is not what it has to be."""

    def __init__(self, index: int, found: str, legal: str) -> None:
        self.index = index  # in the column, from 0
        self.found = found
        self.legal = legal
        super().__init__(found)


def bad_input(file: Path, line: int | None, field: str, found: str, legal: str) -> OperationError:
    """An error that names file, line (from 1) and field."""
    return OperationError(str(Problem(str(file), line, field, shown(found), legal)))


def parse_values(texts: Sequence[str], decimal: Decimal) -> tuple[Float64s, UInt32s]:
    """Numbers, and statuses, (n,): 0, or of what PI writes in place of a number, which is 0 then. Raises BadField."""
    status = np.zeros(len(texts), np.uint32)
    try:
        return _numbers(texts, decimal), status
    except BadField:
        states = [_PI_STATES.get(text.strip().lower()) for text in texts]
        numbers = ["0" if state else text for state, text in zip(states, texts, strict=True)]
        return _numbers(numbers, decimal), np.array([state or 0 for state in states], np.uint32)


def _numbers(texts: Sequence[str], decimal: Decimal) -> Float64s:
    other = "," if decimal == "." else "."
    legal = f"a number with the decimal separator {decimal!r} and no separator of thousands; see --decimal"
    joined = "".join(texts)
    if "_" in joined or other in joined:  # Python reads 1_000
        index = next(i for i, text in enumerate(texts) if "_" in text or other in text)
        raise BadField(index, texts[index], legal)
    numbers: Sequence[str] = [text.replace(",", ".") for text in texts] if decimal == "," else texts
    try:
        values = np.fromiter(map(float, numbers), np.float64, len(numbers))
    except ValueError:
        values = np.empty(len(numbers))
        for index, text in enumerate(numbers):
            try:
                values[index] = float(_BOOLEANS.get(text.strip().lower(), text))
            except ValueError:
                raise BadField(index, texts[index], legal) from None
    if not np.isfinite(values).all():
        index = int(np.argmin(np.isfinite(values)))
        raise BadField(index, texts[index], "a finite number")
    for index in np.flatnonzero(values == 0).tolist():
        if _NOT_ZERO.match(texts[index]):
            raise BadField(index, texts[index], "0, or a number that is at least 5e-324 away from it")
    return values


def rounded(texts: Sequence[str], values: Float64s) -> list[int]:
    """Places of integers that no float64 is equal to. ``values``: the numbers of ``texts``, (n,)."""
    integers = [(index, texts[index].strip()) for index in np.flatnonzero(np.abs(values) >= EXACT).tolist()]
    return [  # Python compares an integer with a float exactly
        index for index, text in integers if text.lstrip("+-").isdigit() and int(text) != float(values[index])
    ]


def detect_decimal(texts: Sequence[str]) -> Decimal:
    """The decimal separator, from some values."""
    return "," if any("," in text for text in texts) and not any("." in text for text in texts) else "."


def detect_codes(texts: Sequence[str]) -> StatusCodes:
    """Detect the meaning of numbers in a column of statuses. Raises BadField if 0 may be good as well as bad."""
    numbers = [int(text) for text in texts if text.isdigit()]
    if not numbers or max(numbers) >= 0x10000:
        return "opcua"
    if any(number in _DA_NOT_BAD for number in numbers):
        return "opcda"
    index = next(i for i, text in enumerate(texts) if text.isdigit())
    legal = "codes that show whether 0 is Good, as in OPC UA, or Bad, as in OPC DA: say --status-codes"
    raise BadField(index, texts[index], legal)


def parse_statuses(texts: Sequence[str], codes: StatusCodes) -> UInt32s:
    """StatusCodes, (n,), of words (Good, Bad, Uncertain) or numbers; empty: Good. Raises BadField."""
    status_of: dict[str, int] = {}
    for text in set(texts):
        status = _status(text, codes)
        if status is None:
            legal = "Good, Uncertain, Bad, or " + (
                "an OPC DA quality of 0 to 65535" if codes == "opcda" else "an OPC UA StatusCode such as 0x80000000"
            )
            raise BadField(texts.index(text), text, legal)
        status_of[text] = status
    return np.fromiter(map(status_of.__getitem__, texts), np.uint32, len(texts))


def _status(text: str, codes: StatusCodes) -> int | None:
    if not text.strip():
        return 0
    try:
        number = int(text, 0)
    except ValueError:
        return status_of(text) if codes == "opcua" or text.strip().lower() in WORDS else None
    if codes == "opcua":
        return number if number in _UA_INFO else status_of(text)
    return _DA_QUALITY.get(number >> 6 & 0b11, UNCERTAIN) if 0 <= number < 0x10000 else None


def channel_name(text: str) -> str:
    r"""A legal name of a channel: ``\\server\TAG 1`` is ``server/TAG%201``. Raises BadField."""
    path = "/".join(part for part in text.strip().replace("\\", "/").split("/") if part)
    name = _NO_NAME.sub(lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), path)
    if not name or len(name) > CHANNEL_NAME_LENGTH:
        raise BadField(0, text, f"the name of a channel, of 1 to {CHANNEL_NAME_LENGTH} characters")
    return name


class LineOrder:
    """The lines of each channel have to be in the order of time: where a time that occurs twice is not behind the one
    before, it is the second one, and so are those behind it. Two equal times may be a repeated line, unless they are
    the only ones of both hours, as with a sample an hour."""

    def __init__(self) -> None:
        # Channel → its last such time, whether it is the second one, how many lines, and whether two were equal
        self._previous: dict[int, tuple[int, bool, int, bool]] = {}
        self._newest: dict[int, int] = {}  # channel → time of its last line

    def resolve(self, channel: Int32s, time: Int64s, later: Int64s) -> Int64s:
        """µs, (n,). ``time`` is that of the first meaning; ``later``: how much later the second one is, or 0.

        Raises BadField.
        """
        if not len(time):
            return time
        time = time.copy()
        for index in np.flatnonzero(later).tolist():
            number, first = int(channel[index]), int(time[index])
            before, second, lines, equal = self._previous.get(number, (-_NEAR_US, False, 0, False))
            if abs(first - before) >= _NEAR_US:
                second, lines, equal = False, 0, False
            elif not second:
                second, equal = first <= before, first == before
            if equal and lines > 1:
                legal = "different times in the hour that occurs twice: a line may be repeated; see --ambiguous"
                raise BadField(index, "equal times of a channel up to here", legal)
            self._previous[number] = first, second, lines + 1, equal
            if second:
                time[index] += later[index]
        order = np.argsort(channel, kind="stable")
        numbers, begins = np.unique(channel[order], return_index=True)
        time_before = np.concatenate((time[order][:1], time[order][:-1]))
        time_before[begins] = [self._newest.get(number, -(2**63)) for number in numbers.tolist()]
        if (back := np.flatnonzero(time[order] < time_before)).size:
            raise BadField(int(order[back].min()), "an earlier time", "lines in the order of time: see --ambiguous")
        ends = np.append(begins[1:], len(order)) - 1
        self._newest.update(zip(numbers.tolist(), time[order][ends].tolist(), strict=True))
        return time
