"""``plantlog source import-history``: what files of other systems contain, however written, and their errors."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.addresses.push_address import encoded
from core.errors import OperationError
from core.time_limits import TimeLimits
from core.timestamps import HOUR_US, microseconds, utc
from history.imports import csv_file
from history.imports.channel_names import load_names
from history.imports.check import check
from history.imports.csv_file import CsvFile
from history.imports.csv_layout import Options, find_layout
from history.imports.fields import BadField, LineOrder, channel_name, parse_statuses
from history.imports.line_protocol_file import LineProtocolFile, is_line_protocol
from history.imports.parquet_file import ParquetFile
from history.imports.portion import FileReader, ImportPortion, joined
from history.imports.times import detect

BERLIN = ZoneInfo("Europe/Berlin")
NOW = microseconds(datetime(2026, 11, 1, tzinfo=UTC))
BEGIN, END = (microseconds(datetime(year, 6, 1, tzinfo=UTC)) for year in (1999, 2026))
LIMITS = TimeLimits(86_400.0, 50 * 365 * 86_400.0)
_FORMATS = {
    "iso": "%Y-%m-%dT%H:%M:%S.%f%z",
    "blank": "%Y-%m-%d %H:%M:%S.%f %z",
    "german": "%d.%m.%Y %H:%M:%S.%f%z",
    "american": "%m/%d/%Y %I:%M:%S.%f %p %z",
    "pi": "%d-%b-%Y %H:%M:%S.%f%z",
}

Row = tuple[str, int, float, int]  # channel, time, value, status
names = st.text(st.characters(categories=("L", "N")) | st.sampled_from("_.-/ "), min_size=1, max_size=8).filter(
    lambda text: text.replace("/", "").strip() != ""
)


@dataclass(frozen=True)
class Dialect:
    """A way to write a table."""

    delimiter: str
    decimal: str
    encoding: str
    quoting: Any
    line_end: str
    times: str
    offset: timezone

    def options(self) -> Options:
        """Options that cannot be detected from any table."""
        order: Any = "mdy" if self.times == "american" else None
        decimal: Any = self.decimal
        encoding = None if self.encoding in ("utf-8", "utf-8-sig", "utf-16") else self.encoding
        return Options(delimiter=self.delimiter, decimal=decimal, date_order=order, codes="opcua", encoding=encoding)

    def time(self, us: int) -> str:
        moment = utc(us).astimezone(self.offset)
        text = moment.strftime(_FORMATS[self.times])
        if self.times == "american":
            return text.replace("AM", "am").replace(" 0000", " +00:00")
        return text

    def value(self, value: float) -> str:
        return repr(value).replace(".", self.decimal)

    def write(self, file: Path, rows: Sequence[Sequence[str]]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, delimiter=self.delimiter, quoting=self.quoting, lineterminator=self.line_end)
        writer.writerows(rows)
        file.write_bytes(text.getvalue().encode(self.encoding))


dialects = st.builds(
    Dialect,
    st.sampled_from(",;\t|"),
    st.sampled_from(".,"),
    st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from(sorted(_FORMATS)),
    st.sampled_from([UTC, timezone(timedelta(hours=2)), timezone(timedelta(hours=-3, minutes=-30))]),
)
samples = st.tuples(
    names,
    st.integers(BEGIN, END),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0, 0x40000000, 0x80000000, 0x80AB0000]),
)
tables = st.lists(samples, min_size=1, max_size=20, unique_by=lambda row: (channel_name(row[0]), row[1]))


def read(reader: FileReader) -> list[Row]:
    found = []
    for portion in reader.portions():
        s = portion.samples
        columns = (s.channel, s.time, s.value, s.status)
        found += [
            (reader.names[channel], time, value, status)
            for channel, time, value, status in zip(*(column.tolist() for column in columns), strict=True)
        ]
    return found


def bits(rows: Sequence[Row]) -> list[tuple[Any, ...]]:
    """In an order, with the bits of the values."""
    return sorted((name, time, np.float64(value).tobytes(), status) for name, time, value, status in rows)


@given(tables, dialects)
def test_long_table_is_read_back_to_the_bit(rows: list[Row], dialect: Dialect) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "long.csv"
        header = ("Quality", "Tag", "Value", "Timestamp")
        cells = [(hex(status), name, dialect.value(value), dialect.time(time)) for name, time, value, status in rows]
        dialect.write(file, [header, *cells])
        reader = CsvFile(file, find_layout(file, dialect.options()), characters=200)
        expected = [(channel_name(name), time, value, status) for name, time, value, status in rows]
        assert bits(read(reader)) == bits(expected)
        checked = check(reader, NOW, LIMITS, lambda done: None)
        assert checked.samples == len(rows) == int(checked.counts.sum())
        assert [int(checked.first.min()), int(checked.last.max())] == [min(r[1] for r in rows), max(r[1] for r in rows)]


@given(tables, dialects)
def test_wide_table_is_read_back_to_the_bit(rows: list[Row], dialect: Dialect) -> None:
    expected = [(channel_name(name), time, value, 0) for name, time, value, _ in rows]
    columns = sorted({name for name, *_ in expected} - {"time"})
    expected = [row for row in expected if row[0] in columns]
    if not expected:
        return
    values = {(name, time): value for name, time, value, _ in expected}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "wide.csv"
        lines = [
            [
                dialect.time(time),
                *(dialect.value(values[name, time]) if (name, time) in values else "" for name in columns),
            ]
            for time in sorted({time for _, time in values})
        ]
        dialect.write(file, [["When", *columns], *lines])
        options = dialect.options()
        layout = find_layout(file, Options(**{**_fields(options), "columns": {"When": "time"}}))
        assert bits(read(CsvFile(file, layout, characters=200))) == bits(expected)


def _fields(options: Options) -> dict[str, Any]:
    return {name: getattr(options, name) for name in Options.__slots__}


@given(st.lists(st.integers(BEGIN, END).map(lambda us: us - us % 1_000_000), min_size=1, max_size=20))
def test_local_times_are_those_of_the_zone(times: list[int]) -> None:
    moments = [utc(us).astimezone(BERLIN) for us in times]
    texts = [moment.strftime("%Y-%m-%d %H:%M:%S") for moment in moments]
    format_ = detect(texts, BERLIN)
    twice = [moment.replace(fold=1).utcoffset() != moment.replace(fold=0).utcoffset() for moment in moments]
    if any(twice):
        with pytest.raises(BadField, match=texts[twice.index(True)]):
            format_.parse(texts)
        return
    assert format_.parse(texts).tolist() == times


@pytest.mark.parametrize(("ambiguous", "hour"), [("first", 0), ("second", 1)])
def test_ambiguous_time_as_the_user_says(ambiguous: Any, hour: int) -> None:
    parsed = detect(["2026-10-25 02:30:00"], BERLIN, ambiguous=ambiguous).parse(["2026-10-25 02:30:00"])
    assert utc(int(parsed[0])) == datetime(2026, 10, 25, hour, 30, tzinfo=UTC)


@given(
    st.lists(st.integers(-3, 30), min_size=1, max_size=20, unique=True),
    st.sampled_from(["long", "wide", "by channel"]),
    st.integers(10, 400),
)
def test_order_of_lines_tells_which_one_is_meant(quarters: list[int], form: str, characters: int) -> None:
    """Both hours of the change have a sample in each quarter."""
    start = microseconds(datetime(2026, 10, 25, tzinfo=UTC))  # an hour before the clocks go back
    times = sorted({start + quarter * 900_000_000 for quarter in (*range(8), *quarters)})
    texts = [utc(us).astimezone(BERLIN).strftime("%d.%m.%Y %H:%M:%S") for us in times]
    lines = {
        "long": [f"{channel};{text};1" for text in texts for channel in "ab"],
        "by channel": [f"{channel};{text};1" for channel in "ab" for text in texts],
        "wide": [f"{text};1;1" for text in texts],
    }
    with TemporaryDirectory() as folder:
        file = Path(folder) / "local.csv"
        header = "time;a;b" if form == "wide" else "tag;time;value"
        file.write_text("".join(f"{line}\n" for line in (header, *lines[form])))
        options = Options(zone=BERLIN, ambiguous="order")
        reader = CsvFile(file, find_layout(file, options), characters)
        assert sorted(read(reader)) == sorted((channel, time, 1.0, 0) for channel in "ab" for time in times)
        file.write_text("".join(f"{line}\n" for line in (header, *reversed(lines[form]))))
        with pytest.raises(OperationError, match="legal: lines in the order of time"):
            read(CsvFile(file, find_layout(file, options), characters))


@pytest.mark.parametrize(
    "minutes",
    [(10, 10, 20), (0, 10, 10), (10, 10, 10), (10, 10, 0)],
)
def test_repeated_line_is_not_taken_for_the_second_hour(minutes: tuple[int, ...]) -> None:
    start = microseconds(datetime(2026, 10, 25, tzinfo=UTC))
    times = np.array([start + 60_000_000 * minute for minute in minutes])
    hour = np.full(3, HOUR_US)
    with pytest.raises(BadField) as error:
        LineOrder().resolve(np.zeros(3, np.int32), times, hour)
    assert (error.value.index, error.value.found) == (2, "equal times of a channel up to here")


def test_two_equal_times_in_the_order_of_lines_are_both_hours() -> None:
    """As with a sample an hour; a year later, too."""
    start = [microseconds(datetime(year, 10, day, tzinfo=UTC)) for year, day in ((2025, 26), (2026, 25))]
    times = np.repeat(np.array(start), 2)
    resolved = LineOrder().resolve(np.zeros(4, np.int32), times, np.full(4, HOUR_US))
    assert (resolved - times).tolist() == [0, HOUR_US, 0, HOUR_US]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1773100800", "2026-03-10T00:00:00"),
        ("1773100800.25", "2026-03-10T00:00:00.250000"),
        ("1773100800123", "2026-03-10T00:00:00.123000"),
        ("1773100800123456789", "2026-03-10T00:00:00.123456"),
        ("10-Mar-26 01:02:03.5", "2026-03-10T01:02:03.500000"),
        ("3/31/2026 12:00 AM", "2026-03-31T00:00:00"),
        ("31/3/2026 12:00 PM", "2026-03-31T12:00:00"),
        ("2026/03/10 01:02:03,123456789", "2026-03-10T01:02:03.123456"),
        ("2026-03-10T01:02:03.123456789", "2026-03-10T01:02:03.123456"),
        ("20260310T010203", "2026-03-10T01:02:03"),
        ("20260310 010203.25", "2026-03-10T01:02:03.250000"),
        ("20260310", "2026-03-10T00:00:00"),
        ("2026-03-10", "2026-03-10T00:00:00"),
        ("10.03.2026", "2026-03-10T00:00:00"),
        ("13/3/2026", "2026-03-13T00:00:00"),
        ("13-03-70", "1970-03-13T00:00:00"),
        ("20.03.26", "2026-03-20T00:00:00"),
        ("10 March 2026 01:02", "2026-03-10T01:02:00"),
        ("2026-Mar-10 01:02:03", "2026-03-10T01:02:03"),
        ("March 10, 2026 1:02 PM", "2026-03-10T13:02:00"),
        ("Mar 10 2026", "2026-03-10T00:00:00"),
    ],
)
def test_time_in_the_ways_of_other_systems(text: str, expected: str) -> None:
    zone = None if text.startswith("1773") else ZoneInfo("UTC")
    (parsed,) = detect([text], zone).parse([text])
    assert utc(int(parsed)) == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(("order", "day"), [("ymd", (2026, 3, 20)), ("dmy", (2020, 3, 26))])
def test_year_of_two_digits_is_first_if_the_user_says_so(order: Any, day: tuple[int, int, int]) -> None:
    (parsed,) = detect(["26-03-20 10:00:00"], ZoneInfo("UTC"), order).parse(["26-03-20 10:00:00"])
    assert utc(int(parsed)) == datetime(*day, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "codes", "expected"),
    [
        ("Good", "opcua", 0),
        ("", "opcua", 0),
        ("0", "opcua", 0),
        ("2147483648", "opcua", 0x80000000),
        ("1152", "opcua", 0x480),
        ("0x480", "opcua", 0x480),
        ("192", "opcda", 0),
        ("64", "opcda", 0x40000000),
        ("0", "opcda", 0x80000000),
        ("216", "opcda", 0),
    ],
)
def test_status(text: str, codes: Any, expected: int) -> None:
    assert parse_statuses([text], codes).tolist() == [expected]


def test_long_file_without_header_has_channel_time_value(tmp_path: Path) -> None:
    file = tmp_path / "pi.csv"
    file.write_text("SINUSOID,10-Mar-26 13:45:00,50.1\n\\\\server\\CDT 158,10-Mar-26 13:45:00.25,1e3\n")
    reader = CsvFile(file, find_layout(file, Options(zone=ZoneInfo("UTC"))))
    assert [(row[0], row[2]) for row in read(reader)] == [("SINUSOID", 50.1), ("server/CDT%20158", 1000.0)]


IGNITION = (
    '"#NAMES"\n"t_stamp","[default]Oven/Temp"\n"#TYPES"\n"date","D"\n"#ROWS","2"\n'
    '"2026-03-10 13:45:00.000","1.5"\n"2026-03-10 13:45:01.000",""\n'
)


def test_dataset_of_ignition(tmp_path: Path) -> None:
    file = tmp_path / "ignition.csv"
    file.write_text(IGNITION)
    reader = CsvFile(file, find_layout(file, Options(zone=ZoneInfo("UTC"))))
    assert read(reader) == [("%5Bdefault%5DOven/Temp", microseconds(datetime(2026, 3, 10, 13, 45, tzinfo=UTC)), 1.5, 0)]
    file.write_text(IGNITION.replace('"2"', '"3"'))
    with pytest.raises(OperationError, match=r"ignition\.csv:7: line: found '2 rows'; legal: 3, as the file says"):
        read(CsvFile(file, find_layout(file, Options(zone=ZoneInfo("UTC")))))


def test_system_state_of_pi_is_a_bad_sample(tmp_path: Path) -> None:
    file = tmp_path / "pi.csv"
    file.write_text("TAG,10-Mar-26 13:45:00,I/O Timeout\nTAG,10-Mar-26 13:45:01,2\n")
    reader = CsvFile(file, find_layout(file, Options(zone=ZoneInfo("UTC"))))
    assert [row[2:] for row in read(reader)] == [(0.0, 0x800A0000), (2.0, 0)]
    file.write_text("time,TAG,TAG2\n2026-03-10 13:45:00,Pt Created,1\n")
    assert [row[2:] for row in read(CsvFile(file, find_layout(file, Options(zone=ZoneInfo("UTC")))))] == [
        (0.0, 0x809B0000),
        (1.0, 0),
    ]


def line_protocol(text: str) -> str:
    return "".join(f"\\{char}" if char in ", =" else char for char in text)


@given(tables, st.sampled_from([1, 1000]), st.sampled_from(["", "# a comment\n"]))
def test_line_protocol_is_read_back_to_the_bit(rows: list[Row], unit: int, comment: str) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "points.lp"
        named = {encoded(name) for name, *_ in rows}
        unique = {(encoded(name), time): (name, time, value) for name, time, value, _ in rows}
        lines = [
            f'oven,tag={line_protocol(name)} f={value!r},text="a b" {time * unit}\n'
            for name, time, value in unique.values()
        ]
        file.write_text(comment + "".join(lines))
        assert is_line_protocol(file)
        reader = LineProtocolFile(file, "x/{tag.tag}", ["text"], size=100)
        expected = [(f"x/{name}", time, value, 0) for (name, time), (_, _, value) in unique.items()]
        assert bits(read(reader)) == bits(expected)
        assert set(reader.names) == {f"x/{name}" for name in named}


def test_second_value_of_a_time_is_found_across_portions(tmp_path: Path) -> None:
    file = tmp_path / "long.csv"
    file.write_text("tag,time,value\n" + "a,2026-03-10 10:00:00Z,1\n" * 3 + "a,2026-03-10 10:00:00Z,2\n")
    layout = find_layout(file, Options())
    with pytest.raises(OperationError, match=r"long\.csv:5: value: found '2'"):
        check(CsvFile(file, layout, characters=10), NOW, LIMITS, lambda done: None)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5)), min_size=1, max_size=40),
    st.sampled_from(["first", "last"]),
    st.integers(10, 200),
)
def test_one_of_equal_times_stays_across_portions(
    keys: list[tuple[str, int]], duplicates: Any, characters: int
) -> None:
    """The lines of each channel are in the order of time."""
    rows = [(name, second, value) for value, (name, second) in enumerate(sorted(keys, key=lambda key: key[1]))]
    in_order = rows if duplicates == "last" else rows[::-1]
    expected = {(name, second): float(value) for name, second, value in in_order}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "long.csv"
        lines = (f"{name},2026-03-10 10:00:0{second}Z,{value}\n" for name, second, value in rows)
        file.write_text("tag,time,value\n" + "".join(lines))
        reader, kept = CsvFile(file, find_layout(file, Options()), characters), list[ImportPortion]()
        checked = check(reader, NOW, LIMITS, kept.append, duplicates)
    begin = microseconds(datetime(2026, 3, 10, 10, tzinfo=UTC))
    samples = joined(kept).samples
    columns = (samples.channel.tolist(), samples.time.tolist(), samples.value.tolist())
    assert {(reader.names[c], (us - begin) // 10**6): value for c, us, value in zip(*columns, strict=True)} == expected
    assert len(samples) == len(expected) == checked.samples
    assert checked.dropped == len(rows) - len(expected)
    assert checked.describe()[-1] == (
        "twice",
        f"the {duplicates} of equal channel and time stays: {checked.dropped:,} left out",
    )


@pytest.mark.parametrize("form", ["wide", "long", "parquet"])
def test_names_have_a_prefix_or_are_renamed(form: str, tmp_path: Path) -> None:
    (tmp_path / "names.csv").write_text("TI 101,mill/temperature\n\nPI-7,mill/pressure\n")
    names = load_names("north/", tmp_path / "names.csv")
    file = tmp_path / f"history.{form}"
    text = {"wide": "time,TI 101,PI-7,FI 3\n2026-03-10 10:00:00Z,1,2,3\n", "long": "tag,time,value\n"}
    for value, tag in enumerate(("TI 101", "PI-7", "FI 3"), 1):
        text["long"] += f"{tag},2026-03-10 10:00:00Z,{value}\n"
    if form == "parquet":
        columns = {"tag": ["TI 101", "PI-7", "FI 3"], "time": ["2026-03-10 10:00:00Z"] * 3, "value": [1.0, 2.0, 3.0]}
        pq.write_table(pa.table(columns), file)
        reader: FileReader = ParquetFile(file, Options(names=names))
    else:
        file.write_text(text[form])
        reader = CsvFile(file, find_layout(file, Options(names=names)))
    found = {name: value for name, _, value, _ in read(reader)}
    assert found == {"mill/temperature": 1.0, "mill/pressure": 2.0, "north/FI%203": 3.0}
    names.require_used()
    assert list(reader.describe())[-2:] == [
        ("prefix", "north/"),
        ("renamed", "TI 101 = mill/temperature, PI-7 = mill/pressure"),
    ]


_CELLS = st.text(st.sampled_from("0123456789.eE+-_ nafiNTru\t"), max_size=6)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b c", "", " ", "x" * 300, "ü"]),
            st.sampled_from(["2026-03-10T10:00:00Z", "2026-03-10T10:00:00.5Z", "2026-02-30T10:00:00Z", "now", ""]),
            st.one_of(st.sampled_from(["1", "1.5", "-0", "1e3", "1e999", "I/O Timeout"]), _CELLS),
            st.sampled_from(["", "Good", "bad", "0x80000000", "so so"]),
            st.sampled_from(["\n", "\n", "\n", "\r\n", "\r", ",\n", "\n\n"]),
        ),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_blocks_mean_the_same_as_their_lines(rows: list[tuple[str, ...]], wide: bool) -> None:
    def result(file: Path) -> object:
        try:
            columns: Any = {"note": "ignore"} if wide else {}
            return bits(read(CsvFile(file, find_layout(file, Options(columns=columns, decimal=".")), characters=60)))
        except OperationError as error:
            return str(error)

    with TemporaryDirectory() as folder:
        file = Path(folder) / "x.csv"
        if wide:
            lines = [f"{time},{value},{name}{end}" for name, time, value, _, end in rows]
            file.write_bytes("".join(["time,a/b,note\n", *lines]).encode())
        else:
            lines = [f"{name},{time},{value},{status}{end}" for name, time, value, status, end in rows]
            file.write_bytes("".join(["tag,time,value,quality\n", *lines]).encode())
        with patch.object(csv_file, "usual_portion", return_value=None):
            expected = result(file)
        assert result(file) == expected


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("wide", [False, True])
def test_integers_that_no_double_is_equal_to_are_rounded_and_known(wide: bool, quote: str, tmp_path: Path) -> None:
    """In blocks and in lines."""
    texts = ["9007199254740992", "9007199254740993", "-9007199254740993", "1e300", "0", "12345678901234567.8"]
    lines = [f"{name},2026-03-10 10:00:00Z,{quote}{text}{quote}" for name, text in zip("abcdef", texts, strict=True)]
    table = f"time,{','.join('abcdef')}\n2026-03-10 10:00:00Z,{','.join(f'{quote}{one}{quote}' for one in texts)}\n"
    file = tmp_path / "counters.csv"
    file.write_text(table if wide else "tag,time,value\n" + "\n".join(lines) + "\n")
    reader = CsvFile(file, find_layout(file, Options()))
    values = np.concatenate([portion.samples.value for portion in reader.portions()])
    assert values.tolist() == list(map(float, texts))
    assert {reader.names[place] for place in reader.rounded} == {"b", "c"}


_VALUES: dict[str, Callable[[int], float]] = {  # by the line
    "counter": lambda i: 7.25 + i // 2,
    "counter_with_bad_samples": lambda i: 40 + i if i % 20 else 0,
    "reset": lambda i: i % 50,
    "few_rises": lambda i: 100 + i // 10,
    "state": lambda i: i // 10 % 3,
    "constant": lambda i: 1,
    "many_whole_values": lambda i: i % 9,
    "large_values": lambda i: 90 + i % 2 * 6,
    "fractions": lambda i: i % 2 / 2,
}


@pytest.mark.parametrize("characters", [200, 100_000])
def test_values_of_counters_and_states_are_known(characters: int, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    lines = [
        f"{name},{1_577_836_800 + i},{value(i)},{'Good' if i % 20 else 'Bad'}"
        for i in range(60)
        for name, value in _VALUES.items()
    ]
    file.write_text("\n".join(["tag,time,value,status", *lines, ""]))
    with patch.object(csv_file, "_CHARACTERS", characters):
        checked = check(CsvFile(file, find_layout(file, Options())), NOW, LIMITS, lambda _: None)
    kinds = {name: checked.forms.kind(place) for place, name in enumerate(checked.reader.names)}
    like = {"counter": "counter", "counter_with_bad_samples": "counter", "state": "discrete"}
    assert kinds == dict.fromkeys(_VALUES, "analog") | like
