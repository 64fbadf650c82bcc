"""The comparison of table and ground truth, over a real table: it says what is wrong with it, and only that."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import asyncpg
import numpy as np
import pytest

from core.config.model import WriterOptions
from core.paths import CHECKOUT
from core.timestamps import iso, timestamp
from ingest.writer.writer import Writer
from simulator.compare import compare, pending
from simulator.compare_samples import Comparison
from simulator.truth import TruthWriter
from tests.database import Database
from tests.samples import T0, batch
from tests.spooling import drained, spooled
from tests.waiting import PATIENCE, until

SECOND = 1_000_000
NAMES = ["ua/a", "ua/b", "ua/mode", "plc/x", "plc/product"]
A, B, MODE, X, PRODUCT = range(5)
BAD = 0x80050000
Row: TypeAlias = tuple[int, float, float, int]  # channel, s since T0, value, status
Rows: TypeAlias = list[Row]
Texts: TypeAlias = list[tuple[int, float, str, int]]

PUBLISHED: Rows = [(c, float(s), 10.0 * c + s, BAD if s == 5 else 0) for s in range(20) for c in (A, B)]
ANSWERED: Rows = [(X, s + 0.5, float(s), 0) for s in range(20)]
STORED: Rows = PUBLISHED + [(X, at + 0.02, value, 0) for _, at, value, _ in ANSWERED]
TEXTS: Texts = [(MODE, 0.0, "AUTO", 0), (MODE, 7.0, "LIMIT", 0), (MODE, 8.0, "", BAD), (PRODUCT, 0.5, "P-1", 0),
                (PRODUCT, 6.5, "P-2", 0)]  # fmt: skip


def write_truth(folder: Path, answered: Rows = ANSWERED) -> None:
    writer = TruthWriter(folder, NAMES, 1)
    for rows, via in ((PUBLISHED, "opcua"), (answered, "modbus")):
        tags, times, values, status = (np.array(column) for column in zip(*rows, strict=True))
        writer.numbers(via, tags, T0 + (times * SECOND).astype(np.int64), values, status.astype(np.uint32))  # type: ignore[arg-type]
    for tag, at, text, code in TEXTS:
        writer.text("opcua" if tag == MODE else "modbus", tag, T0 + int(at * SECOND), text, code)
    writer.close()


async def fill(database: Database, rows: Rows, texts: Texts) -> None:
    connection = await asyncpg.connect(database.owner_dsn)
    await connection.execute(
        "INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE"
        " VALUES (1, 'ua', 'opcua', ''), (2, 'plc', 'modbus', '')"
    )
    await connection.executemany(
        "INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE"
        " VALUES ($1, $2, $3, '', $4, '')",
        [(100 - i, n, 1 if n.startswith("ua") else 2, "analog") for i, n in enumerate([*NAMES, "ua/other"])],
    )
    signed = [s - 2**32 if s >= 2**31 else s for *_, s in rows]
    await connection.copy_records_to_table(
        "samples_raw",
        schema_name="plant",
        columns=["time", "value", "channel_id", "status"],
        records=[
            (timestamp(T0 + int(at * SECOND)), value, 100 - tag, s)
            for (tag, at, value, _), s in zip(rows, signed, strict=True)
        ],
    )
    await connection.executemany(
        "INSERT INTO plant.event (time, id, type, channel_id, status, text) VALUES ($1, $2, 'text', $3, $4, $5)",
        [
            (timestamp(T0 + int(at * SECOND)), i, 100 - tag, s - 2**32 if s >= 2**31 else s, text)
            for i, (tag, at, text, s) in enumerate(texts)
        ],
    )
    await connection.close()


def changed(tag: int, at: float, **to: float) -> Callable[[Rows], Rows]:
    """One stored row with another value or status, or none."""

    def change(rows: Rows) -> Rows:
        (row,) = [r for r in rows if (r[0], r[1]) == (tag, at)]
        new = (row[0], row[1], to.get("value", row[2]), int(to.get("status", row[3])))
        return [r for r in rows if r != row] + ([new] if to else [])

    return change


def counts(part: Comparison) -> tuple[int, int, int]:
    return part.invented + part.duplicated, part.altered, part.missing


CASES: dict[str, tuple[Callable[[Rows], Rows], str, tuple[int, int, int]]] = {
    "nothing": (lambda rows: rows, "opcua", (0, 0, 0)),
    "one is missing": (changed(A, 3.0), "opcua", (0, 0, 1)),
    "another value": (changed(A, 3.0, value=3.0000000000000004), "opcua", (0, 1, 0)),
    "another status": (changed(B, 3.0, status=0x40000000), "opcua", (0, 1, 0)),
    "a bad sample's value means nothing": (changed(A, 5.0, value=float("nan")), "opcua", (0, 0, 0)),
    "at a time that was not published": (lambda rows: [*rows, (A, 3.000001, 3.0, 0)], "opcua", (1, 0, 0)),
    "of a channel that nobody has": (lambda rows: [*rows, (5, 3.0, 3.0, 0)], "opcua", (1, 0, 0)),
    "what came before the first sample was for nobody": (
        lambda rows: [r for r in rows if r[0] != B or r[1] >= 10],
        "opcua",
        (0, 0, 0),
    ),
    "a channel of which nothing is there": (lambda rows: [r for r in rows if r[0] != B], "opcua", (0, 0, 20)),
    "an answer is missing": (changed(X, 3.52), "modbus", (0, 0, 1)),
    "an answer came out another": (changed(X, 3.52, value=4.0), "modbus", (0, 1, 0)),
    "one answer twice": (lambda rows: [*rows, (X, 3.9, 3.0, 0)], "modbus", (1, 0, 0)),
    "by its clock one arrived a little before it was sent": (
        lambda rows: [(*r[:1], 3.499, *r[2:]) if r[:2] == (X, 3.52) else r for r in rows],
        "modbus",
        (0, 0, 0),
    ),
    "one answer twice, the second a little before the next": (
        lambda rows: [*rows, (X, 3.499, 2.0, 0)],
        "modbus",
        (1, 0, 0),
    ),
    "an outage is no answer": (lambda rows: [*rows, (X, 3.9, float("nan"), BAD)], "modbus", (0, 0, 0)),
    "answers before the first sample were for nobody": (
        lambda rows: [r for r in rows if r[0] != X or r[1] >= 10],
        "modbus",
        (0, 0, 0),
    ),
    "an answer of the last 5 s may be on its way": (changed(X, 18.52), "modbus", (0, 0, 0)),
}


@pytest.mark.parametrize("portion_rows", [60, 1])  # all channels at once, each channel by itself
@pytest.mark.parametrize("case", CASES)
async def test_comparison_finds_wrong_samples(case: str, portion_rows: int, database: Database, tmp_path: Path) -> None:
    change, kind, expected = CASES[case]
    write_truth(tmp_path)
    await fill(database, change(STORED), TEXTS)
    result = await compare(tmp_path, database.reader_dsn, T0, T0 + 20 * SECOND, portion_rows=portion_rows)
    assert counts(result[kind]) == expected
    assert counts(result["all"]) == expected, "and nothing else"
    assert len(result["all"].examples) == min(10, sum(expected))
    if case == "nothing":
        assert (result["opcua"].published, result["opcua"].stored) == (40, 40)
        assert (result["modbus"].published, result["modbus"].stored) == (20, 20)
        assert (result["text"].published, result["text"].stored) == (5, 5)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda rows: rows, (0, 0, 0)),
        (lambda rows: [(*r[:1], 8.2, *r[2:]) if r[:2] == (X, 7.52) else r for r in rows], (0, 0, 0)),
        (lambda rows: [(X, 8.2, 7.1, 0) if r[:2] == (X, 7.52) else r for r in rows], (0, 1, 0)),
        (lambda rows: [*rows, (X, 7.521, 7.0, 0)], (1, 0, 0)),
        (lambda rows: [(X, 15.2, *r[2:]) if r[:2] == (X, 7.52) else r for r in rows], (0, 1, 0)),
    ],
    ids=["all in time", "one late", "one late and another value", "one twice", "one too late"],
)
async def test_answer_to_a_member_may_be_overtaken_by_one_to_the_other(
    change: Callable[[Rows], Rows], expected: tuple[int, int, int], database: Database, tmp_path: Path
) -> None:
    """Both poll; the table has what one of them read."""
    to_the_other = [(X, s + 1.0, s + 0.5, 0) for s in range(20)]
    write_truth(tmp_path, sorted([*ANSWERED, *to_the_other], key=lambda row: row[1]))
    await fill(database, change(STORED), TEXTS)
    result = await compare(tmp_path, database.reader_dsn, T0, T0 + 20 * SECOND, within_us=SECOND)
    assert counts(result["modbus"]) == expected


TEXT_CASES: dict[str, tuple[Callable[[Texts], Texts], tuple[int, int, int]]] = {
    "one is missing": (lambda texts: [t for t in texts if t[2] != "LIMIT"], (0, 0, 1)),
    "another text": (lambda texts: [(*t[:2], t[2].replace("LIMIT", "LIMT"), t[3]) for t in texts], (0, 1, 0)),
    "another time": (lambda texts: [*texts, (MODE, 9.0, "LIMIT", 0)], (1, 0, 0)),
    "a device's is missing": (lambda texts: [t for t in texts if t[2] != "P-2"], (0, 0, 1)),
    "a device's came out another": (
        lambda texts: [(*t[:2], t[2].replace("P-2", "P-3"), t[3]) for t in texts],
        (0, 1, 0),
    ),
    "a device's told again": (lambda texts: [*texts, (PRODUCT, 9.0, "P-2", 0)], (0, 0, 0)),
    "a device's that it never sent": (lambda texts: [*texts, (PRODUCT, 0.1, "P-0", 0)], (1, 0, 0)),
}


@pytest.mark.parametrize("case", TEXT_CASES)
async def test_comparison_finds_wrong_texts(case: str, database: Database, tmp_path: Path) -> None:
    change, expected = TEXT_CASES[case]
    write_truth(tmp_path)
    await fill(database, STORED, change(TEXTS))
    result = await compare(tmp_path, database.reader_dsn, T0, T0 + 20 * SECOND)
    assert counts(result["text"]) == counts(result["all"]) == expected


async def test_only_the_interval_is_compared(database: Database, tmp_path: Path) -> None:
    write_truth(tmp_path)
    await fill(database, [r for r in STORED if r[1] > 2], TEXTS)
    result = await compare(tmp_path, database.reader_dsn, T0 + 4 * SECOND, T0 + 8 * SECOND)
    assert (result["opcua"].published, result["opcua"].stored) == (8, 8)
    assert counts(result["all"]) == (0, 0, 0)


async def test_an_empty_table_lacks_everything(database: Database, tmp_path: Path) -> None:
    write_truth(tmp_path)
    result = await compare(tmp_path, database.reader_dsn, T0, T0 + 20 * SECOND)
    assert (result["opcua"].missing, result["text"].missing) == (40, 5)
    assert result["all"].stored == 0


@pytest.mark.parametrize("was_simulated", [False, True])
def test_without_ground_truth_there_is_nothing_to_compare(
    was_simulated: bool, database: Database, tmp_path: Path
) -> None:
    """A plant that was never the simulator's, or is not any more."""
    if was_simulated:
        write_truth(tmp_path)
    folders = ("--truth", str(tmp_path), "--spool", str(tmp_path), "--dsn", database.reader_dsn)
    command = ("-m", "simulator", "compare", *folders)
    compared = subprocess.run([sys.executable, *command], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert (compared.returncode, compared.stdout) == (1, "")
    assert f"nothing to compare: by {tmp_path}, the simulator published nothing from 20" in compared.stderr


NEWER = """
INSERT INTO plant.ingest_batch (source_id, sequence, kind, rows, first_time, last_time, received_at)
SELECT s.id, 1, 'samples', 1, $1, $1, $1 FROM plant.source AS s WHERE s.name = ANY ($2)
"""
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'plantlog simulator'
"""


async def test_what_waits_in_the_spool_is_not_missing(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    write_truth(tmp_path / "truth")
    await fill(database, changed(B, 3.0)(STORED), TEXTS)
    await owner.execute(NEWER, timestamp(T0 + 21 * SECOND), ["ua", "plc"])
    spool = tmp_path / "spool"
    spool.mkdir()
    await spooled(spool, batch([(100 - B, 3 * SECOND, 13.0, 0)]))
    folders = ("--truth", str(tmp_path / "truth"), "--spool", str(spool), "--dsn", database.reader_dsn)
    interval = ("--from", str(T0), "--to", str(T0 + 20 * SECOND))

    async def run(*options: str) -> asyncio.subprocess.Process:
        command = (sys.executable, "-m", "simulator", "compare", *folders, *interval, *options)
        return await asyncio.create_subprocess_exec(*command, cwd=CHECKOUT, stdout=subprocess.PIPE)

    async def until_seen(connections: int) -> None:
        async def seen() -> bool:
            return bool(await owner.fetchval(CONNECTIONS) == connections)

        await until(seen)

    text, _ = await (await run("--wait", "0")).communicate()
    assert text.decode().endswith(
        f"Not all of it is stored after 0 s, and counts as missing: batches wait in {spool}/opcua.sqlite\n"
    )
    await until_seen(0)
    compared = await run("--json", "--wait", str(PATIENCE))
    await until_seen(1)
    await drained(Writer(spool, database.ingest_dsn, WriterOptions()))
    result = json.loads((await compared.communicate())[0])
    assert (result["stored"], result["missing_silent"], result["pending"]) == (65, 0, [])


async def test_sources_are_waited_for_unless_disconnected(
    database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    await fill(database, STORED, TEXTS)

    async def left() -> list[str]:
        return await pending(tmp_path, database.reader_dsn, T0 + 20 * SECOND, NAMES)

    at = iso(T0 + 20 * SECOND)
    assert await left() == [f"source plc has no samples since {at}", f"source ua has no samples since {at}"]
    await owner.execute(NEWER, timestamp(T0 + 20 * SECOND), ["plc"])
    assert len(await left()) == 2, "it may have more of this moment"
    await owner.execute("UPDATE plant.ingest_batch SET last_time = $1", timestamp(T0 + 21 * SECOND))
    assert await left() == [f"source ua has no samples since {at}"]
    await owner.execute(
        "INSERT INTO plant.gap (source_id, from_time, reason) VALUES (1, $1, 'disconnected')", timestamp(T0)
    )
    assert await left() == []


@pytest.mark.parametrize(
    ("rows", "invented"),
    [
        ([(A, 7.500001, 6.0, 0)], 0),
        ([(A, 7.500001, 3.0, 0)], 0),  # the clock was ahead until then
        ([(A, 7.500001, 6.0, 0), (A, 7.500002, 7.0, 0)], 0),  # a delayed change
        ([(A, 7.500001, 7.0, 0)], 0),  # in a gap that was joined with one before
        ([(A, 7.500001, 6.5, 0)], 1),
        ([(A, 7.500001, 6.0, 0x40000000)], 1),
        ([(A, 7.500002, 8.0, 0)], 1),
        ([(A, 7.5, 6.0, 0)], 1),
        ([(A, 7.500003, 6.0, 0)], 1),
        ([(A, 7.6, 6.0, 0)], 1),
        ([(B, 7.500001, 16.0, 0)], 1),
    ],
)
@pytest.mark.parametrize("table", ["gap", "member_gap"])
async def test_value_that_is_stated_again_after_a_gap_is_not_invented(
    table: str, rows: Rows, invented: int, database: Database, owner: asyncpg.Connection, tmp_path: Path
) -> None:
    write_truth(tmp_path)
    await fill(database, STORED + rows, TEXTS)
    member = ("", "") if table == "gap" else (", member", ", 1")
    await owner.execute(
        f"INSERT INTO plant.{table} (source_id, channel_id, from_time, to_time, reason{member[0]})"
        f" VALUES (1, $1, $2, $3, 'disconnected'{member[1]})",
        100 - A, timestamp(T0 + 6 * SECOND), timestamp(T0 + 7_500_000),
    )  # fmt: skip
    result = await compare(tmp_path, database.reader_dsn, T0, T0 + 20 * SECOND)
    assert counts(result["opcua"]) == (invented, 0, 0)
