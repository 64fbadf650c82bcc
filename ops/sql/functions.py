"""Functions that DuckDB calls in the database: they have few arguments in a query, but may read any sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial, wraps
from typing import Any, TypeVar

import asyncpg
import duckdb
import numpy as np
import pyarrow as pa

from ingest.timestamps import microseconds
from ops.archive.sample_file import TIME
from ops.sql import runs
from ops.sql.ahead import ahead
from ops.sql.columns import Columns, by_channel, good_values, listed
from ops.sql.correlations import CORRELATIONS, lagged_correlations
from ops.sql.held import HELD, held_statistics
from ops.sql.reader import Reader
from ops.sql.replays import PAIRS, replays
from ops.sql.runs import Runs
from ops.sql.samples import IN_ORDER, Samples
from ops.sql.scan import Scan
from schema.queries import load

Result = TypeVar("Result")
_SQL_TYPES = {
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.bool_(): "BOOLEAN",
    TIME: "TIMESTAMP WITH TIME ZONE",
}
_WITHIN = pa.struct([pa.field("time", TIME), pa.field("value", pa.float64())])


class Functions:
    """``channel_ids`` and the others that :meth:`register` names."""

    def __init__(self, reader: Reader, samples: Samples, failures: list[BaseException]) -> None:
        """``failures``: where errors are put that end a query."""
        self._reader = reader
        self._samples = samples
        self._failures = failures

    def register(self, connection: Any) -> None:
        """Let queries call them. DuckDB computes those of constants before it reads any table."""
        time, of = "TIMESTAMP WITH TIME ZONE", "INTEGER"
        for call, arguments, result in (
            (self.channel_ids, [duckdb.list_type("VARCHAR")], duckdb.list_type(of)),
            (self.namesakes, [duckdb.list_type("VARCHAR")], duckdb.list_type("VARCHAR")),
            (self.shortest_interval, [duckdb.list_type("VARCHAR")], "DOUBLE"),
            (self.calm_channels, [duckdb.list_type("VARCHAR"), time, time, "INTERVAL"], duckdb.list_type(of)),
            (self.quarantined_channels, [time, time], duckdb.list_type(of)),
            (self.first_sample, [of, time, time], time),
            (self.has_sample_before, [of, time], "BOOLEAN"),
            (self.run_lengths, [of, time, time], duckdb.list_type("BIGINT")),
        ):
            connection.create_function(call.__name__, self._noted(call), arguments, result, null_handling="special")
        number, numbers = "BIGINT", duckdb.list_type("BIGINT")
        series, times = [numbers, duckdb.list_type("DOUBLE")], duckdb.list_type(time)
        for vectorized, arguments, kind, nulls in (
            (lagged_correlations, [*series, *series, of], CORRELATIONS, "default"),
            (self.samples_within, [of, times, times], pa.list_(_WITHIN), "default"),
            (self.held_statistics, [of, "BOOLEAN", *[number] * 4, numbers], HELD, "special"),
            (self.replays, [of, *[number] * 3, of], pa.list_(PAIRS), "default"),
        ):
            function = self._noted(vectorized)
            connection.create_function(
                vectorized.__name__, function, arguments, _sql_type(kind), type="arrow", null_handling=nulls
            )

    def channel_ids(self, patterns: Sequence[str] | None) -> list[int] | None:
        """The channels that have one of these names, in which ``*`` stands for any text; null: all."""
        return None if patterns is None else [row["channel_id"] for row in _matching(self._channels(), patterns)]

    def namesakes(self, patterns: Sequence[str] | None) -> list[str] | None:
        """Names of all channels in plant units whose last part is that of the unit of such a channel."""
        if patterns is None:
            return None
        rows = self._channels()
        parts = {_last_part(row["unit_path"]) for row in _matching(rows, patterns)}
        return [row["name"] for row in rows if _last_part(row["unit_path"]) in parts]

    def calm_channels(
        self, patterns: Sequence[str] | None, since: datetime | None, until: datetime | None, hold: timedelta | None
    ) -> list[int] | None:
        """Channels of such names that hold their values for so long on average, from the first one until the end."""
        if since is None or until is None or hold is None:
            return None
        ids, us = self.channel_ids(patterns), round(hold / timedelta(microseconds=1))
        scan = Scan(IN_ORDER, None, None if ids is None else frozenset(ids))
        wanted = Runs(microseconds(since), microseconds(until), us)
        return runs.calm(self._samples.runs(scan, wanted), wanted.until, us)

    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; null: there is none."""
        rows = self._channels() if patterns is None else _matching(self._channels(), patterns)
        return min((row["expected"] for row in rows if row["expected"] is not None), default=None)

    def quarantined_channels(self, since: datetime | None, until: datetime | None) -> list[int] | None:
        """Channels of which samples were quarantined with since <= time < until."""
        if since is None or until is None:
            return None
        [row] = self._reader.fetch(load("sql")["select_quarantined_channels"], since, until)
        return row[0] or []

    def _channels(self) -> list[asyncpg.Record]:
        return self._reader.fetch(load("sql")["select_channel_names"])

    def first_sample(self, channel: int | None, since: datetime | None, until: datetime | None) -> datetime | None:
        """As ``plant.first_sample``: the time of the first one with since <= time < until, if there is one."""
        if channel is None or since is None or until is None:
            return None
        return self._samples.first(channel, since, until)

    def has_sample_before(self, channel: int | None, before: datetime | None) -> bool | None:
        """As ``plant.has_sample_before``."""
        if channel is None or before is None:
            return None
        [row] = self._reader.fetch(load("sql")["select_has_sample_before"], channel, before)
        return row[0] or self._samples.dropped_before(channel, before)

    def run_lengths(self, channel: int | None, since: datetime | None, until: datetime | None) -> list[int] | None:
        """How long (µs) each value of a channel was held until the next one, with since <= time < until."""
        if channel is None or since is None or until is None:
            return None
        scan = Scan(IN_ORDER, None, frozenset({channel}))
        return runs.lengths(self._samples.runs(scan, Runs(microseconds(since), microseconds(until), 0)))

    def samples_within(self, channel: Any, begins: Any, ends: Any) -> Any:
        """Of each channel the samples, as good_samples (schema/queries/duckdb.sql) has them, that are in one of its
        intervals, which do not overlap. Arrays of Arrow: ids, and lists of times.
        """
        ids = channel.to_pylist()
        intervals = {
            number: np.sort(np.array(edges, np.int64), axis=None)
            for number, *edges in zip(ids, *map(_times, (begins, ends)), strict=True)
        }
        edges = [one for one in intervals.values() if len(one)]
        bounds = (min(int(one[0]) for one in edges), max(int(one[-1]) for one in edges)) if edges else (0, 0)

        def within(number: int, columns: Columns) -> Columns:
            value, good = good_values(columns["value"].view(np.float64), columns["status"].view(np.int32))
            rows = good & (np.searchsorted(intervals[number], columns["time"], "right") % 2 == 1)
            return {"time": columns["time"][rows], "value": value[rows]}

        found = self._of_channels(frozenset(ids), bounds, within)
        return listed(_WITHIN, [found.get(number) for number in ids])

    def held_statistics(
        self, channel: Any, is_counter: Any, first: Any, since: Any, until: Any, ends: Any, gaps: Any
    ) -> Any:
        """Of each channel the mean and the spread of its values from since until it ends (ops/sql/held.py), by samples
        with first <= time < until. Arrays of Arrow: ids, times and lists of times (µs).
        """
        wanted: dict[tuple[int, int, int], dict[int, Any]] = {}
        keys = list(zip(*(column.to_pylist() for column in (first, since, until)), strict=True))
        ids = channel.to_pylist()
        for key, number, *one in zip(keys, ids, *(c.to_pylist() for c in (is_counter, ends, gaps)), strict=True):
            wanted.setdefault(key, {})[number] = one
        found: dict[tuple[Any, int], Any] = {}
        for key, of_interval in wanted.items():

            def held(number: int, columns: Columns, since: int = key[1], asked: dict[int, Any] = of_interval) -> Any:
                counter, end, times = asked[number]
                return held_statistics(columns, (since, end), np.array(times, np.int64), counter)

            of_channels = self._of_channels(frozenset(of_interval), (key[0], key[2]), held)
            found.update(((key, number), one) for number, one in of_channels.items())
        return pa.array([found.get(one) for one in zip(keys, ids, strict=True)], HELD)

    def replays(self, channel: Any, first: Any, since: Any, until: Any, samples: Any) -> Any:
        """Of each channel the pairs of ops/sql/replays.py, of samples with first <= time < until. Arrays of Arrow: ids,
        times (µs) and numbers; all but the ids are the same for each.
        """
        ids = channel.to_pylist()
        if not ids:
            return pa.array([], pa.list_(PAIRS))
        bounds = first[0].as_py(), until[0].as_py()
        found = self._of_channels(
            frozenset(ids), bounds, lambda _, columns: replays(columns, since[0].as_py(), samples[0].as_py())
        )
        return listed(PAIRS, [found.get(number) for number in ids])

    def _of_channels(
        self, ids: frozenset[int], bounds: tuple[int, int], computed: Callable[[int, Columns], Result]
    ) -> dict[int, Result]:
        """What is computed of the samples of each channel within the bounds (µs), by some threads."""

        def of(columns: Columns) -> tuple[int, Result]:
            number = int(columns["channel_id"][0])
            return number, computed(number, columns)

        return dict(ahead(partial(of, one) for one in by_channel(self._samples.between(ids, *bounds))))

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)  # DuckDB counts its parameters
        def noted(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except BaseException as error:
                self._failures.append(error)  # DuckDB passes on no more than a text
                raise

        return noted


def _times(lists: Any) -> list[list[int]]:
    return lists.cast(pa.list_(TIME)).cast(pa.list_(pa.int64())).to_pylist()  # type: ignore[no-any-return]


def _sql_type(kind: Any) -> str:
    """DuckDB's name of a type of Arrow."""
    if pa.types.is_list(kind):
        return f"{_sql_type(kind.value_type)}[]"
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{one.name} {_sql_type(one.type)}' for one in kind)})"
    return _SQL_TYPES[kind]


def _matching(rows: Sequence[asyncpg.Record], patterns: Sequence[str]) -> list[asyncpg.Record]:
    names = {one for one in patterns if "*" not in one}
    rest = "|".join(".*".join(map(re.escape, one.split("*"))) for one in patterns if "*" in one)
    matches = re.compile(rest or r"(?!)", re.DOTALL).fullmatch
    return [row for row in rows if row["name"] in names or matches(row["name"])]


def _last_part(path: str) -> str:
    return path.rpartition("/")[2]
