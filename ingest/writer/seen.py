"""How a member of a redundant pair notices that the database lost what the other member wrote.

What this member itself wrote is compared by its keys (``restored.py``). What the other one wrote has keys of its own;
this member received it, too, and has it in its journal. So it compares heartbeats: the database says when it saw this
member before. If that is earlier than what it said last, or said on another timeline, all that was committed since then
may be lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from core.files import write_atomically
from core.timestamps import now_us
from ingest.journal.replay import replay

_FILE = "seen"  # in the spool folder: timeline, and when the database had seen this member (µs)
_MARGIN_US = 60_000_000  # that is looked up, too


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer to a heartbeat. Times are µs, by the database's clock."""

    away: bool  # the other member
    timeline: str
    before: int | None  # when this member was seen before; None: never
    now: int


def request_lost(spool: Path, seen: Seen) -> int:
    """Request that what the other member wrote is looked up, and written again, if the database may have lost it.

    How many batches these are. Raises OSError.
    """
    path, before = spool / _FILE, seen.before or 0
    try:
        timeline, time = path.read_text().split()
        known = int(time)
    except (OSError, ValueError):  # nothing was seen yet
        timeline, known = seen.timeline, before
    batches = 0
    if timeline != seen.timeline or before < known:
        since = min(before, known) + now_us() - seen.now  # by the clock of the journal
        batches = replay(spool, since - _MARGIN_US, by_other=True).batches
    write_atomically(path, f"{seen.timeline} {before}\n")
    return batches
