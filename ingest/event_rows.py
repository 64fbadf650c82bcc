"""Events as the parameter arrays of ``schema/queries/write.sql``."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

from core.batch import NO_SOURCE, Event
from core.timestamps import timestamp


def event_id(source_id: int, event: Event) -> int:
    """A positive 63-bit hash of the whole event: a replayed event has the same id.

    An event of a server is that with its EventId, whatever else is known of it (OPC 10000-5, 6.4.2).
    """
    server_event_id = event.detail.get("event_id")
    content = json.dumps(
        [source_id, event.type, event.time, event.channel_id, event.status, event.text, dict(event.detail)]
        if server_event_id is None
        else [source_id, event.time, server_event_id],
        sort_keys=True,
    )
    digest = hashlib.blake2b(content.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def storable(text: str) -> tuple[str, bool]:
    """``text`` without what PostgreSQL cannot store (NUL, lone surrogates), and whether it was changed."""
    stored = text.replace("\0", "\N{SYMBOL FOR NULL}").encode(errors="replace").decode()
    return stored, stored != text


def event_columns(events: Sequence[tuple[int, Event]]) -> tuple[list[Any], ...]:
    """The parameters of section ``events``: one list per column, by time and id, the order of the table's key.

    Two connections that write the same events lock them in that order and never deadlock.
    """
    rows: list[tuple[Any, ...]] = []
    for source_id, event in events:
        text, changed = storable(event.text) if event.text is not None else (None, False)
        detail = {**event.detail, "text_escaped": True} if changed else event.detail
        status = None if event.status is None else signed(event.status)
        row = (
            timestamp(event.time),
            event_id(source_id, event),
            event.type,
            None if source_id == NO_SOURCE else source_id,
            event.channel_id,
            status,
            text,
            _jsonb(detail),
        )
        rows.append(row)
    rows.sort(key=itemgetter(0, 1))
    return tuple(map(list, zip(*rows, strict=True)))


def state_columns(events: Sequence[tuple[int, Event]]) -> tuple[list[int], list[str], list[datetime], list[str]]:
    """The parameters of section ``source_state`` for the source_state events among ``events``."""
    states = [(source_id, event) for source_id, event in events if event.type == "source_state"]
    return (
        [source_id for source_id, _ in states],
        [event.text or "" for _, event in states],
        [timestamp(event.detail.get("since", event.time)) for _, event in states],  # since: only the reason is new
        [str(event.detail.get("reason", "")) for _, event in states],
    )


def alarm_columns(alarms: Sequence[tuple[int, Event]]) -> tuple[list[Any], ...]:
    """The parameters of the writer's statements in ``schema/queries/alarms.sql``, of events of type ``alarm``."""
    keys = [event.condition_key for _, event in alarms]
    return (
        [timestamp(event.time) for _, event in alarms],
        [event_id(source_id, event) for source_id, event in alarms],
        [source_id for source_id, _ in alarms],
        [event.channel_id for _, event in alarms],
        [None if key is None else storable(key)[0] for key in keys],
        [_jsonb(event.detail) for _, event in alarms],
    )


def version_columns(events: Sequence[Event]) -> tuple[list[int | None], list[int], list[datetime]]:
    """The parameters of section ``version_read``."""
    return (
        [event.channel_id for event in events],
        [event.detail["version"] for event in events],
        [timestamp(event.time) for event in events],
    )


def reset_columns(events: Sequence[Event]) -> tuple[list[int | None], list[datetime], list[datetime]]:
    """The parameters of section ``known_resets``."""
    return (
        [event.channel_id for event in events],
        [timestamp(event.detail.get("since", event.time)) for event in events],
        [timestamp(event.time) for event in events],
    )


def _jsonb(detail: Mapping[str, Any]) -> str:
    """JSON that PostgreSQL can store: it escapes everything but ASCII, and jsonb rejects ``\\u0000``."""
    return json.dumps(dict(detail)).replace("\\u0000", "\\u2400")


def signed(status: int) -> int:
    """The bits of a StatusCode as PostgreSQL's signed integer."""
    return status - 2**32 if status >= 2**31 else status
