"""Functions that DuckDB calls in the database: they have few arguments in a query, but may read any sample."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import wraps
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from core.timestamps import microseconds
from history.sql.kernel_functions import KernelFunctions
from history.sql.kernels.columns import by_portion
from history.sql.kernels.reference import sampling_intervals
from history.sql.sources.samples import SampleSource
from schema.queries import load

_MACRO = re.compile(r"^CREATE MACRO (\w+)\(.*?(?=^CREATE MACRO |\Z)", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"\w+")


class Functions:
    """``channel_ids`` and the others that queries call, and the macros."""

    def __init__(self, source: SampleSource, failures: list[BaseException]) -> None:
        """``failures``: where errors are put that end a query."""
        self._source = source
        self._kernels = KernelFunctions(source)
        self._failures = failures
        self._made = set[str]()

    def make(self, connection: Any, text: str | None = None) -> None:
        """Make the functions and macros that a text names, and those that these name; None: all. What is made already
        stays as it is: each takes 2 ms."""
        queries, words = load("duckdb"), set[str]()
        macros = {one[1]: one[0] for section in ("texts", "macros") for one in _MACRO.finditer(queries[section])}
        waiting = [] if text is None else [text]
        while waiting:
            new = {*_WORD.findall(waiting.pop())} - words
            words |= new
            waiting += [macros[name] for name in new if name in macros]

        def is_needed(name: str) -> bool:
            is_new = name not in self._made and (text is None or name in words)
            if is_new:
                self._made.add(name)
            return is_new

        self._register(connection, is_needed)
        connection.execute("\n;\n".join(macro for name, macro in macros.items() if is_needed(name)))

    def _register(self, connection: Any, is_needed: Callable[[str], bool]) -> None:
        """Let queries call functions. DuckDB computes those of constants before it reads any table."""
        time, integer = "TIMESTAMP WITH TIME ZONE", "INTEGER"
        for call, arguments, result in (
            (self.channel_ids, [duckdb.list_type("VARCHAR")], duckdb.list_type(integer)),
            (self.shortest_interval, [duckdb.list_type("VARCHAR")], "DOUBLE"),
            (self.usual_intervals, [duckdb.list_type("VARCHAR"), time, time], duckdb.list_type("DOUBLE")),
            (self.quarantined_channels, [time, time], duckdb.list_type(integer)),
            (self.first_sample, [integer, time, time], time),
            (self.held_text, [integer, time], "VARCHAR"),
        ):
            if is_needed(call.__name__):
                connection.create_function(call.__name__, self._noted(call), arguments, result, null_handling="special")
        if is_needed("has_sample_before"):
            before = self._noted(self.has_sample_before)
            connection.create_function(
                "has_sample_before", before, [integer, time], "BOOLEAN", type="arrow", null_handling="special"
            )
        self._kernels.register(connection, self._noted, is_needed)

    def channel_ids(self, patterns: Sequence[str] | None) -> list[int] | None:
        """The channels that have one of these names, in which ``*`` stands for any text; null: all."""
        return None if patterns is None else self._source.matching(patterns)

    def shortest_interval(self, patterns: Sequence[str] | None) -> float | None:
        """The shortest one (s) in which a channel of such a name is expected to be read; null: there is none."""
        return self._source.shortest_interval(patterns)

    def usual_intervals(
        self, patterns: Sequence[str] | None, since: datetime | None, until: datetime | None
    ) -> list[float] | None:
        """Times (s) between samples of channels of such a name: the usual one, and without a tenth of the channels on
        either side the shortest and the longest; null: they have no samples.

        It reads as little as shows the usual one: the first minute, hour or day, or all; and the next longer time of
        those that have too few samples there.
        """
        if since is None or until is None or not (ids := self.channel_ids(patterns)):
            return None
        lengths = (timedelta(minutes=1), timedelta(hours=1), timedelta(days=1))
        ends = sorted({min(since + length, until) for length in lengths} | {until})
        for end, later in pairwise([*ends, until]):
            intervals = self._sampling_intervals(ids, since, end)
            if 4 * len(intervals) >= len(ids) or (end == until and intervals):
                rarer = [channel for channel in ids if channel not in intervals] if later > end else []
                every = sorted([*intervals.values(), *self._sampling_intervals(rarer, since, later).values()])
                tenth = len(every) // 10
                return [sorted(intervals.values())[len(intervals) // 2], every[tenth], every[-1 - tenth]]
        return None

    def _sampling_intervals(self, ids: Sequence[int], since: datetime, until: datetime) -> dict[int, float]:
        """Times (s) between samples, by channel, of those that have enough samples."""
        within = microseconds(since), microseconds(until)
        parts = self._source.results(ids, within, by_portion(sampling_intervals), names=()) if ids else ()
        columns = ((part["channel_id"].tolist(), (part["interval"] / 1e6).tolist()) for part in parts)
        return {channel: seconds for part in columns for channel, seconds in zip(*part, strict=True)}

    def quarantined_channels(self, since: datetime | None, until: datetime | None) -> list[int] | None:
        """Channels of which samples were quarantined with since <= time < until."""
        if since is None or until is None:
            return None
        return self._source.quarantined_channels(since, until)

    def first_sample(self, channel: int | None, since: datetime | None, until: datetime | None) -> datetime | None:
        """Time of the first sample with since <= time < until, as of ``plant.first_sample``; None: there is none."""
        if channel is None or since is None or until is None:
            return None
        return self._source.first(channel, since, until)

    def held_text(self, channel: int | None, before: datetime | None) -> str | None:
        """The last text of a channel before a time, if there is one in the month before."""
        return None if channel is None or before is None else self._source.held_text(channel, before)

    def has_sample_before(self, channels: Any, before: Any) -> Any:
        """Answers of ``plant.has_sample_before``, for many channels at a time."""
        return pa.array(self._source.have_sample_before(channels.to_pylist(), before.to_pylist()), pa.bool_())

    def _noted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)  # DuckDB counts its parameters
        def noted(*arguments: Any) -> Any:
            try:
                return call(*arguments)
            except BaseException as error:
                self._failures.append(error)  # DuckDB passes on no more than a text
                raise

        return noted
