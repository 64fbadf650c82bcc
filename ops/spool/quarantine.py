"""Rows in plant.quarantine, by reason."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ingest.database import connect, database_errors
from ops.paths import State
from schema.queries import load

_MAX_ERROR_CHARACTERS = 60  # characters of what the database said


def list_rows(state: State, limit: int) -> dict[str, Any]:
    """Reasons, with the newest ``limit`` rows of each. Raises DatabaseError."""
    with database_errors():
        return asyncio.run(_list_rows(state.dsn("reader"), limit))


async def _list_rows(dsn: str, limit: int) -> dict[str, Any]:
    queries = load("quarantine")
    connection = await connect(dsn, "plantlog quarantine")
    try:
        reasons = []
        for row in await connection.fetch(queries["select_reasons"]):
            rows = await connection.fetch(queries["select_newest"], row["reason"], limit)
            reasons.append({**_json_row(row), "listed": [_json_row(one) for one in rows]})
    finally:
        connection.terminate()
    return {"rows": sum(one["rows"] for one in reasons), "reasons": reasons}


def _json_row(row: asyncpg.Record) -> dict[str, Any]:
    """A row as JSON can say it."""
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def tables(found: dict[str, Any]) -> RenderableType:
    """The tables of :func:`list_rows`."""
    if not found["reasons"]:
        return "the quarantine is empty"
    return Group(*(_table(one) for one in found["reasons"]))


def _table(reason: dict[str, Any]) -> Table:
    title = f"{reason['reason']}: {reason['rows']:,} rows of {', '.join(reason['sources'])}; newest rows:"
    table = Table(title=escape(title), title_justify="left")
    for name in ("at", "source", "channel", "kind", "time µs", "value", "status", "error"):
        table.add_column(name, justify="right" if name in ("time µs", "value") else "left")
    for row in reason["listed"]:
        status = "" if row["status"] is None else f"0x{row['status'] & 0xFFFFFFFF:08X}"
        table.add_row(
            row["quarantined_at"][:19],
            escape(row["source"]),
            escape(row["channel"] or ""),
            row["kind"],
            "" if row["time_us"] is None else str(row["time_us"]),
            row["value"] or "",
            status,
            escape((row["error"] or "")[:_MAX_ERROR_CHARACTERS]),
        )
    return table
