"""Times on the command line and in printed rows: UTC, whatever the machine's time zone is; values in CSV and JSON."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone

import pytest
from rich.console import Console

from history.questions.ask import parse_time
from history.sql.output import Answer, show, write_csv, write_json

NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York"])
def _zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-03-29T02:30:00", datetime(2026, 3, 29, 2, 30, tzinfo=UTC)),
        ("2026-03-29", datetime(2026, 3, 29, tzinfo=UTC)),
        ("2026-03-29 02:30+02:00", datetime(2026, 3, 29, 0, 30, tzinfo=UTC)),
        ("2026-03-29T02:30:00Z", datetime(2026, 3, 29, 2, 30, tzinfo=UTC)),
        ("1d", NOW - timedelta(days=1)),
        ("now", NOW),
    ],
)
def test_a_time_without_an_offset_is_utc(text: str, moment: datetime) -> None:
    assert parse_time("--from", text, NOW) == moment


@pytest.mark.usefixtures("_zone")
def test_only_a_time_with_a_zone_is_printed_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    """Times of questions are in UTC, those of SQL in the zone of --time-zone, whatever that of the machine is."""
    zoned = datetime(2026, 3, 29, 2, 30, 0, 500_000, timezone(timedelta(hours=2)))
    show(Answer(("a", "b"), [(zoned, zoned.replace(tzinfo=None))]), 0, Console())
    assert "│ 2026-03-29 02:30:00.5+02:00 │ 2026-03-29 02:30:00.5 │" in capsys.readouterr().out


def test_row_of_a_narrow_table_breaks_no_time_and_lists_few_names(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"boilerhouse/boiler1/tube{i}_temperature" for i in range(9)]
    row = ("boilerhouse/boiler1", NOW + timedelta(microseconds=123456), None, 8.41234567, names)
    answer = Answer(("unit", "departed_at", "returned_at", "score", "channels"), [row, row])
    show(answer, 0, Console(width=100), items=3)
    lines = capsys.readouterr().out
    assert lines.count("2026-03-29 12:00:00.123456Z") == 2
    assert "and 6 more" in " ".join(lines.split())
    assert "['" not in lines
    show(Answer(("list",), [(["a", "b", 3, 4.5],)]), 0, Console())
    assert "│ a, b, 3, 4.5 │" in capsys.readouterr().out, "a query shows all of them"


def test_csv_tells_what_is_no_number_from_null_and_json_has_neither(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(
        ("a", "b", "c", "d"), [(math.nan, -math.inf, None, 0.5), ([1, None, "x"], b"\xab", timedelta(1), "")]
    )
    write_csv(answer)
    assert capsys.readouterr().out == 'a,b,c,d\nnan,-inf,,0.5\n"[1, null, ""x""]",ab,86400.0,\n'
    write_json(answer)
    rows = [tuple(row.values()) for row in json.loads(capsys.readouterr().out)]
    assert rows == [(None, None, None, 0.5), ([1, None, "x"], "ab", 86400.0, "")]
