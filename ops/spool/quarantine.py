"""Rows in plant.quarantine, by reason."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import asyncpg
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from core.database import connected, database_errors
from core.formatting import count
from core.paths import State
from core.timestamps import iso
from schema.queries import load

_MAX_CHARACTERS = 60  # of a text, and of what the database said


def list_rows(state: State, limit: int) -> dict[str, Any]:
    """Reasons, with the newest ``limit`` rows of each. Raises DatabaseError."""
    with database_errors():
        return asyncio.run(_list_rows(state.dsn("reader"), limit))


async def _list_rows(dsn: str, limit: int) -> dict[str, Any]:
    queries = load("quarantine")
    async with connected(dsn, "plantlog quarantine") as connection:
        reasons = []
        for row in await connection.fetch(queries["select_reasons"]):
            newest = await connection.fetch(queries["select_newest"], row["reason"], limit)
            listed = [_with_content(_json_row(row)) for row in newest]
            inside = [row["channel"] for row in listed if isinstance(row["channel"], int)]
            names = dict(await connection.fetch(queries["select_channel_names"], inside))
            for rejected in listed:
                rejected["channel"] = names.get(rejected["channel"], rejected["channel"])
            reasons.append({**_json_row(row), "listed": listed})
    return {"rows": sum(reason["rows"] for reason in reasons), "reasons": reasons}


def _json_row(row: asyncpg.Record) -> dict[str, Any]:
    """A row as JSON can say it."""
    return {key: value.isoformat() if hasattr(value, "isoformat") else value for key, value in row.items()}


def _with_content(row: dict[str, Any]) -> dict[str, Any]:
    """The row with the type and text of an event, the reason and detail of a gap, or the type of a count.

    The channel of an event is an id.
    """
    # Not in SQL, because jsonb rejects some valid JSON.
    content = json.loads(row.pop("content") or "{}")
    text = content.get("detail") if row["kind"] == "gap" else content.get("text")
    if row["channel"] is None:
        row["channel"] = content.get("channel_id")
    return {**row, "type": content.get("type", content.get("reason")), "text": text}


def tables(rows: dict[str, Any]) -> RenderableType:
    """The tables of :func:`list_rows`."""
    if not rows["reasons"]:
        return "the quarantine is empty"
    return Group(*(_table(reason) for reason in rows["reasons"]))


def _table(reason: dict[str, Any]) -> Table:
    title = f"{reason['reason']}: {count(reason['rows'], 'row')} of {', '.join(reason['sources'])}; newest first:"
    table = Table(title=escape(title), title_justify="left")
    for name in ("at", "source", "channel", "kind", "time", "value", "status", "text", "error"):
        table.add_column(name, justify="right" if name == "value" else "left")
    for row in reason["listed"]:
        status = "" if row["status"] is None else f"0x{row['status'] & 0xFFFFFFFF:08X}"
        table.add_row(
            f"{row['quarantined_at'][:19]}Z",
            escape(row["source"]),
            escape(str(row["channel"] or "")),
            f"{row['kind']} {row['type'] or ''}".rstrip(),
            "" if row["time_us"] is None else iso(row["time_us"]).replace("+00:00", "Z"),
            row["value"] or "",
            status,
            escape((row["text"] or "")[:_MAX_CHARACTERS]),
            escape((row["error"] or "")[:_MAX_CHARACTERS]),
        )
    return table
