"""Exact distinct counts, of rows and packed hours, whichever way a time is cut."""

from __future__ import annotations

from datetime import datetime, timedelta
from random import Random

import asyncpg
import pytest

from tests.database import add_sources
from tests.sample_tables import DAY, compress

_CHANNEL = """
INSERT INTO plant.channel (id, name, source_id, address, kind) OVERRIDING SYSTEM VALUE VALUES ($1, $2, 1, '', 'analog')
"""
_SAMPLE = "INSERT INTO plant.samples_raw (time, value, channel_id, status) VALUES ($1, 0, $2, $3)"
_EVENT = "INSERT INTO plant.event (time, id, type, channel_id, text, detail) VALUES ($1, $2, $3, $4, $5, $6)"
_NAMES = ["a/x", "a/y", "a/z", "b/c/x", "b/c/y", "alone"]
_BAD = -2147483648

Row = tuple[datetime, int, str, str]  # time, channel, what it is, its text


async def counts(reader: asyncpg.Connection, *arguments: object) -> list[tuple[object, ...]]:
    found = await reader.fetch("SELECT * FROM plant.distinct_counts($1, $2, $3, $4)", *arguments)
    return [tuple(row) for row in found]


def unit_of(channel: int) -> str:
    """The unit of a channel; a name of one part is a unit of its own."""
    name = _NAMES[channel - 1]
    return name.rpartition("/")[0] or name


def expected(rows: list[Row], since: datetime, until: datetime, step: timedelta) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    while since < until:
        within = [row for row in rows if since <= row[0] < min(since + step, until)]
        for unit in sorted({unit_of(row[1]) for row in within}):
            own = [row for row in within if unit_of(row[1]) == unit]
            channels = {channel for _, channel, what, _ in own if what in {"sample", "text"}}
            texts = {text for _, _, what, text in own if what == "text"}
            alarms = {channel for _, channel, what, _ in own if what == "raised"}
            if channels or alarms:
                found.append((since, unit, len(channels), len(texts), len(alarms)))
        since += step
    return found


async def test_counts_are_those_of_a_set(owner: asyncpg.Connection, reader: asyncpg.Connection) -> None:
    random = Random(8)
    await add_sources(owner, "s")
    await owner.executemany(_CHANNEL, [(i, name) for i, name in enumerate(_NAMES, 1)])
    rows: list[Row] = []
    for _ in range(150):
        at = DAY + timedelta(minutes=random.choice([random.randrange(60 * 24), 60 * random.randrange(24)]))
        what = random.choice(["sample", "sample", "text", "raised"])
        rows.append((at, random.randrange(len(_NAMES)) + 1, what, random.choice(["on", "off", "jam"])))
    rows = list({row[:3]: row for row in rows}.values())
    await owner.executemany(_SAMPLE, [(at, c, random.choice([0, _BAD])) for at, c, what, _ in rows if what == "sample"])
    events = [
        (at, k, "text" if what == "text" else "alarm", c, text, '{"action": "raised"}' if what == "raised" else "{}")
        for k, (at, c, what, text) in enumerate(rows)
        if what != "sample"
    ]
    await owner.executemany(_EVENT, events)
    await owner.execute(_EVENT, DAY, -1, "alarm", 1, None, '{"action": "returned"}')
    for packed in (None, DAY + timedelta(hours=9), DAY + timedelta(days=1)):
        if packed is not None:
            await compress(owner, packed)
        for _ in range(40):
            since = DAY + timedelta(minutes=random.choice([0, 60, random.randrange(1000)]))
            until = since + timedelta(minutes=random.choice([1, 30, 60, 90, 600, 1440]))
            step = timedelta(minutes=random.choice([20, 60, 95, 2000]))
            assert await counts(reader, None, since, until, step) == expected(rows, since, until, step)
    some = await counts(reader, ["b/*", "alone"], DAY, DAY + timedelta(days=1), None)
    assert [row[1] for row in some] == ["alone", "b/c"]


async def test_samples_that_retention_dropped_are_an_error(
    owner: asyncpg.Connection, reader: asyncpg.Connection
) -> None:
    await add_sources(owner, "s")
    await owner.executemany(_CHANNEL, [(i, name) for i, name in enumerate(_NAMES, 1)])
    next_day = DAY + timedelta(days=1)
    for at in (DAY, next_day):
        await owner.executemany(_SAMPLE, [(at, c, 0) for c in (1, 2)])
    await owner.execute("INSERT INTO plant.rollup_dirty (from_time, to_time) VALUES ($1, $2)", DAY, next_day)
    await owner.execute("CALL plant.refresh_rollups()")
    await owner.execute("INSERT INTO plant.retention_class (name) VALUES ('fast')")
    await owner.execute("UPDATE plant.channel SET retention = 'fast' WHERE id = 1")
    assert await owner.fetch("SELECT * FROM plant.drop_before($1, 'raw', 'fast', false)", next_day)
    for patterns in (None, ["a/x"]):
        with pytest.raises(asyncpg.NoDataFoundError, match="retention dropped samples that were stored at"):
            await counts(reader, patterns, DAY, next_day, None)
    assert await counts(reader, ["a/y"], DAY, next_day, None) == [(DAY, "a", 1, 0, 0)]
    assert await counts(reader, None, next_day, next_day + timedelta(days=1), None) == [(next_day, "a", 2, 0, 0)]


async def test_time_without_an_end_or_a_step_of_nothing_is_refused(reader: asyncpg.Connection) -> None:
    for arguments in ((None, DAY, None, None), (None, DAY, DAY, None), (None, DAY, DAY + timedelta(1), timedelta(0))):
        with pytest.raises(asyncpg.InvalidParameterValueError):
            await counts(reader, *arguments)
