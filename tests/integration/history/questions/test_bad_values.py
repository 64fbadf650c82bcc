"""Values of options that are not legal: the error names the option, what was found and what is legal."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import asyncpg
import pytest

from core.errors import OperationError, QueryError
from dashboards.viewer.library import PanelQuestion
from dashboards.viewer.macros import ChartRange
from dashboards.viewer.reader import ReaderPool
from history.questions.database_request import cast_by_postgresql
from history.questions.values import Cast, cast_by_duckdb, parse_values
from schema.question_files import REFERENCE, Parameter, questions
from tests.command import run
from tests.database import Database
from tests.integration.history.questions.recording import Recording, at

_WITH_RANGE = {  # of each range and type one
    (parameter.type, parameter.legal): (question.name, parameter)
    for question in questions().values()
    for parameter in question.parameters
    if parameter.legal is not None or parameter.type == REFERENCE
}
_BAD_LENGTHS = ("-1 us", "101 years", "1000000000 days", "10000000000 days", "infinity", "nan", "soon", "")
_BAD_REFERENCES = ("0 s", "-1 h", "101 years", "1000000000 days", "200000-01-01..200000-01-02", "..", "noon..now", "")


def bad_texts(parameter: Parameter) -> Iterator[str]:
    """Values of a parameter that are not legal."""
    if parameter.legal is None:
        yield from _BAD_REFERENCES
    elif parameter.type == "interval":
        yield from _BAD_LENGTHS
        yield from [] if parameter.legal.least == "0 s" else ["0 s"]
        yield from ["61 min"] if parameter.legal.most == "interval" else []
    else:
        least = float(parameter.legal.least)
        yield from ("nan", "inf", "-inf", "many", "", "1e999", f"{least - 1 - abs(least):g}")
        yield from ["1001"] if parameter.legal.most in ("1", "100") else []


@pytest.mark.parametrize("by_database", [True, False], ids=["postgresql", "duckdb"])
async def test_each_option_says_what_is_legal(database: Database, by_database: bool) -> None:
    """A connection is as good as before, so that nothing hangs, and the server has no error to log."""
    connection = await asyncpg.connect(database.reader_dsn)
    await connection.execute("BEGIN")  # an error would abort it
    cast: Cast = cast_by_postgresql(connection) if by_database else cast_by_duckdb()
    try:
        async with asyncio.timeout(300):
            for question, parameter in _WITH_RANGE.values():
                more = {"correlation": {"target": "unit/x"}, "excursions": {"long": "1 min"}}.get(question, {})
                arguments = {"since": at(0).isoformat(), "until": at(3600).isoformat(), **more}
                for text in bad_texts(parameter):
                    with pytest.raises(OperationError) as caught:
                        await parse_values(cast, questions()[question], {**arguments, parameter.name: text})
                    message = str(caught.value)
                    assert message.startswith(f"{parameter.option}: found {text!r}; legal: "), (question, message)
                values = await parse_values(cast, questions()[question], arguments)
                assert (values["since"], values["until"]) == (at(0), at(3600))
    finally:
        await connection.close(timeout=10)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("compare", "--warp", "-5m"), "--warp: found '-5m'; legal: a duration from 0 s to the interval (1 h)"),
        (
            ("correlation", "--target", "unit/*"),
            "--target: found 'unit/*'; legal: the name of one channel",
        ),
        (
            ("first_mover", "--false-alarms", "1000000000 days"),
            "--false-alarms: found '1000000000 days'; legal: a duration from 1 us to 100 years",
        ),
        (
            ("first_mover", "--step", "1 us"),
            "--step: found '1 us'; legal: a duration from a 1000000th of what is read (0.0036 s) to the interval (1 h)",
        ),
        (
            ("excursions", "--short", "2 min", "--long", "1 min"),
            "--short: found '2 min'; legal: a duration from 1 us to --long (1 min)",
        ),
        (("excursions", "--short", "2 min"), "--short: found '2 min'; legal: a duration from 1 us to --long (1 min)"),
        (("what_changed", "--least-score", "nan"), "--least-score: found 'nan'; legal: a number from 0 on"),
        (("timeline", "--busy", "1.5"), "--busy: found '1.5'; legal: a whole number from 0 on"),
        (("timeline", "--instant", "200000-01-01"), "--instant: found '200000-01-01'; legal: a time such as"),
        (("timeline", "--from", "0001-01-01"), "--from: found '0001-01-01T00:00:00+00:00'; legal: a time such as"),
        (("what_changed", "--to", "9999-12-31"), "--to: found '9999-12-31T00:00:00+00:00'; legal: a time such as"),
        (("timeline", "--from", "0001-01-01T00:00+05:00"), "--from: found '0001-01-01T00:00+05:00'; legal: a time"),
        (("gaps_and_coverage", "--complete", "perhaps"), "--complete: found 'perhaps'; legal: true or false"),
    ],
)
async def test_command_names_the_option(recorded: Recording, words: tuple[str, ...], message: str) -> None:
    await recorded.samples("unit/x", range(0, 3600), range(0, 3600))
    question, *options = words
    interval = ("--from", at(0).isoformat(), "--to", at(3600).isoformat())
    failed = await asyncio.to_thread(run, recorded.state.root, "ask", question, *interval, *options)
    assert (failed.code, failed.err.startswith(f"plantlog: {message}"), failed.out) == (1, True, ""), failed.err


async def test_viewer_and_sql_name_the_option_too(recorded: Recording) -> None:
    message = "--step: found '0 s'; legal: a duration from a 1000000th of what is read (0.0036 s) to the interval (1 h)"
    words = f"oscillation --from {at(0).isoformat()} --to {at(3600).isoformat()} --step '0 s'"
    failed = await asyncio.to_thread(run, recorded.state.root, "sql", "--with", f"swings={words}", "SELECT 1")
    assert (failed.code, message in failed.err) == (1, True), failed.err
    pool = ReaderPool(recorded.state.root)
    try:
        panel = PanelQuestion("oscillation", ["unit/*"], timedelta(hours=1), {"step": "0 s"})
        with pytest.raises(QueryError) as caught:
            await pool.ask(panel, ChartRange(at(0), at(3600), 100), "FROM answer", [])
    finally:
        await pool.close()
    assert str(caught.value) == message
