"""Questions over days of which samples are in an archive only, within limits that leave the machine to others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg

from dashboards.viewer.frames import MAX_BYTES, text_bytes
from dashboards.viewer.questions import Rows
from ingest.errors import OperationError, QueryError
from ops.archive.location import left_alone
from ops.forensics import portions
from ops.forensics.archived import Asked, over_archive
from ops.paths import State
from ops.sql.limits import Limits
from schema.forensics import questions
from schema.queries import load

NARROW = "choose a shorter time range or fewer channels, or use `plantlog ask`"
LIMITS = Limits("256MiB", 1, 15.0, NARROW, are_options=False)
MAX_ROWS = 50_000  # of an answer
_GRACE_SECONDS = 5.0  # until a question has ended whose time is up


class ArchivedQuestions:
    """Asks one at a time."""

    def __init__(self, state: Path) -> None:
        self._state = State(state)
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Future[Any]] = set()

    async def asked(
        self, connection: Any, question: str, values: Sequence[Any]
    ) -> tuple[Asked, Sequence[asyncpg.Attribute]] | None:
        """What DuckDB is to be asked, and the columns of the question in the database; None: that has all samples.

        ``values``: of the parameters, by position.
        """
        known = questions()[question]
        named = dict(zip((one.name for one in known.parameters), values, strict=False))
        for name, value in named.items():
            if isinstance(value, list):
                named[name] = await connection.fetchval(load("ask")["format_array"], value)
            elif isinstance(value, datetime):
                named[name] = value.isoformat()
        try:
            found = await over_archive(connection, known, json.dumps(named), None)
        except OperationError:  # samples are lost, which the panel "Samples of this time" says
            return None
        if found is None or not found.dropped:
            return None
        call = await connection.fetchval(load("ask")["format_call"], question, json.dumps(named))
        return found, (await connection.prepare(call)).get_attributes()

    async def answer(self, asked: Asked, attributes: Sequence[asyncpg.Attribute]) -> Rows:
        """Its rows. Raises QueryError."""
        limits = replace(LIMITS, stop=Future())
        async with self._turn:
            if self._running and (await asyncio.wait(self._running, timeout=_GRACE_SECONDS))[1]:
                raise QueryError(503, "the archive does not answer: an earlier question still waits for it")
            task = left_alone(portions.answer, self._state, asked, limits)
            self._running.add(task)
            task.add_done_callback(self._running.discard)
            try:
                await asyncio.wait([task], timeout=limits.seconds + _GRACE_SECONDS)
            except asyncio.CancelledError:  # the browser went on
                limits.stop.set_result(None)
                raise
            if not task.done():
                raise QueryError(504, f"the archive does not answer within {limits.seconds:g} s")
            try:
                columns, rows = task.result()
            except OperationError as error:
                raise QueryError(504, str(error)) from error
        if text_bytes(rows) > MAX_BYTES:
            raise QueryError(504, f"the texts of the answer have more than {MAX_BYTES:,} bytes: {NARROW}")
        if len(rows) > MAX_ROWS:
            raise QueryError(504, f"the answer has more than {MAX_ROWS:,} rows: {NARROW}")
        assert columns == tuple(one.name for one in attributes)
        return Rows(columns, [one.type.name for one in attributes], rows)
