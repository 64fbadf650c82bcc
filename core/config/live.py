"""Options that a source's open connection can follow; all others need a new connection."""

from __future__ import annotations

from core.config.base import fields_of
from core.config.sources import Source, SourceKind

_LIVE_OPTIONS: dict[SourceKind, set[str]] = {
    "opcua": {
        "tags",
        "publishing_interval",
        "sampling_interval",
        "queue_size",
        "discard_oldest",
        "stale_after",
    },
    "modbus": {"tags", "poll_interval", "bridge", "max_registers", "standby"},
}


def reconnects(before: Source, now: Source) -> bool:
    """Return whether a change of options needs a new connection. Gateways connect to plantlog: theirs stay."""
    if before.kind != now.kind:
        return True
    live = _LIVE_OPTIONS.get(now.kind)
    return live is not None and any(
        getattr(before, name) != getattr(now, name) for name in fields_of(type(now)).keys() - live
    )
