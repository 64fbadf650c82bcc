"""``plantlog admin spool`` as people call it: files, quarantine, and what comes in again, with a real database."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.batch import Event, EventBatch, Gap, GapBatch, SampleBatch
from core.config import token_file
from core.config.model import WriterOptions
from core.paths import State
from core.registry import Registry
from core.timestamps import iso, microseconds, now_us
from ingest.spool.append import Spool
from ingest.spool.reader import SpoolReader
from ingest.writer.writer import Writer
from tests.command import in_a_process, plantlog
from tests.config_in_force import activate
from tests.database import Database, add_channels, add_sources
from tests.samples import T0, batch
from tests.spooling import drained, spooled
from tests.states import claimed, store_dsns
from tests.waiting import PATIENCE

MIB = 1024**2
DAY = 86_400_000_000  # µs
_PLANT = """
[plant]
name = "demo"
[spool]
max_bytes = "64MiB"
[[source]]
name = "a"
kind = "push"
token_file = "t"
unknown = "create"
"""


@dataclass(frozen=True)
class Site:
    """A state folder as ``plantlog up`` leaves it."""

    state: State
    dsn: str

    async def run(self, *arguments: str | Path, code: int = 0) -> str:
        """Output of ``plantlog admin spool``; of a failure, the error."""
        result = await asyncio.wait_for(plantlog(self.state.root, "admin", "spool", *arguments), PATIENCE)
        assert result.code == code, result.err
        return result.err if code else result.out

    async def json(self, *arguments: str | Path) -> Any:
        return json.loads(await self.run(*arguments, "--json"))

    async def spool(self, name: str, *batches: SampleBatch | EventBatch | GapBatch) -> Path:
        await spooled(self.state.spool, *batches, name=name)
        return self.state.spool / f"{name}.sqlite"

    async def write(self, **options: Any) -> None:
        """Let the writer empty the spools."""
        await drained(Writer(self.state.spool, self.dsn, WriterOptions(connections=1, **options)))


def site_in(folder: Path, database: Database | None) -> Site:
    state = claimed(folder / "state")
    config = folder / "plant.toml"
    config.write_text(_PLANT)
    token_file.write(folder / "t", "token-of-edge-gateway")
    activate(state.root, config)
    Registry({"a": 1, "b": 2}, {"a": {f"a/c{i}": i for i in range(10)}}, {"a": {"made": 77}}).save(state.registry)
    if database is not None:
        store_dsns(state, **database.dsns("owner", "ingest", "reader"))
    return Site(state, database.ingest_dsn if database is not None else "")


@pytest.fixture
def offline(tmp_path: Path) -> Site:
    return site_in(tmp_path, None)


@pytest.fixture
async def registered_channels(owner: asyncpg.Connection) -> None:
    await add_sources(owner, "a", "b")
    await add_channels(owner, range(10), "a/c{}")


@pytest.fixture
def site(database: Database, registered_channels: None, tmp_path: Path) -> Site:
    return site_in(tmp_path, database)


async def stored(owner: asyncpg.Connection) -> list[tuple[int, int, float]]:
    rows = await owner.fetch("SELECT channel_id, time, value FROM plant.samples_raw ORDER BY 1, 2")
    return [(r[0], microseconds(r[1]) - T0, r[2]) for r in rows]


async def count(owner: asyncpg.Connection, table: str) -> int:
    return int(await owner.fetchval(f"SELECT count(*) FROM plant.{table}"))


def damage(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"nothing of a header")


# show


async def test_spool_show(offline: Site) -> None:
    at = now_us()
    await offline.spool("opcua", replace(batch([(1, 0, 1.0, 0), (2, 0, 2.0, 0)]), received_at=at - 60_000_000))
    await offline.spool("opcua.backfill")
    path = await offline.spool("push", batch([(3, 0, 1.0, 0)], 2), EventBatch(1, at, (Event("restart", at),)))
    shown = await offline.json("show")
    files = {file["name"]: file for file in shown["files"]}
    assert list(files) == ["opcua.backfill", "opcua", "push"]
    opcua = files["opcua"]
    assert (opcua["batches"], opcua["rows"], opcua["max_bytes"]) == (1, 2, 64 * MIB)
    assert (opcua["oldest"], opcua["newest"]) == (at - 60_000_000, at - 60_000_000)
    assert 0 < opcua["bytes"] < MIB
    assert (files["opcua.backfill"]["rows"], files["opcua.backfill"]["max_bytes"]) == (0, 16 * MIB)
    assert files["opcua.backfill"]["oldest"] is None
    kinds = [(s["source_id"], s["kind"], s["batches"], s["rows"]) for s in files["push"]["sources"]]
    assert kinds == [(1, "events", 1, 1), (2, "samples", 1, 1)]
    assert shown["dead_letters"] == []
    damage(path)
    (offline.state.root.parent / "plant.toml").write_text("not toml at all")
    text = await offline.run("show")
    assert "its header is destroyed" in text, "whatever is wrong with the configuration"
    assert re.search(r"\b[1-9] min( \d+ s)? ago\b", text), "a minute old, or more on a slow machine"
    assert path.read_bytes().startswith(b"nothing"), "it only looks"


async def test_show_while_a_collector_appends(offline: Site) -> None:
    spool = Spool(offline.state.spool / "opcua.sqlite", 64 * MIB)
    for k in range(5):
        await spool.append(batch([(k, 0, 1.0, 0)]))
    (file,) = (await offline.json("show"))["files"]
    assert file["batches"] == 5
    await spool.append(batch([(9, 0, 1.0, 0)]))
    assert await spool.depth() == (6, 6)
    await spool.close()


async def test_spool_show_lists_damage(offline: Site) -> None:
    path = await offline.spool("opcua", batch([(1, 0, 1.0, 0)]))
    damage(path)
    with closing(SpoolReader(path)) as file:
        assert len(file.read(10)) == 1
    (shown,) = (await offline.json("show"))["files"]
    assert (shown["problem"], shown["batches"]) == (None, 1)
    (damaged,) = shown["damaged"]
    assert damaged in (await offline.run("show")).replace("\n", "")


async def test_show_without_a_state_folder(tmp_path: Path) -> None:
    nothing = Site(State(tmp_path / "nothing"), "")
    assert "plantlog up" in await nothing.run("show", code=1)


# export


def lines(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


async def test_spool_export(offline: Site, tmp_path: Path) -> None:
    nan = batch([(1, 0, 0.1, 0), (77, 1, float("nan"), 0x80050000), (500, 2, -0.0, 0)], 2)
    await offline.spool("opcua", nan, EventBatch(1, T0, (Event("text", T0 + 3, 4, 0, 'open, "wide"'),)))
    await offline.spool("push", GapBatch(1, T0, (Gap(T0, None, "stale"),)))
    expected = [
        ["source", "channel", "time", "value", "status"],
        ["b", "a/c1", "2026-09-21T14:13:20+00:00", "0.1", "0x00000000"],
        ["b", "made", "2026-09-21T14:13:20.000001+00:00", "nan", "0x80050000"],
        ["b", "500", "2026-09-21T14:13:20.000002+00:00", "-0.0", "0x00000000"],
        ["a", "a/c4", "2026-09-21T14:13:20.000003+00:00", 'open, "wide"', "0x00000000"],
    ]
    assert lines(await offline.run("export", "opcua")) == expected
    to = tmp_path / "out.csv"
    assert await offline.run("export", offline.state.spool / "opcua.sqlite", "--to", to) == ""
    assert lines(to.read_text()) == expected
    assert "already exists" in await offline.run("export", "opcua", "--to", to, code=1)
    assert "known: opcua, push" in await offline.run("export", "modbus", code=1)
    assert lines(await offline.run("export", "push")) == expected[:1]
    assert "No such file" in await offline.run("export", "push", "--to", tmp_path / "no" / "x.csv", code=1)


async def test_export_of_a_damaged_file(offline: Site) -> None:
    path = await offline.spool("opcua", *(batch([(k, k, float(k), 0)]) for k in range(5)))
    damage(path)
    found = lines(await offline.run("export", path))
    assert sorted(row[3] for row in found[1:]) == ["0.0", "1.0", "2.0", "3.0", "4.0"]


# quarantine and retry


BAD = [(1, 5), (2, 6), (2, 7)]


async def poisoned(site: Site, owner: asyncpg.Connection, name: str = "opcua") -> None:
    """400 samples, of which the table refuses three."""
    await owner.execute("ALTER TABLE plant.samples_raw ADD CONSTRAINT beast CHECK (value <> 666)")
    rows = [(c, t, 666.0 if (c, t) in BAD else float(t), 0) for c in range(4) for t in range(100)]
    await site.spool(name, batch(rows))
    await site.write()


async def test_spool_quarantine(site: Site, owner: asyncpg.Connection) -> None:
    assert "the quarantine is empty" in await site.run("quarantine")
    assert await site.json("quarantine") == {"rows": 0, "reasons": []}
    await poisoned(site, owner)
    event = Event("text", T0 + 2 * DAY, 4, 0, "from tomorrow")
    await site.spool("opcua", batch([(3, 2 * DAY, 1.0, 0x80050000)], 2), EventBatch(1, T0, (event,)))
    await site.write()
    found = await site.json("quarantine")
    assert found["rows"] == 5
    reasons = {reason["reason"]: reason for reason in found["reasons"]}
    assert {name: (one["rows"], one["sources"]) for name, one in reasons.items()} == {
        "future": (2, ["a", "b"]),
        "refused": (3, ["a"]),
    }
    listed = reasons["refused"]["listed"]
    assert sorted((r["channel"], r["time_us"] - T0) for r in listed) == [(f"a/c{c}", t) for c, t in BAD]
    assert all("beast" in r["error"] and r["value"] == "666" for r in listed)
    assert sorted(r["kind"] for r in reasons["future"]["listed"]) == ["event", "sample"]
    (listed_event,) = (r for r in reasons["future"]["listed"] if r["kind"] == "event")
    assert (listed_event["type"], listed_event["text"], listed_event["channel"]) == ("text", "from tomorrow", "a/c4")
    text = await site.run("quarantine")
    assert "refused: 3 rows of a; newest first:" in text
    assert "event text" in text
    assert "from tomorrow" in text
    assert "0x80050000" in text
    assert f"{iso(T0 + 2 * DAY)[:19]}Z" in text, "readable, with its zone"
    assert {row["error"] for row in reasons["future"]["listed"]} == {"later than [writer] future_limit"}
    await site.spool("opcua", batch([(3, 1_000_000 - T0, 1.0, 0)], 2))
    await site.write()
    assert "older than [writer] oldest" in await site.run("quarantine")
    await owner.execute("UPDATE plant.source SET kind = 'push' WHERE id = 2")
    ancient = (await site.json("quarantine"))["reasons"][0]["listed"]
    assert [row["error"] for row in ancient] == ["older than [writer] oldest; in 1970: is the precision ns?"]
    await owner.execute("DELETE FROM plant.quarantine WHERE channel_id IS NOT NULL")
    assert "future: 1 row of a; newest first:" in await site.run("quarantine")


async def test_retry_writes_rows_no_longer_refused(site: Site, owner: asyncpg.Connection) -> None:
    await poisoned(site, owner)
    assert await count(owner, "samples_raw") == 397
    done = await site.json("retry")
    assert (done["written"], done["refused"]) == (0, 3), "the table refuses them as before"
    assert await owner.fetchval("SELECT count(*) FROM plant.quarantine WHERE retried_at IS NOT NULL") == 3
    await owner.execute("ALTER TABLE plant.samples_raw DROP CONSTRAINT beast")
    assert "quarantine: 3 rows written, 0 rejected again" in await site.run("retry")
    assert await count(owner, "samples_raw") == 400
    assert sorted((c, t) for c, t, v in await stored(owner) if v == 666) == BAD
    assert await count(owner, "quarantine") == 0
    facts = await owner.fetch(
        "SELECT kind, rows, first_time, last_time FROM plant.ingest_batch WHERE sequence < 0 ORDER BY first_time"
    )
    assert [(r["kind"], r["rows"], microseconds(r["first_time"]) - T0) for r in facts] == [
        ("samples", 1, t) for _, t in BAD
    ], "what landed late is on record as such"
    assert all(r["first_time"] == r["last_time"] for r in facts)
    assert (await site.json("retry"))["written"] == 0
    assert await count(owner, "samples_raw") == 400


async def test_retry_writes_some_rows_and_leaves_the_others(site: Site, owner: asyncpg.Connection) -> None:
    await poisoned(site, owner)
    await owner.execute("ALTER TABLE plant.samples_raw DROP CONSTRAINT beast")
    await owner.execute("ALTER TABLE plant.samples_raw ADD CHECK (value <> 666 OR channel_id = 2)")
    done = await site.json("retry")
    assert (done["written"], done["refused"]) == (2, 1)
    assert await count(owner, "samples_raw") == 399
    assert await count(owner, "quarantine") == 1


async def test_retry_of_stored_rows_is_a_conflict_or_a_repeat(site: Site, owner: asyncpg.Connection) -> None:
    await poisoned(site, owner)
    await owner.execute("ALTER TABLE plant.samples_raw DROP CONSTRAINT beast")
    await site.spool("opcua", batch([(1, 5, 666.0, 0), (2, 6, 1.0, 0)]))
    await site.write()
    assert (await site.json("retry"))["written"] == 3
    rows = {(c, t): v for c, t, v in await stored(owner)}
    assert [rows[key] for key in BAD] == [666.0, 1.0, 666.0]
    kept = await owner.fetch(
        "SELECT channel_id, detail ->> 'refused_value' AS v FROM plant.event WHERE type='conflict'"
    )
    assert [tuple(r) for r in kept] == [(2, "666.0")], "the second, different value is on record"
    assert await count(owner, "quarantine") == 0


async def test_days_beyond_the_limit_of_an_hour_wait_in_the_quarantine(site: Site, owner: asyncpg.Connection) -> None:
    """A line a day into the past makes no thousand chunks; whoever meant it retries, a hundred days a transaction."""
    days = [(1, -day * DAY, float(day), 0) for day in range(1200)]
    await site.spool("push", batch(days))
    await site.write()
    assert await count(owner, "samples_raw") == 8 + 366  # the days of a week are not counted
    assert "of more days in an hour than [writer] days_per_hour" in await site.run("quarantine")
    assert await site.json("retry") == {
        "written": 826, "refused": 0, "outside_limits": 0, "batches_written": 0, "batches_refused": 0,
    }  # fmt: skip
    assert await stored(owner) == sorted((c, t, v) for c, t, v, _ in days)


async def test_retry_beyond_the_time_limits_needs_an_option(site: Site, owner: asyncpg.Connection) -> None:
    event = Event("text", T0 + 2 * DAY, 4, 0, "from tomorrow")
    rows = batch([(1, 0, 1.0, 0), (2, 2 * DAY, 2.0, 0), (3, -4000 * DAY, 3.0, 0)])
    await site.spool("opcua", rows, EventBatch(1, T0, (event,)))
    await site.write()
    done = await site.json("retry")
    assert (done["written"], done["outside_limits"]) == (0, 3)
    assert "3 outside the time limits (use --anyway)" in await site.run("retry")
    assert (await site.json("retry", "--anyway"))["written"] == 3
    assert await stored(owner) == [(1, 0, 1.0), (2, 2 * DAY, 2.0), (3, -4000 * DAY, 3.0)]
    assert [r["text"] for r in await owner.fetch("SELECT text FROM plant.event")] == ["from tomorrow"]
    assert await count(owner, "quarantine") == 0


async def test_retry_writes_events_and_gaps(site: Site, owner: asyncpg.Connection) -> None:
    gap = Gap(T0, T0 + 5, "stale", (1, 7777))
    far = Event("text", T0, 7777, 0, "a channel that is not there yet")
    await owner.execute("ALTER TABLE plant.event ADD CONSTRAINT known CHECK (channel_id < 100)")
    await site.spool("opcua", EventBatch(1, T0, (far,)), GapBatch(1, T0, (gap,)))
    await site.write()
    assert await count(owner, "quarantine") == 2
    await owner.execute("ALTER TABLE plant.event DROP CONSTRAINT known")
    await owner.execute(
        "INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE"
        " VALUES (7777, 'late', 1, '', 'analog', '')"
    )
    assert (await site.json("retry"))["written"] == 2
    found = await owner.fetch("SELECT channel_id, reason FROM plant.gap ORDER BY channel_id")
    assert [tuple(r) for r in found] == [(1, "stale"), (7777, "stale")]
    assert await owner.fetchval("SELECT text FROM plant.event") == far.text
    assert await count(owner, "quarantine") == 0


async def test_retry_writes_a_dead_letter_batch(site: Site, owner: asyncpg.Connection) -> None:
    await owner.execute("ALTER TABLE plant.ingest_batch ADD CONSTRAINT unlucky CHECK (rows <> 13)")
    rows = batch([(1, t, float(t), 0) for t in range(13)])
    await site.spool("opcua", rows, batch([(2, 0, 0.0, 0)]))
    await site.write()
    (aside,) = (await site.json("show"))["dead_letters"]
    (kept,) = (site.state.spool / "damaged").iterdir()
    assert aside["path"] == str(kept)
    assert ("unlucky" in aside["why"], aside["kind"], aside["rows"]) == (True, "samples", 13)
    assert len(lines(await site.run("export", aside["path"]))) == 14
    assert f"rejected batch: {kept}: " in await site.run("show")
    done = await site.json("retry")
    assert (done["batches_written"], done["batches_refused"]) == (0, 1)
    assert kept.exists()
    await owner.execute("ALTER TABLE plant.ingest_batch DROP CONSTRAINT unlucky")
    before = kept.read_bytes()
    assert "rejected batches: 1 written, 0 rejected again" in await site.run("retry")
    assert not kept.exists()
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch") == 14
    assert await count(owner, "samples_raw") == 14
    # As if it had been killed before the file was removed.
    kept.write_bytes(before)
    assert (await site.json("retry"))["batches_written"] == 1
    assert await owner.fetchval("SELECT sum(rows) FROM plant.ingest_batch") == 14
    assert await count(owner, "samples_raw") == 14
    assert await count(owner, "event") == 0


async def test_unreadable_dead_letter_batch_is_kept(site: Site) -> None:
    folder = site.state.spool / "damaged"
    folder.mkdir()
    (folder / "opcua-1.json").write_text('{"why": "half a fi')
    done = await site.json("retry")
    assert (done["batches_written"], done["batches_refused"]) == (0, 1)
    assert "cannot read" in (await site.json("show"))["dead_letters"][0]["why"]
    assert "cannot read" in await site.run("export", folder / "opcua-1.json", code=1)


@pytest.mark.slow
async def test_concurrent_retries_write_each_row_once(site: Site, owner: asyncpg.Connection) -> None:
    await owner.execute("ALTER TABLE plant.samples_raw ADD CONSTRAINT beast CHECK (value <> 666)")
    await site.spool("opcua", batch([(c, t, 666.0, 0) for c in range(3) for t in range(100)]))
    await site.write()
    assert await count(owner, "quarantine") == 300
    await owner.execute("ALTER TABLE plant.samples_raw DROP CONSTRAINT beast")
    both = await asyncio.gather(*(in_a_process(site.state.root, "admin", "spool", "retry", "--json") for _ in range(2)))
    assert sum(json.loads(result.out)["written"] for result in both) == 300
    assert await count(owner, "samples_raw") == 300
    assert await count(owner, "quarantine") == 0


async def test_spool_commands_without_a_database(offline: Site) -> None:
    for command in ("quarantine", "retry"):
        assert "has no database yet: run `plantlog up`" in await offline.run(command, code=1)
    store_dsns(offline.state, **dict.fromkeys(("owner", "reader"), "postgresql://nobody:nothing@127.0.0.1:1/nothing"))
    assert "the database does not respond" in await offline.run("quarantine", code=1)
    assert "0 rows and 0 batches were written" in await offline.run("retry", code=1)
