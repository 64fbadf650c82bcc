"""The command ``plantlog sql``: its output and prompt, and how its sessions begin and end."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from core.paths import CHECKOUT
from history.sql.session import opened
from history.sql.sources.reader import ReaderConnection
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import LIMITS, NEXT, Rows, archived_and_dropped, environment, rows_of
from tests.waiting import PATIENCE, until, until_sync


def run(plant: Maintained, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "ops", "sql", *arguments]
    options |= {"env": environment(plant), "timeout": PATIENCE}
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


@pytest.mark.slow
async def test_command_prints_tables_csv_and_json(plant: Maintained) -> None:
    def work() -> None:
        where = f"name = 'unit/pressure' AND time < '{DAY} 05:00:03Z'"
        query = f"SELECT name, time, value FROM samples_named WHERE {where} ORDER BY time"
        table = run(plant, query, "--limit", "2")
        assert "unit/pressure" in table.stdout
        assert table.stdout.splitlines()[-1] == "more rows (--limit 0 prints all)"
        assert run(plant, "--csv", input=query).stdout.splitlines() == [
            "name,time,value",
            *(f"unit/pressure,{DAY}T05:00:0{i}+00:00,{40 + i / 100}" for i in range(3)),
        ]
        [first, *_] = json.loads(run(plant, query, "--json").stdout)
        assert first == {"name": "unit/pressure", "time": f"{DAY}T05:00:00+00:00", "value": 40.0}
        wrong = run(plant, "SELECT nothing FROM samples")
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert wrong.stderr.startswith("plantlog: ")
        assert "Traceback" not in wrong.stderr

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_commands_start_without_what_they_do_not_need(plant: Maintained) -> None:
    """pyarrow imports pandas where it is installed, which takes as long as everything else; so do its processes."""
    assert importlib.util.find_spec("pandas")
    profiled = environment(plant) | {"PYTHONPROFILEIMPORTTIME": "1"}

    def imported(*arguments: str) -> set[str]:
        command = [sys.executable, "-P", "-m", "ops", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=profiled, timeout=PATIENCE)
        return {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}

    def work() -> None:
        slow = {"pandas.core", "polars", "cryptography", "aiohttp", "asyncua"}
        read = imported("sql", "SELECT count(*) FROM samples WHERE value > 0")
        assert "pyarrow.dataset" in read
        assert not read & (slow | {"rich.progress", "history.questions.ask", "history.sql.own_tables"})
        assert "history.sql.functions" not in read
        whole = ["--from", f"{DAY} 00:00", "--to", f"{NEXT} 23:00"]
        answered = imported("ask", "gaps_and_coverage", *whole)
        assert "history.questions.portions" in answered
        assert not answered & slow

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_each_statement_has_its_result(plant: Maintained, tmp_path: Path) -> None:
    (tmp_path / "lab.csv").write_text("batch,ph\na,7.1\nb,7.2\n")
    (tmp_path / "bad.csv").write_text("batch,ph\na,7.1\nb\n")
    queries = "CREATE TEMP VIEW low AS FROM lab WHERE ph < 7.2; FROM low; SELECT count(*) AS n FROM lab;"

    def work() -> None:
        table = ("--table", f"lab={tmp_path / 'lab.csv'}")
        assert run(plant, *table, "--csv", queries).stdout == "batch,ph\na,7.1\n\nn\n2\n"
        decoder, printed = json.JSONDecoder(), run(plant, *table, "--json", queries).stdout
        first, end = decoder.raw_decode(printed)
        assert [first, json.loads(printed[end:])] == [[{"batch": "a", "ph": 7.1}], [{"n": 2}]]
        assert run(plant, "--csv", "SELECT 1 AS id, 2 AS id").stdout == "id,id_1\n1,2\n"
        assert json.loads(run(plant, "--json", "SELECT 1 AS id, 2 AS id").stdout) == [{"id": 1, "id_1": 2}]
        hidden = run(plant, "--csv", "/* ours */ CREATE TEMP VIEW samples AS SELECT 0 AS value; FROM samples")
        assert (hidden.returncode, hidden.stdout) == (1, "")
        assert "table samples: there is one of this name" in hidden.stderr
        wrong = run(plant, *table, "--csv", f"FROM low; {queries}".replace("low;", "low LIMIT 'x';"))
        assert wrong.stderr.startswith("plantlog: statement 1: "), wrong
        wrong = run(plant, "--table", f"lab={tmp_path / 'bad.csv'}", "FROM lab")
        assert (wrong.returncode, wrong.stdout) == (1, "")
        assert wrong.stderr.startswith(f"plantlog: {tmp_path / 'bad.csv'}:3: line: found '1 fields'")
        (tmp_path / "bad.csv").write_text("batch,ph\na,7.1\nb,none\nc,7.3\n")
        noted = run(plant, "--csv", "--table", f"lab={tmp_path / 'bad.csv'}", "SELECT max(ph) AS most FROM lab")
        assert (noted.returncode, noted.stdout) == (0, "most\nnone\n")
        assert noted.stderr.startswith(f"note: {tmp_path / 'bad.csv'}:3: ph: found 'none', no number")
        for nothing in ("", " ; ", "/* nothing */"):
            empty = run(plant, nothing)
            assert (empty.returncode, empty.stdout) == (1, "")
            assert empty.stderr.startswith(f"plantlog: found no statement: {nothing!r}; legal: SQL, such as SELECT")

    await asyncio.to_thread(work)


async def test_prompt_goes_on_after_an_error(plant: Maintained) -> None:
    def work() -> tuple[int, str]:
        ours, theirs = pty.openpty()
        try:
            os.write(ours, b"SELECT count(*) AS n\nFROM samples;\nSELEC 1;\n\nSELECT 'the ' || 'last';\n\x04")
            done = run(plant, stdin=theirs)
        finally:
            os.close(ours)
            os.close(theirs)
        return done.returncode, done.stdout

    code, printed = await asyncio.to_thread(work)
    assert code == 0
    assert "1160" in printed
    assert "syntax error" in printed
    assert "the last" in printed


@pytest.mark.slow
async def test_interrupt_ends_the_query_and_not_the_prompt(plant: Maintained) -> None:
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'plant.samples_raw'::regclass"

    def work(interrupt: threading.Event) -> tuple[int, str]:
        ours, theirs = pty.openpty()
        command = [sys.executable, "-P", "-m", "ops", "sql"]
        with subprocess.Popen(
            command, env=environment(plant), stdin=theirs, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                os.write(ours, b"SELECT count(*) FROM samples;\n")
                assert interrupt.wait(120)
                process.send_signal(signal.SIGINT)
                os.write(ours, b"SELECT 'the ' || 'last';\n\x04")
                printed, _ = process.communicate(timeout=PATIENCE)
            finally:
                process.kill()
                os.close(ours)
                os.close(theirs)
        return process.returncode, printed

    interrupt = threading.Event()
    async with plant.owner.transaction():
        await plant.owner.execute("LOCK TABLE plant.samples_raw IN ACCESS EXCLUSIVE MODE")
        command = asyncio.create_task(asyncio.to_thread(work, interrupt))

        async def waits() -> bool:
            return bool(await plant.owner.fetchval(waiting))

        await until(waits)
        interrupt.set()
        code, printed = await command
    assert code == 0
    assert "interrupted" in printed
    assert "the last" in printed


async def test_session_connects_again_if_the_server_ended_it(plant: Maintained) -> None:
    main = asyncio.get_running_loop()
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'plantlog sql'"

    def work() -> list[Rows]:
        found = []
        with opened(plant.site.plant.state, LIMITS) as session:
            for _ in range(2):
                with session.rows("SELECT count(*) FROM samples") as (_, rows):
                    found.append(list(rows))
                asyncio.run_coroutine_threadsafe(plant.owner.fetch(end), main).result()
        return found

    assert await asyncio.to_thread(work) == [[(1160,)], [(1160,)]]


async def test_error_of_approximate_distinct_counts(plant: Maintained) -> None:
    """As docs/questions.md states it."""
    counts = range(100, 20_000, 500)
    sets = " UNION ALL ".join(f"SELECT {n}, {n} * 7919 + i FROM range({n}) AS r (i)" for n in counts)
    query = f"SELECT n, approx_count_distinct(x), count(DISTINCT x) FROM ({sets}) AS s (n, x) GROUP BY n ORDER BY n"
    found = await rows_of(plant, query)
    assert [exact for _, _, exact in found] == list(counts)
    error = (sum((about / n - 1) ** 2 for n, about, _ in found) / len(found)) ** 0.5
    documented = re.search(r"standard\s+error of (\d+) %", (CHECKOUT / "docs" / "questions.md").read_text())
    assert documented
    assert error < int(documented[1]) / 100 < 2 * error


async def test_a_thread_that_still_reads_after_the_end_gets_an_error(plant: Maintained) -> None:
    def work() -> None:
        reader = ReaderConnection(plant.site.plant.state.dsn("reader"))
        reader.close()
        with pytest.raises(RuntimeError, match="closed"):
            reader.fetch("SELECT 1")
        gc.collect()  # a coroutine that was never awaited is an error here

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_temporary_files_of_a_killed_session_are_removed(
    plant: Maintained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    def folders() -> set[Path]:
        return set(tmp_path.glob("plantlog-sql-*/*"))

    @contextmanager
    def begun() -> Iterator[tuple[subprocess.Popen[bytes], Path, int]]:
        """A session that waits at its prompt, its folder, and where its input is written."""
        before = folders()
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "ops", "sql"]
        with subprocess.Popen(
            command, cwd=CHECKOUT, env=environment(plant), stdin=theirs, stdout=subprocess.DEVNULL
        ) as session:
            try:
                (folder,) = until_sync(lambda: folders() - before)
                (folder / "spilled").write_text("samples")
                yield session, folder, ours
                session.wait(PATIENCE)
            finally:
                session.kill()
                os.close(ours)
                os.close(theirs)

    def work() -> None:
        with begun() as (killed, left, _):
            killed.kill()
        assert left in folders()
        with begun() as (_, kept, terminal):
            assert folders() == {kept}
            os.write(terminal, b"SELECT 1;\n\x04")
        assert not folders()

    await asyncio.to_thread(work)


@pytest.mark.slow
async def test_psql_says_what_is_only_in_the_archive(plant: Maintained) -> None:
    def work() -> tuple[str, str]:
        command = [sys.executable, "-P", "-m", "ops", "psql", "-Atc", "SELECT count(*) FROM samples"]
        done = subprocess.run(command, env=environment(plant), capture_output=True, text=True, check=True)
        return done.stdout, done.stderr

    assert await asyncio.to_thread(work) == ("1160\n", "")
    await archived_and_dropped(plant)
    hint = f"samples of some days up to {DAY} are only in the archive: `plantlog sql` reads both\n"
    left = f"{len(await plant.stored(NEXT))}\n"
    assert await asyncio.to_thread(work) == (left, hint)
