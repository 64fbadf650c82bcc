"""Sources that were removed from the configuration while no process read them: that nothing was read is on record.

A process that reads a source closes its gaps when the configuration no longer names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from core.config.model import Plant
from core.time_limits import TimeLimits
from core.timestamps import now_us
from ingest.appender import Appender
from ingest.downtime import Downtime
from ingest.gaps import Gaps
from ingest.notes import Note
from ingest.spool.append import Spool
from ingest.spool.metadata import SourceLocks
from ingest.status import SourceStatus


async def close_removed(folder: Path, plant: Plant, removed: Mapping[int, str]) -> None:
    """Record the downtime until now of sources as a gap, and close their open gaps. Raises SpoolError.

    ``folder``: of the spool files; ``removed``: id → name of sources that ``plant`` no longer has.
    """
    limits = TimeLimits(plant.writer.future_limit, plant.writer.oldest)
    for path in (folder / f"{kind}.sqlite" for kind in ("opcua", "modbus", "push")):
        if not path.exists():
            continue
        locks, spool = SourceLocks(path), Spool(path, plant.spool.max_bytes, limits)
        try:
            for source_id, name in removed.items():
                if locks.acquire(source_id):  # else the process that reads it closes them
                    await spool.reload_notes()
                    await _close(SourceStatus(source_id, name, path.stem, "", 0), spool)
        finally:
            await spool.close()
            locks.close()


async def _close(status: SourceStatus, spool: Appender) -> None:
    gaps, downtime = Gaps(status, spool), Downtime(status.source_id, spool)
    ending = downtime.shutdown()
    if (since := _read_to(status.source_id, spool, downtime)) is not None:
        await gaps.open(since, ending, f"plantlog was {ending}; then the source was removed from the configuration")
    await gaps.close_all(now_us())
    await gaps.flush_or_raise()


def _read_to(source_id: int, spool: Appender, downtime: Downtime) -> int | None:
    """Time (µs) up to which a source was read, not before its last sample; None: not at all, or it pushes."""
    interruption = downtime.interruption()
    noted = [] if interruption is None else [interruption[0]]
    if Note.OPCUA.of(source_id) in spool.notes:
        # Imports asyncua: 0.3 s and 30 MB that no other kind needs.
        from ingest.opcua.subscription.subscription_state import decode_state  # noqa: PLC0415

        subscriptions = decode_state(source_id, (), spool.notes)[0].subscriptions.values()
        published = [s.tracker.complete_to for s in subscriptions if s.tracker.complete_to > 0]
        noted += [min(published)] if published else []
    return max(noted, default=None)
