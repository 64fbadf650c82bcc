"""Files of samples that cannot be imported: which line, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import OperationError
from history.imports.channel_names import load_names
from history.imports.check import check
from history.imports.csv_file import CsvFile
from history.imports.csv_layout import Options, find_layout
from history.imports.line_protocol_file import LineProtocolFile
from tests.unit.history.test_history_import import BERLIN, LIMITS, NOW, read

BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "no time zone": (
        "tag,time,value\na,2026-03-10 10:00:00,1\n",
        {},
        ":2: time: found '2026-03-10 10:00:00'; legal: a time with an offset from UTC; or name its time zone",
    ),
    "two kinds of times": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1\na,2026-03-10 10:00:01,1\n",
        {},
        ":3: time: found '2026-03-10 10:00:01'; legal: a time with an offset from UTC, as in the lines before",
    ),
    "missing time": (
        "tag,time,value\na,2026-03-29 02:30:00,1\n",
        {"zone": BERLIN},
        ":2: time: found '2026-03-29 02:30:00'; legal: a time that exists in Europe/Berlin",
    ),
    "ambiguous time": (
        "tag,time,value\na,2026-10-25 01:30:00,1\na,2026-10-25 02:30:00,1\n",
        {"zone": BERLIN},
        ":3: time: found '2026-10-25 02:30:00'; legal: a time that occurs once in Europe/Berlin",
    ),
    "no day": (
        "tag,time,value\na,2026-02-29 02:30:00Z,1\n",
        {},
        ":2: time: found '2026-02-29 02:30:00Z'; legal: a time such as",
    ),
    "day or month": (
        "tag,time,value\na,03/04/2026 02:30:00Z,1\n",
        {},
        ":2: time: found '03/04/2026 02:30:00Z'; legal: a date whose order is plain; say it: --date-order",
    ),
    "day or month of a date alone": (
        "tag,time,value\na,03/04/2026,1\n",
        {"zone": BERLIN},
        ":2: time: found '03/04/2026'; legal: a date whose order is plain; say it: --date-order",
    ),
    "day or month between blanks": (
        "tag,time,value\na,03 04 2026 10:00,1\n",
        {"zone": BERLIN},
        ":2: time: found '03 04 2026 10:00'; legal: a date whose order is plain; say it: --date-order",
    ),
    "year or day": (
        "tag,time,value\na,26-03-20 10:00:00,1\na,26-03-21 10:00:00,1\n",
        {"zone": BERLIN},
        ":2: time: found '26-03-20 10:00:00'; legal: a date whose order is plain; say it: --date-order dmy, mdy or ymd",
    ),
    "hours of an offset": (
        "tag,time,value\na,2026-03-10 13:45:00+01:00,1\na,2026-03-10 13:45:00+99:00,1\n",
        {},
        ":3: time: found '2026-03-10 13:45:00+99:00'; legal: a time such as",
    ),
    "minutes of an offset": (
        "tag,time,value\na,2026-03-10 13:45:00+01:60,1\n",
        {},
        ":2: time: found '2026-03-10 13:45:00+01:60'; legal: a time such as",
    ),
    "hours of an offset without a colon": (
        "tag,time,value\na,2026-03-10T13:45:00+9900,1\n",
        {},
        ":2: time: found '2026-03-10T13:45:00+9900'; legal: a time such as",
    ),
    "no month": (
        "tag,time,value\na,10 Mai 2026,1\n",
        {"zone": BERLIN},
        ":2: time: found '10 Mai 2026'; legal: a time such as",
    ),
    "date alone without a zone": (
        "tag,time,value\na,2026-03-10,1\n",
        {},
        ":2: time: found '2026-03-10'; legal: a time with an offset from UTC; or name its time zone",
    ),
    "no digits of a day": (
        "tag,time,value\na,20260230T100000Z,1\n",
        {},
        ":2: time: found '20260230T100000Z'; legal: a time such as",
    ),
    "decimal comma": (
        'tag,time,value\na,2026-03-10 10:00:00Z,1.5\na,2026-03-10 10:00:01Z,"1,5"\n',
        {},
        ":3: value: found '1,5'; legal: a number with the decimal separator '.'",
    ),
    "thousands": (
        "tag;time;value\na;2026-03-10 10:00:00Z;1.234,5\n",
        {},
        ":2: value: found '1.234,5'; legal: a number with the decimal separator '.'",
    ),
    "not a number": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1_000\n",
        {},
        ":2: value: found '1_000'; legal: a number",
    ),
    "no value": ("tag,time,value\na,2026-03-10 10:00:00Z,\n", {}, ":2: value: found ''; legal: a number"),
    "long": (
        f"tag,time,value\na,2026-03-10 10:00:00Z,{'x' * 100}\n",
        {},
        f":2: value: found '{'x' * 76}...; legal: a number",  # as in a configuration
    ),
    "infinite": ("tag,time,value\na,2026-03-10 10:00:00Z,inf\n", {}, ":2: value: found 'inf'; legal: a finite number"),
    "nearly zero": (
        "tag,time,value\na,2026-03-10 10:00:00Z,0e-9\na,2026-03-10 10:00:01Z,-1e-400\n",
        {},
        ":3: value: found '-1e-400'; legal: 0, or a number that is at least 5e-324 away from it",
    ),
    "two values of one time": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1\nb,2026-03-10 10:00:00Z,1\na,2026-03-10 10:00:00Z,2\n",
        {},
        ":4: value: found '2'; legal: the value of line 2, 1: a has one value at 2026-03-10T10:00:00+00:00; "
        "or say which one stays: --duplicates first or last",
    ),
    "unknown column": (
        "tag,time,value,operator\na,2026-03-10 10:00:00Z,1,x\n",
        {},
        ":1: operator: found 'tag, time, value, operator'; legal: known columns: say what this one is, as in --column",
    ),
    "no column for the time": ("a,b\n1,2\n", {}, ":1: time: found 'a, b'; legal: one column: name it, as in --column"),
    "column of an option": (
        "time,b\n1,2\n",
        {"columns": {"c": "time"}},
        ":1: header: found 'time, b'; legal: a column",
    ),
    "cut off": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1\na,2026-03-10 10:00:01Z,1.5",
        {},
        ":3: line: found 'a,2026-03-10 10:00:01Z,1.5'; legal: a line end: the file ends in the middle",
    ),
    "too few fields": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1\na,2026-03-10\n",
        {},
        ":3: line: found '2 fields'; legal: 3 fields, as in the first line: tag, time, value",
    ),
    "decimal commas": (
        "tag,time,value\na,2026-03-10 10:00:00Z,1,5\na,2026-03-10 10:00:01Z,2,5\n",
        {},
        ":2: line: found 'a,2026-03-10 10:00:00Z,1,5'; legal: 3 fields, as in the first line; decimal commas need",
    ),
    "quote": (
        'tag,time,value\na,2026-03-10 10:00:00Z,1\n"a,2026-03-10 10:00:00Z,1\n',
        {},
        ":3: line: found ",
    ),
    "future": (
        "tag,time,value\na,2026-12-10 10:00:00Z,1\n",
        {},
        ":2: time: found '2026-12-10T10:00:00+00:00'; legal: times until 2026-11-02",
    ),
    "too old": ("tag,time,value\na,1950-12-10 10:00:00Z,1\n", {}, ":2: time: found '1950-12-10T10:00:00+00:00'"),
    "good or bad": (
        "tag,time,value,quality\na,2026-03-10 10:00:00Z,1,0\n",
        {},
        ":2: quality: found '0'; legal: codes that show whether 0 is Good, as in OPC UA, or Bad, as in OPC DA",
    ),
    "good or bad beside bits of a StatusCode": (
        "tag,time,value,quality\na,2026-03-10 10:00:00Z,1,1024\na,2026-03-10 10:00:01Z,1,0\n",
        {},
        ":2: quality: found '1024'; legal: codes that show whether 0 is Good",
    ),
    "status": (
        "tag,time,value,quality\na,2026-03-10 10:00:00Z,1,perhaps\n",
        {},
        ":2: quality: found 'perhaps'; legal: Good, Uncertain, Bad, or an OPC UA StatusCode",
    ),
    "no name": ("tag,time,value\n/,2026-03-10 10:00:00Z,1\n", {}, ":2: tag: found '/'; legal: the name of a channel"),
    "two names of a channel": (
        "tag,time,value\nMill/T,2026-03-10 10:00:00Z,1\n/Mill//T,2026-03-10 10:00:01Z,1\n",
        {},
        ":3: tag: found '/Mill//T'; legal: another name than 'Mill/T', of which the channel is Mill/T, too",
    ),
    "two names of a channel in quotes": (
        'tag,time,value\nTI 1,2026-03-10 10:00:00Z,1\n"TI%201",2026-03-10 10:00:01Z,1\n',
        {},
        ":3: tag: found 'TI%201'; legal: another name than 'TI 1', of which the channel is TI%201, too",
    ),
    "no samples": ("time,a\n2026-03-10 10:00:00Z,\n", {}, " has no samples"),
    "empty": ("", {}, " is empty"),
    "only a header": ("tag,time,value\n", {}, ":2: line: found 'the end of the file'; legal: a line with a sample"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_named_with_file_line_and_field(case: str, tmp_path: Path) -> None:
    text, options, expected = BAD[case]
    file = tmp_path / "bad.csv"
    file.write_text(text)
    with pytest.raises(OperationError) as error:
        check(CsvFile(file, find_layout(file, Options(**options))), NOW, LIMITS, lambda done: None)
    assert str(error.value).startswith(f"{file}{expected}"), str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "a,b,c\n",
            ":1: line: found '3 fields'; legal: two fields, the name in the imported file and that of the channel",
        ),
        ("a,b\nc\n", ":2: line: found '1 fields'; legal: two fields"),
        ("a,b\na,c\n", ":2: name: found 'a'; legal: another name than in line 1"),
        ("a,b\n\nc,b\n", ":3: channel: found 'b'; legal: another channel than in line 1"),
        ("a,b c\n", ":1: channel: found 'b c'; legal: the name of a channel, such as b%20c"),
        ("a,\n", ":1: channel: found ''; legal: the name of a channel, of 1 to"),
        (",b\n", ":1: name: found ''; legal: the name in the imported file"),
        ("", ":1: line: found 'the end of the file'; legal: two fields"),
        ('"a,b\n', ": text: found 'unexpected end of data'; legal: a CSV file in UTF-8"),
        (b"caf\xe9,b\n", ": text: found "),
    ],
)
def test_bad_file_of_names_is_named_with_line_and_field(text: str | bytes, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "names.csv"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(OperationError) as error:
        load_names("", file)
    assert str(error.value).startswith(f"{file}{expected}"), str(error.value)


def test_new_name_that_is_not_used_or_taken_is_refused(tmp_path: Path) -> None:
    names_file, file = tmp_path / "names.csv", tmp_path / "long.csv"
    names_file.write_text("a,b\nz,mill/z\n")
    names = load_names("", names_file)
    file.write_text("tag,time,value\na,2026-03-10 10:00:00Z,1\n")
    assert [row[0] for row in read(CsvFile(file, find_layout(file, Options(names=names))))] == ["b"]
    with pytest.raises(OperationError, match=r"names\.csv:2: name: found 'z'; legal: a name that the imported files"):
        names.require_used()
    for text in ("tag,time,value\na,2026-03-10 10:00:00Z,1\nb,2026-03-10 10:00:00Z,2\n", "time,a,b\n2026-03-10Z,1,2\n"):
        file.write_text(text)
        with pytest.raises(OperationError, match="found 'b'; legal: another name than b, which a gets by --rename"):
            read(CsvFile(file, find_layout(file, Options(names=names))))
    with pytest.raises(OperationError, match=r"--prefix .*: legal: the begin of the name of a channel"):
        load_names("x" * 1000, None)
    file.write_text("tag,time,value\n ,2026-03-10 10:00:00Z,1\n")
    with pytest.raises(OperationError, match=r"long\.csv:2: tag: found ' '; legal: the name of a channel"):
        read(CsvFile(file, find_layout(file, Options(names=load_names("north/", None)))))
    file.write_text(f"tag,time,value\n{'x' * 250},2026-03-10 10:00:00Z,1\n")
    with pytest.raises(OperationError, match=r"long\.csv:2: tag: found 'xxx.*characters, with the prefix north/"):
        read(CsvFile(file, find_layout(file, Options(names=load_names("north/", None)))))


def test_other_encoding_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "latin.csv"
    file.write_bytes("tag,time,value\na,2026-03-10 10:00:00Z,1\nä,2026-03-10 10:00:00Z,1\n".encode("latin-1"))
    with pytest.raises(OperationError, match=r"latin\.csv:3: text: found .*; legal: utf-8, or name another one"):
        find_layout(file, Options())
    reader = CsvFile(file, find_layout(file, Options(encoding="latin-1")))
    assert [row[0] for row in read(reader)] == ["a", "ä"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('m f="on" 1773100800000000000', ":2: f: found 'on'; legal: a number, true or false; leave the texts"),
        ("m f=1", ":2: time: found 'the end of the line'; legal: a time"),
        ("m f= 1773100800000000000", ":2: field 'f': the value is missing"),
        ("m,a=b f=1 1773100800000000000", ":2: f: found 'm.f'; legal: a channel for each series: m.f is of another"),
    ],
)
def test_bad_line_protocol_is_named_with_file_line_and_field(line: str, expected: str, tmp_path: Path) -> None:
    file = tmp_path / "points.lp"
    file.write_text(f"m f=1 1773100800000000000\n{line}\n")
    with pytest.raises(OperationError) as error:
        read(LineProtocolFile(file, "{measurement}.{field}"))
    assert str(error.value).startswith(f"{file}{expected}"), str(error.value)
    file.write_text("m f=1 1773100800000000000\nm f=2 17731008")
    with pytest.raises(OperationError, match=r"points\.lp:2: line: found 'm f=2 17731008'; legal: a line end"):
        read(LineProtocolFile(file, "{measurement}.{field}"))
