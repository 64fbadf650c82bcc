"""Values of a question's parameters: what their texts mean, and whether the question's header has them as legal."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from core.errors import OperationError
from core.formatting import duration
from schema.question_files import CHANNEL, REFERENCE, Parameter, Question, Range

Cast = Callable[[str, str], Awaitable[Any]]  # a type and a text → the value; of times and intervals: seconds
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IN_SECONDS = ("interval", "timestamptz")  # longer ones than Python has are errors, not broken connections
_LENGTH = re.compile(r"([\d.]+) (us|s|years)")
_SECONDS = {"us": 1e-6, "s": 1.0, "years": 365.25 * 86400}
_YEARS = range(1900, 2200)  # of times: what lies before or after them can be counted, too
_PART = re.compile(r"a (\d+)th")  # of the time that is read
_REFERENCE_RANGE = Range("1 us", "100 years")
_KINDS = {"interval": "a duration", "int": "a whole number", "int4": "a whole number", "float8": "a number"}
_OTHER_KINDS = {
    "boolean": "true or false",
    "timestamptz": "a time such as 2026-03-09T10:00:00Z, from 1900 to 2199",
    "text": "a text",
    CHANNEL: "the name of one channel",
    REFERENCE: "FROM..TO with FROM before TO, or FROM alone, for as long as the interval; "
    "a time before --from of 1 us to 100 years; or calm, the last day in which departure finds nothing",
}


def cast_by_duckdb() -> Cast:
    """A cast without a database."""
    import duckdb  # noqa: PLC0415 (it takes long to import)

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")

    async def cast(kind: str, text: str) -> Any:
        try:
            [value] = connection.execute(cast_query(kind), [text]).fetchone() or (None,)
        except duckdb.Error as error:
            raise ValueError(str(error)) from error
        return value

    return cast


async def parse_values(cast: Cast, question: Question, arguments: Mapping[str, str]) -> dict[str, Any]:
    """Values by parameter, but for channels. ``arguments``: texts; the other parameters have their defaults.

    Raises OperationError for a value that is required and missing, or not legal, with its option and what is legal.
    """
    for one in question.parameters:
        if one.required and one.name not in arguments:
            raise OperationError(f"{question.name} needs {one.option}: {one.meaning}")
    texts = {one.name: arguments.get(one.name, one.default) for one in question.parameters if one.name != "channels"}
    parameters = [parameter for parameter in question.parameters if texts.get(parameter.name) is not None]
    values = dict[str, Any].fromkeys(texts)
    for parameter in sorted(parameters, key=lambda one: one.type == REFERENCE):
        text = str(texts[parameter.name])
        try:
            is_reference = parameter.type == REFERENCE
            value = await (_reference(cast, text, values) if is_reference else _parsed(cast, parameter, text))
        except (ValueError, OverflowError):
            raise _illegal(parameter, text, values) from None
        values[parameter.name] = value
    for parameter in parameters:
        require_legal(parameter, values, texts[parameter.name])
    return values


def require_legal(parameter: Parameter, values: Mapping[str, Any], text: str | None = None) -> None:
    """Raise OperationError where the value of a parameter is beyond the range of its header, as far as that is known.

    ``text``: of the value, as it was written.
    """
    if parameter.legal is None or (value := values[parameter.name]) is None:
        return
    least, most = (_bound(parameter, end, values) for end in (parameter.legal.least, parameter.legal.most))
    is_number = not isinstance(value, timedelta)
    if (
        (is_number and not math.isfinite(value))
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        raise _illegal(parameter, _value_text(value) if text is None else text, values)


def cast_query(kind: str) -> str:
    """SQL that casts a text, of both databases."""
    value = f"CAST($1::text AS {kind})"
    return f"SELECT extract(epoch FROM {value})" if kind in _IN_SECONDS else f"SELECT {value}"


async def _parsed(cast: Cast, parameter: Parameter, text: str) -> Any:
    """The value of a text. Raises ValueError or OverflowError."""
    if parameter.type == CHANNEL and "*" in text:
        raise ValueError(text)
    return _from_seconds(parameter.type, await cast(parameter.database_type, text))


def _from_seconds(kind: str, value: Any) -> Any:
    if kind not in _IN_SECONDS:
        return value
    if value is None:  # DuckDB has no seconds of what is infinite
        raise OverflowError(kind)
    length = timedelta(microseconds=round(value * 1_000_000))
    if kind == "interval":
        return length
    if (time := _EPOCH + length).year not in _YEARS:
        raise ValueError(str(time))
    return time


async def _reference(cast: Cast, text: str, values: Mapping[str, Any]) -> list[datetime]:
    """Bounds of a reference: of ``FROM..TO``, or of a time before since.

    Raises ValueError or OverflowError, and OperationError where it may not be there.
    """
    since, until = values["since"], values["until"]
    begin_text, is_interval, end_text = text.partition("..")
    if is_interval:
        begin, end = [_from_seconds("timestamptz", await cast("timestamptz", one)) for one in (begin_text, end_text)]
    else:
        begin, end = since - _from_seconds("interval", await cast("interval", text)), since
    if not _length(_REFERENCE_RANGE.least) <= end - begin <= _length(_REFERENCE_RANGE.most):
        raise ValueError(text)
    if end > datetime.now(UTC):
        raise OperationError(f"--reference: found {text!r}; legal: an interval of the past")
    if begin < until and end > since:
        raise OperationError(
            f"--reference {text}: it overlaps the interval from --from to --to, which it is compared with"
        )
    return [begin, end]


def _bound(parameter: Parameter, end: str, values: Mapping[str, Any]) -> Any:
    """The value of an end of a range; None: it is open, or not known yet."""
    if parameter.type != "interval":
        return float(end) if end else None
    if end == "interval":
        return values["until"] - values["since"]
    if part := _PART.fullmatch(end):
        begin, ends = values.get(REFERENCE) or (values["since"], values["since"])
        return (values["until"] - values["since"] + ends - begin) / int(part[1])
    return _length(end) if _LENGTH.fullmatch(end) else values[end]


def _length(text: str) -> timedelta:
    number, unit = text.split(" ")
    return timedelta(seconds=float(number) * _SECONDS[unit])


def _illegal(parameter: Parameter, text: str, values: Mapping[str, Any]) -> OperationError:
    legal = _OTHER_KINDS.get(parameter.type, parameter.type)
    if parameter.legal is not None:
        least, most = (_bound_text(parameter, end, values) for end in (parameter.legal.least, parameter.legal.most))
        legal = f"{_KINDS[parameter.type]} from {least} {f'to {most}' if most else 'on'}"
    return OperationError(f"{parameter.option}: found {text!r}; legal: {legal}")


def _bound_text(parameter: Parameter, end: str, values: Mapping[str, Any]) -> str:
    """An end of a range for people, with its value where that depends on others."""
    if parameter.type != "interval" or _LENGTH.fullmatch(end):
        return end
    value = _bound(parameter, end, values)
    name = "the interval" if end == "interval" else f"{end} of what is read" if _PART.fullmatch(end) else f"--{end}"
    return name if value is None else f"{name} ({_value_text(value)})"


def _value_text(value: object) -> str:
    return duration(value.total_seconds()) if isinstance(value, timedelta) else str(value)
