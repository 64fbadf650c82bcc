"""Line protocol: what is written is what is read, every error names its line, and nothing at all makes it raise."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.push.line_protocol import PRECISIONS, BadLine, Parsed, Point, Precision, Value, parse


def only(body: str, precision: Precision = "ns") -> Point:
    parsed = parse(body.encode(), precision)
    assert parsed.bad == []
    (point,) = parsed.points
    return point


def facts(parsed: Parsed) -> list[tuple[int, str, dict[str, str], list[tuple[str, Value]], int | None]]:
    return [(p.line, p.series.measurement, p.series.tags, p.fields, p.time) for p in parsed.points]


def test_line_with_every_element_is_parsed() -> None:
    body = (
        b'# a comment, with = and "\r\n'
        b'boiler,unit=b1,area=north pressure=12.5,cycles=7i,pumps=2u,running=t,mode="auto" 1790000000123456789\r\n'
        b"\n"
        b"  \t\n"
        b"level value=-1.5e3\n"
    )
    assert facts(parse(body)) == [
        (
            2,
            "boiler",
            {"unit": "b1", "area": "north"},
            [("pressure", 12.5), ("cycles", 7), ("pumps", 2), ("running", True), ("mode", "auto")],
            1790000000123456,
        ),
        (5, "level", {}, [("value", -1500.0)], None),
    ]
    assert parse(body).bad == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1", 1.0),
        ("-0", -0.0),
        ("+1.", 1.0),
        (".5", 0.5),
        ("1e-3", 0.001),
        ("5e-324", 5e-324),
        ("1.7976931348623157e308", 1.7976931348623157e308),
        ("-9223372036854775808i", -(2**63)),
        ("18446744073709551615u", 2**64 - 1),
        *((word, True) for word in ("t", "T", "true", "True", "TRUE")),
        *((word, False) for word in ("f", "F", "false", "False", "FALSE")),
        ('""', ""),
        (r'"say \"no\", \\ and \n"', r'say "no", \ and \n'),
        ('"a, b=c d"', "a, b=c d"),
        ('"two\nlines"', "two\nlines"),
        ('"°C"', "°C"),
    ],
)
def test_field_values_are_parsed(written: str, meant: Value) -> None:
    point = only(f"m f={written} 5000")
    assert point.fields == [("f", meant)]
    assert type(point.fields[0][1]) is type(meant)
    assert point.time == 5


@pytest.mark.parametrize(
    ("written", "precision", "microseconds"),
    [
        ("1999", "ns", 1),
        ("-1", "ns", -1),
        ("7", "us", 7),
        ("7", "ms", 7_000),
        ("7", "s", 7_000_000),
        ("9223372036854775807", "us", 2**63 - 1),
    ],
)
def test_timestamps_are_parsed(written: str, precision: Precision, microseconds: int) -> None:
    assert only(f"m f=1 {written}", precision).time == microseconds


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b",a=b f=1", "the measurement is missing"),
        (b"m", "found the end of the line where field=value is expected"),
        (b"m 5", "found '5' where field=value is expected"),
        (b"m f=1,", "found the end of the line where field=value is expected"),
        (b"m f=", "field 'f': the value is missing"),
        (b"m f=nan", "field 'f': found 'nan'; legal: a number"),
        (b"m f=1_0", "found '1_0'"),
        (b"m f=tRUE", "found 'tRUE'"),
        (b"m f=\xd9\xa1", "found '١'"),
        (b"m f=1e400", "field 'f': '1e400' is out of range for a float"),
        (b"m f=9223372036854775808i", "is not between -9223372036854775808 and 9223372036854775807"),
        (b"m f=-1u", "field 'f': '-1u' is not between 0 and"),
        (b"m f=1,f=2", "field 'f' is repeated"),
        (b"m,a=1,a=2 f=1", "tag 'a' is repeated"),
        (b"m,a f=1", "found ',a' where ,tag=value is expected"),
        (b"m,a= f=1", "found ',a=' where ,tag=value is expected"),
        (b'm f="open', "field 'f': the quote is not closed"),
        (b'm f="a"b', "field 'f': found 'b' after the closing quote"),
        (b"m f=1 now", "found 'now' where a timestamp is expected: an integer number of ns since 1970"),
        (b"m f=1 1.5", "found '1.5' where a timestamp is expected"),
        (b"m f=1 5 6", "found ' 5 6' where a timestamp or the end of the line is expected"),
        (b"m f=\xff", "byte 0xff is not UTF-8"),
        (b"m f=" + b"9" * 100_000, "99999999'...; legal: a number"),
    ],
)
def test_errors_name_their_line_and_spoil_no_other(line: bytes, what: str) -> None:
    parsed = parse(b"good f=1 1000\n" + line + b"\ngood f=2 2000\n")
    assert [p.time for p in parsed.points] == [1, 2]
    (bad,) = parsed.bad
    assert str(bad).startswith("line 2: ")
    assert what in bad.problem
    assert len(bad.problem) < 200


def test_timestamp_out_of_range_is_refused() -> None:
    assert parse(b"m f=1 9223372036854775807", "s").bad == [
        BadLine(1, "timestamp 9223372036854775807 in s is out of range: check the precision")
    ]


def test_line_numbers_are_right_after_a_multiline_string() -> None:
    parsed = parse(b'm f="one\ntwo\nthree" 1000\nm f=x\nm f=1')
    assert [p.line for p in parsed.points] == [1, 5]
    assert [b.line for b in parsed.bad] == [4]


def test_lines_with_equal_prefix_share_a_series() -> None:
    points = parse(b"m,a=1 f=1\nm,a=1 f=2\nm,a=2 f=3").points
    assert points[0].series is points[1].series
    assert points[0].series is not points[2].series


# What line protocol can say: names have no line end, and end in no backslash.
_NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\n\t"), min_size=1).filter(
    lambda name: not name.endswith("\\") and not name.startswith(("#", "\r"))
)
_VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**63 - 1),
    st.booleans(),
    st.text(st.characters(codec="utf-8")),
)
_POINTS = st.tuples(
    _NAMES,
    st.dictionaries(_NAMES, _NAMES),
    st.dictionaries(_NAMES, _VALUES, min_size=1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)


def _escaped(name: str, special: str) -> str:
    return "".join("\\" + c if c in special else c for c in name)


def _written(value: Value) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool):
        return str(value)
    return repr(value) if isinstance(value, float) else f"{value}i"


def _line(measurement: str, tags: dict[str, str], fields: dict[str, Value], time: int | None) -> str:
    head = _escaped(measurement, ", ")
    head += "".join(f",{_escaped(name, ',= ')}={_escaped(tag, ',= ')}" for name, tag in tags.items())
    body = ",".join(f"{_escaped(name, ',= ')}={_written(value)}" for name, value in fields.items())
    return f"{head} {body}" + ("" if time is None else f" {time}")


@given(st.lists(_POINTS, max_size=5))
def test_written_line_protocol_round_trips(
    points: list[tuple[str, dict[str, str], dict[str, Value], int | None]],
) -> None:
    parsed = parse("\n".join(_line(*point) for point in points).encode(), "us")
    assert parsed.bad == []
    read = [(m, tags, dict(fields), time) for _, m, tags, fields, time in facts(parsed)]
    assert read == points
    kinds = [[type(value) for value in fields.values()] for _, _, fields, _ in read]
    assert kinds == [[type(value) for value in fields.values()] for _, _, fields, _ in points]


_NOISE = st.text(st.sampled_from(list('mft,= \\"\n\r\t#019iue.-\0é'))).map(str.encode)


@given(st.one_of(st.binary(), _NOISE, st.lists(st.one_of(_NOISE, st.binary(max_size=3))).map(b"".join)))
def test_any_body_is_parsed_or_refused_with_a_message(body: bytes) -> None:
    for precision in PRECISIONS:
        parsed = parse(body, precision)
        numbers = [p.line for p in parsed.points] + [b.line for b in parsed.bad]
        assert len(set(numbers)) == len(numbers)
        assert all(1 <= number <= body.count(b"\n") + 1 for number in numbers)
        assert all(b.problem for b in parsed.bad)
        for point in parsed.points:
            assert point.series.measurement
            assert point.fields
            assert all(not isinstance(value, float) or math.isfinite(value) for _, value in point.fields)
            assert point.time is None or -(2**63) <= point.time < 2**63


@given(st.lists(st.one_of(st.binary(), _NOISE).map(lambda line: line.replace(b"\n", b"").replace(b'"', b""))))
def test_line_means_the_same_alone_and_among_others(lines: list[bytes]) -> None:
    together = parse(b"\n".join(lines))
    alone = [parse(line) for line in lines]
    assert [(m, t, f, at) for _, m, t, f, at in facts(together)] == [fact[1:] for p in alone for fact in facts(p)]
    assert together.bad == [BadLine(i, b.problem) for i, p in enumerate(alone, 1) for b in p.bad]
    assert [p.line for p in together.points] == [i for i, p in enumerate(alone, 1) if p.points]


@pytest.mark.parametrize(
    "body",
    [
        b'm f="\\"' * 50_000,
        b'm f="x\n' * 50_000,
        b"\\" * 1_000_000,
        b"m " + b"\\ " * 500_000,
        b"\xff\n" * 50_000,
        b" \t" * 500_000 + b"x",
        b'm f="' + b'\\"' * 500_000,
        b"m," + b"a=b," * 250_000,
        b"m f=1 " + b"5" * 1_000_000,
    ],
    ids=lambda body: repr(body[:9]),
)
@pytest.mark.timeout(60)
def test_parsing_takes_linear_time(body: bytes) -> None:
    parsed = parse(body)
    assert len(parsed.points) + len(parsed.bad) <= body.count(b"\n") + 1
    assert sum(len(b.problem) for b in parsed.bad) < 200 * len(parsed.bad)
