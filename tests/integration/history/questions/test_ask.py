"""``plantlog ask``: the real command against a real database."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import shlex
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import OperationError
from core.paths import CHECKOUT, State
from history.notebook import ask
from schema.question_files import REFERENCE, questions
from tests import docs
from tests.command import CommandResult
from tests.command import run as plantlog
from tests.database import Database
from tests.integration.history.questions.recording import Recording, at
from tests.waiting import PATIENCE

FROM, TO = at(3600).isoformat(), at(4200).isoformat()
_AWAY = ("--reference", f"{at(-9000).isoformat()}..{at(-7200).isoformat()}")  # there are no samples


def run(state: Path, *words: str) -> CommandResult:
    return plantlog(state, "ask", *words)


@pytest.fixture
async def state(database: Database, recorded: Recording, tmp_path: Path) -> Path:
    """A state folder whose database has a sensor that is stuck from 3900 s on, and one that is not."""
    seconds = np.arange(0.0, 4200.0)
    random = np.random.default_rng(1)
    await recorded.channel("unit/x_1", unit="bar")
    await recorded.samples("unit/x_1", seconds, np.where(seconds >= 3900, 51.5, random.normal(50, 1, 4200)))
    await recorded.samples("unit/xy1", seconds, random.normal(50, 1, 4200))
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "reader.dsn").write_text(database.reader_dsn)
    return tmp_path


def test_table_csv_and_json_are_equal(state: Path) -> None:
    question = ("stuck_sensors", "--from", FROM, "--to", TO)
    table = run(state, *question)
    assert table.code == 0, table.err
    assert "unit/x_1" in table.out
    assert "2026-03-09 11:05:00Z" in table.out
    [row] = json.loads(run(state, *question, "--json").out)
    assert (row["channel"], row["stuck_from"], row["value"]) == ("unit/x_1", at(3900).isoformat(), 51.5)
    [line] = csv.DictReader(io.StringIO(run(state, *question, "--csv").out))
    assert line == {name: "" if value is None else str(value) for name, value in row.items()}


def test_ask_takes_channels_and_a_time(state: Path) -> None:
    around = ("stuck_sensors", "--at", at(3900).isoformat(), "--around", "300s", "--json")
    assert [row["channel"] for row in json.loads(run(state, *around).out)] == ["unit/x_1"]
    assert json.loads(run(state, *around, "--hold", "10 min").out) == []
    assert json.loads(run(state, *around, "--hold=10 min").out) == []
    assert len(json.loads(run(state, *around, "-c", "unit/*").out)) == 1
    # _ is a letter as others are: unit/xy1 is not meant by it, nor the other way round
    assert json.loads(run(state, *around, "-c", "unit/xy1").out) == []
    nothing = run(state, "stuck_sensors", "--from", FROM, "--to", TO, "--hold", "10 min")
    assert nothing.out.splitlines()[0] == "no rows"
    assert nothing.out.splitlines()[2:] == ["2 channels judged"]
    assert nothing.out.splitlines()[1].startswith("hold 10 min, reference: 1 h before (")


def test_coverage_without_rows_says_that_nothing_is_missing(state: Path) -> None:
    coverage = ("gaps_and_coverage", "--from", at(1000).isoformat(), "--to", at(2000).isoformat())
    found = run(state, *coverage).out.splitlines()[0]
    assert found == "no rows: nothing is missing in 2 channels; --complete true lists them"


async def test_answer_whose_rows_name_no_channel_is_not_drawn(state: Path, recorded: Recording) -> None:
    await recorded.event(1500, "overload", "began")
    question = ("timeline", "--from", at(1499).isoformat(), "--to", at(1501).isoformat())
    shown = await asyncio.to_thread(run, state, *question, "--plot", str(state / "drawn.svg"))
    assert "overload" in shown.out, shown.err
    assert "not drawn: no row names a channel that has a curve" in shown.out
    assert not (state / "drawn.svg").exists()


async def test_an_answer_without_rows_says_what_was_judged(state: Path, recorded: Recording) -> None:
    await recorded.channel("unit/mode", kind="text")
    for number in range(6):
        await recorded.channel(f"unit/empty{number}")
    await recorded.samples("unit/new", np.arange(3600.0, 4200.0), np.ones(600))
    quiet = ("-c", "unit/xy1", "-c", "unit/mode", "-c", "unit/empty*", "-c", "unit/new")
    question = ("excursions", "--from", FROM, "--to", TO, "--false-alarms", "7 days", *quiet)
    shown = await asyncio.to_thread(run, state, *question)
    note = [
        "no rows",
        "short 3 s, long 1 min, reference: 1 h 40 min before (2026-03-09 09:20:00Z to 2026-03-09 11:00:00Z), "
        "one false alarm of all channels together in 7 d",
        "1 channel judged",
        "6 channels not judged, no samples in the interval: "
        "unit/empty0, unit/empty1, unit/empty2, unit/empty3, unit/empty4 and 1 more",
        "1 channel not judged, not analog: unit/mode",
        "1 channel not judged, too few samples in the reference: unit/new",
    ]
    assert shown.out.splitlines() == note
    as_json = await asyncio.to_thread(run, state, *question, "--json")
    assert (json.loads(as_json.out), as_json.err.splitlines()) == ([], note)


def test_a_table_is_cut_at_its_limit(state: Path) -> None:
    words = ("correlation", "--from", FROM, "--to", TO, "--target", "unit/x_1", "--least-correlation", "0")
    assert "more rows" not in run(state, *words).out
    cut = run(state, "gaps_and_coverage", "--from", FROM, "--to", TO, "--complete", "true", "--limit", "1")
    assert "1 more row (--limit 0 prints all)" in cut.out


def test_a_question_with_many_columns_fits_a_terminal(state: Path) -> None:
    words = ("gaps_and_coverage", "--from", FROM, "--to", TO, "--complete", "true")
    several = run(state, *words).out
    assert max(len(line) for line in several.splitlines()) <= 100
    assert "10 more columns with --csv or --json, or for a single channel" in several
    assert "expected" not in several
    one = run(state, *words, "-c", "unit/x_1").out.splitlines()
    assert [line.split()[0] for line in one][:3] == ["channel", "covered", "samples"]
    assert len(one) == 16
    assert json.loads(run(state, *words, "--json").out)[0].keys() >= {"expected", "missing", "good"}


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("2026-03-09T10:30Z..2026-03-09T11:05Z", "it overlaps the interval from --from to --to"),
        ("2026-03-09T10:30Z..2026-03-09T10:30Z", "legal: FROM..TO with FROM before TO"),
        ("2026-03-09T10:30Z..2026-03-09T10:20Z", "legal: FROM..TO with FROM before TO"),
        ("5m..10m", "legal: FROM..TO with FROM before TO"),
        ("yesterday..today", "--reference: found 'yesterday'; legal: a time such as"),
        ("2100-01-01..2100-01-02", "legal: an interval of the past"),
        ("2026-03-09T10:55Z", "it overlaps the interval from --from to --to"),
    ],
)
@pytest.mark.parametrize(
    "question",
    [one.name for one in questions().values() if any(parameter.type == REFERENCE for parameter in one.parameters)],
)
def test_bad_reference_is_an_error(state: Path, question: str, reference: str, message: str) -> None:
    failed = run(state, question, "--from", FROM, "--to", TO, "--reference", reference)
    assert (failed.code, message in failed.err) == (1, True), failed.err


def test_reference_without_an_end_is_as_long_as_the_interval(state: Path) -> None:
    question = ("what_changed", "--from", FROM, "--to", TO, "--reference", at(1200).isoformat())
    shown = run(state, *question)
    assert "reference: 10 min (2026-03-09 10:20:00Z to 2026-03-09 10:30:00Z)" in shown.out, shown.err


@pytest.mark.parametrize("ending", ["csv", "parquet", "arrow"])
def test_rows_are_written_to_a_file(state: Path, ending: str) -> None:
    file = state / f"rows.{ending}"
    question = ("stuck_sensors", "--from", FROM, "--to", TO)
    rows = json.loads(run(state, *question, "--json").out)
    done = run(state, *question, "--output", str(file))
    assert done.out == f"{file}: 1 row\n", done.err
    assert "2 channels judged" in done.err
    if ending == "csv":
        [written] = csv.DictReader(io.StringIO(file.read_text()))
        assert (written["channel"], written["stuck_from"][:19]) == ("unit/x_1", "2026-03-09 11:05:00")
        return
    table = pq.read_table(file) if ending == "parquet" else pa.ipc.open_file(file).read_all()
    assert table.column_names == list(rows[0])
    assert table["stuck_from"].type == pa.timestamp("us", "UTC")
    assert [(row["channel"], row["stuck_from"].isoformat()) for row in table.to_pylist()] == [
        (row["channel"], row["stuck_from"]) for row in rows
    ]


def test_answer_says_what_it_depends_on_and_what_was_judged(state: Path) -> None:
    moved = ("first_mover", "--from", FROM, "--to", TO)
    lines = run(state, *moved).out.splitlines()
    [depends] = [line for line in lines if line.startswith("step 1 s, ")]
    assert "reference: 1 h 40 min before (2026-03-09 09:20:00Z to 2026-03-09 11:00:00Z)" in depends
    assert "2 channels judged" in lines
    chosen = run(state, *moved, "--reference", f"{at(0).isoformat()}..{at(1800).isoformat()}").out
    assert "reference: 30 min (2026-03-09 10:00:00Z to 2026-03-09 10:30:00Z)" in chosen
    assert "one false alarm of all channels together in 3 h 20 min" in depends
    nothing = run(state, *moved, "--reference", "10 s").out
    assert "2 channels not judged, too few samples in the reference: unit/x_1, unit/xy1" in nothing
    assert nothing.startswith("no rows: nothing could be judged\n")


@pytest.mark.parametrize(
    ("question", "options", "line"),
    [
        (
            "broken_relation",
            (),
            "2 channels not judged, move with no other of their unit, "
            "nor with sisters, beyond chance in the reference: unit/x_1, unit/xy1",
        ),
        ("broken_relation", _AWAY, "2 channels not judged, too few samples in the reference: unit/x_1, unit/xy1"),
        ("compare", _AWAY, "2 channels not judged, too few samples in the reference: unit/x_1, unit/xy1"),
        ("compare", ("--reference", "5 min"), "2 channels judged as far as the reference goes, which is shorter: "),
        ("first_mover", ("--reference", "3 h"), "2 channels judged though most of their reference has no samples: "),
        ("excursions", ("--reference", "3 h"), "2 channels judged though most of their reference has no samples: "),
        ("stuck_sensors", ("--reference", "3 h"), "2 channels judged though most of their reference has no samples: "),
        ("stuck_sensors", _AWAY, "1 channel judged by hold alone, as their reference has no samples: unit/xy1"),
        ("change_points", ("--step", "60 s"), "2 channels not judged, too few samples in the interval: "),
        ("oscillation", (), "2 channels judged"),
        ("oscillation", ("--step", "2 s", "--reference", "1 h"), "step 2 s, reference: 1 h before ("),
    ],
)
def test_what_can_not_be_judged_and_what_can_is_said(
    state: Path, question: str, options: tuple[str, ...], line: str
) -> None:
    lines = run(state, question, "--from", FROM, "--to", TO, *options).out.splitlines()
    assert [one for one in lines if one.startswith(line)] != [], lines
    assert any(one.endswith("judged") and one.split()[1] in ("channel", "channels") for one in lines)


def test_a_short_reference_has_shorter_means(state: Path) -> None:
    departed = run(state, "departure", "--from", at(1200).isoformat(), "--to", TO, "--reference", "4 min").out
    assert "reference: 4 min before (2026-03-09 10:16:00Z to 2026-03-09 10:20:00Z), step 1 s" in departed
    assert "not judged" not in departed


def test_zero_seconds_ago_means_now(state: Path) -> None:
    assert run(state, "timeline", "--from", "1h", "--to", "0m").out.startswith("no rows: nothing could be judged\n")
    assert "is not before --to" in run(state, "timeline", "--from", "0s", "--to", "1h").err


def test_ask_without_a_name_lists_the_questions(tmp_path: Path) -> None:
    """Needs no database."""
    listed = run(tmp_path).out
    assert all(name in listed and question.purpose in listed for name, question in questions().items())
    described = run(tmp_path, "first_mover", "--describe").out
    assert "--step, --reference, --false-alarms, --sigmas" in described
    assert "CREATE" not in described
    longest = "Where several durations stand behind NULL, it is the longest of them."
    assert longest in described
    assert longest not in run(tmp_path, "interpolated", "--describe").out
    assert "--reference" in run(tmp_path, "--help").out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing",), "unknown question 'nothing'; known: aggregates, broken_relation, change_points, "),
        (("timeline",), "a time range is required: --from TIME"),
        (("timeline", "--at", "now", "--from", "1h"), "--at cannot be combined with --from and --to"),
        (("timeline", "--at", "noon"), "--at: found 'noon'; legal: a time such as"),
        (("timeline", "--at", "now", "--around", "5"), "--around: found '5'; legal: a duration"),
        (("timeline", "--from", TO, "--to", FROM), "is not before --to"),
        (
            ("timeline", "--from", "1h", "--output", "a.csv", "--csv"),
            "--output cannot be combined with --csv and --json",
        ),
        (("timeline", "--from", "1h", "--output", "a.txt"), "--output: found 'a.txt'; legal: a name that ends with"),
        (
            ("timeline", "--from", "1h", "-c", "unit/*", "-c", "nix*"),
            "--channel: no channel matches nix* (* matches any text)",
        ),
        (("timeline", "--from", "1h", "--foo", "1"), "timeline has no option '--foo'; legal: --instant, --busy"),
        (("first_mover", "--from", "1h", "--sigmas"), "--sigmas needs a value: float8"),
        (("first_mover", "--from", "1h", "--sigmas", "far"), "--sigmas: found 'far'; legal: a number from 0 on"),
        (("correlation", "--from", "1h", "-c", "x", "--target", "y"), "--channel, --target: no channel matches x, y"),
        (("correlation", "--from", "1h"), "correlation needs --target: name of the given channel"),
        (("correlation", "--from", "1h", "--target", "nix"), "--target: no channel matches nix"),
    ],
)
def test_impossible_ask_options_are_refused(state: Path, words: tuple[str, ...], message: str) -> None:
    done = run(state, *words)
    assert done.code == 1
    assert done.err.startswith("plantlog: "), done.err
    assert message in done.err
    assert done.out == ""


def test_ask_without_a_database_says_what_to_do(tmp_path: Path) -> None:
    assert "has no database yet: run `plantlog up`" in run(tmp_path, "timeline", "--from", "1h").err


def test_an_answer_is_a_table_of_arrow(state: Path) -> None:
    """Also where an event loop runs already, as in a notebook."""

    async def asked_in_an_event_loop() -> pa.Table:
        return ask("stuck_sensors", since=at(3600), until=TO, channels=["unit/*"], hold="2 min", state=State(state))

    table = asyncio.run(asked_in_an_event_loop())
    assert table.schema.field("stuck_from").type == pa.timestamp("us", "UTC")
    assert [(row["channel"], row["stuck_from"]) for row in table.to_pylist()] == [("unit/x_1", at(3900))]
    options: dict[str, Any] = {"since": FROM, "until": TO, "state": str(state)}
    held = ask("setpoint_changes", hold=timedelta(microseconds=1), **options)
    assert held.schema.field("held_at_least").type == pa.duration("us")
    wrong: tuple[tuple[str | None, dict[str, Any], str], ...] = (
        ("stuck_sensors", {"hole": "1 s"}, "stuck_sensors has no option '--hole=1 s'; legal: --hold"),
        (None, {}, "question: found None; legal: the name of a question"),
        ("stuck_sensors", {"state": 3}, "state: found 3; legal: the state folder of an appliance"),
        ("stuck_sensors", {"channels": [3]}, "channels: found 3; legal: a name"),
        ("stuck_sensors", {"limits": "2GiB"}, "limits: found '2GiB'; legal: Limits"),
        ("stuck_sensors", {"key": "plant.pem"}, "key: found 'plant.pem'; legal: no value for an appliance"),
    )
    for question, others, problem in wrong:
        with pytest.raises(OperationError, match=problem):
            ask(question, **{**options, **others})


def test_answers_are_tables_of_sql(state: Path) -> None:
    words = f"stuck_sensors --from {FROM} --to {TO} -c 'unit/*' --hold '2 min'"
    query = "SELECT s.channel, c.unit FROM stuck AS s JOIN channel AS c ON c.name = s.channel"
    done = plantlog(state, "sql", "--json", "--with", f"stuck={words}", query)
    assert json.loads(done.out) == [{"channel": "unit/x_1", "unit": "bar"}], done.err
    asked = run(state, *shlex.split(words), "--csv")
    assert asked.err.splitlines()
    assert done.err.splitlines() == [f"note: stuck: {line}" for line in asked.err.splitlines()]
    for wrong, message in (
        ("stuck", "--with: found 'stuck'; legal: NAME='QUESTION --from TIME"),
        ("stuck=nothing --from 1h", "unknown question 'nothing'"),
        ("stuck=timeline", "a time range is required"),
        (f"event={words}", "table event: there is one of this name"),
        ("stuck=timeline --from '1h", "--with stuck: No closing quotation"),
    ):
        failed = plantlog(state, "sql", "--with", wrong, "SELECT 1")
        assert (failed.code, message in failed.err) == (1, True), failed.err


def test_documented_program_prints_an_answer(state: Path) -> None:
    [program] = [block.text for block in docs.blocks("python") if "import ask" in block.text]
    environment = {**os.environ, "PLANTLOG_STATE": str(state), "PYTHONPATH": str(CHECKOUT)}
    text = program.replace("boilerhouse/*", "unit/*")
    run = [sys.executable, "-P", "-c", text]
    done = subprocess.run(run, env=environment, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
