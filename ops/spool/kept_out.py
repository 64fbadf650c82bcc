"""What is in plant.quarantine, by reason."""

from __future__ import annotations

import asyncio
from typing import Any

import asyncpg
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from ingest.errors import DatabaseError, OperationError
from ops.paths import State
from schema.queries import load

_CONNECT_SECONDS = 10.0
_WORDS = 60  # characters of what the database said


def dsn(state: State, role: str) -> str:
    """The DSN of a role. Raises OperationError where there is no database yet."""
    path = state.dsn_file(role)
    if not path.exists():
        raise OperationError(f"{state.root} has no database yet: run `plantlog up`")
    return path.read_text().strip()


def listed(state: State, limit: int) -> dict[str, Any]:
    """Reasons, with the newest ``limit`` rows of each. Raises DatabaseError."""
    try:
        return asyncio.run(_listed(dsn(state, "reader"), limit))
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise DatabaseError(f"the database does not answer: {str(error) or type(error).__name__}") from error


async def _listed(where: str, limit: int) -> dict[str, Any]:
    queries = load("quarantine")
    connection = await asyncpg.connect(where, timeout=_CONNECT_SECONDS)
    try:
        reasons = []
        for row in await connection.fetch(queries["reasons"]):
            rows = await connection.fetch(queries["newest"], row["reason"], limit)
            reasons.append({**_plain(row), "listed": [_plain(one) for one in rows]})
    finally:
        connection.terminate()
    return {"rows": sum(one["rows"] for one in reasons), "reasons": reasons}


def _plain(row: asyncpg.Record) -> dict[str, Any]:
    """A row as JSON can say it."""
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def tables(found: dict[str, Any]) -> RenderableType:
    """The tables of :func:`listed`."""
    if not found["reasons"]:
        return "nothing is in quarantine"
    return Group(*(_table(one) for one in found["reasons"]))


def _table(reason: dict[str, Any]) -> Table:
    title = f"{reason['reason']}: {reason['rows']:,} rows of {', '.join(reason['sources'])}, the newest:"
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
            escape((row["error"] or "")[:_WORDS]),
        )
    return table
