"""Macros and variables become parameters: whatever a browser sends, the statement's text is ours."""

from __future__ import annotations

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import QueryError
from dashboards.viewer.macros import ChartRange, expand
from dashboards.viewer.panel_query import parse_query

_SINCE, _UNTIL = datetime(2026, 3, 9, 10, tzinfo=UTC), datetime(2026, 3, 9, 11, tzinfo=UTC)
_OVER = ChartRange(_SINCE, _UNTIL, 15_000)


def test_macros_equal_those_of_grafana() -> None:
    sql, parameters = expand(
        "SELECT WHERE $__timeFilter(e.time) AND $__timeFrom()::text > y AND z < $__timeTo() AND 1 < $__interval_ms",
        {},
        _OVER,
    )
    assert sql == (
        "SELECT WHERE e.time BETWEEN $1::timestamptz AND $2::timestamptz AND $3::timestamptz::text > y "
        "AND z < $4::timestamptz AND 1 < 15000"
    )
    assert parameters == [_SINCE, _UNTIL, _SINCE, _UNTIL]


def test_variables_become_query_parameters() -> None:
    sql, parameters = expand(
        "a IN (${area:sqlstring}) AND b = ${unit:sqlstring}", {"area": ["x", "y"], "unit": []}, _OVER
    )
    assert sql == "a IN ($1::text, $2::text) AND b = $3::text"
    assert parameters == ["x", "y", ""]


@pytest.mark.parametrize(
    "sql", ["$__timeGroup(x, '1m')", "${unit}", "${unit:raw}", "${other:sqlstring}", "[[unit]]", "${unit"]
)
def test_unknown_macro_is_refused(sql: str) -> None:
    with pytest.raises(QueryError):
        expand(sql, {"unit": ["x"]}, _OVER)


@given(st.lists(st.text(max_size=40), min_size=1, max_size=5))
def test_no_value_is_inserted_into_sql_text(values: list[str]) -> None:
    sql, parameters = expand("SELECT 1 WHERE a IN (${v:sqlstring})", {"v": values}, _OVER)
    assert re.fullmatch(r"SELECT 1 WHERE a IN \((\$\d::text(, )?)+\)", sql)
    assert parameters == values


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"dashboard": "d", "since": 2, "until": 1}',
        b'{"dashboard": "d", "since": 0, "until": 1, "sql": "SELECT 1"}',
        b'{"dashboard": "d", "since": "0", "until": 1}',
        b'{"dashboard": "d", "since": 0, "until": 1e300}',
        b'{"dashboard": "d", "since": 0, "until": 1, "interval": 0}',
        b'{"dashboard": "d", "since": 0, "until": 1, "interval": "1; DROP TABLE x"}',
        b'{"dashboard": "d", "since": 0, "until": 1, "variables": {"a": "x"}}',
        b'{"dashboard": "d", "since": 0, "until": 1, "variables": {"a": [1]}}',
    ],
)
def test_every_field_of_a_query_body_is_checked(body: bytes) -> None:
    with pytest.raises(QueryError) as error:
        parse_query(body)
    assert error.value.status == 400


def test_number_of_points_is_bounded() -> None:
    body = b'{"dashboard": "d", "since": 0, "until": 31536000000, "interval": 1}'
    assert parse_query(body).time_range.interval_ms == 31536000000 // 5000
