"""What has to go for the database to fit, and how long the room will last: decisions without a database."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

_DAY = timedelta(days=1)
_WINDOW = 7 * _DAY  # over which growth is averaged


@dataclass(frozen=True, slots=True)
class Unit:
    """Raw data that can go as a whole, and gives its room back at once."""

    relation: str
    from_time: datetime
    to_time: datetime
    bytes: int
    free: bool = True  # it has its seal, and its rollups are made


@dataclass(frozen=True, slots=True)
class Choice:
    """What the budget takes, oldest first, and how many bytes (0: none) can't be had however much went."""

    units: tuple[Unit, ...] = ()
    lacking: int = 0


def choose(size: int, budget: int | None, closed: Sequence[Unit]) -> Choice:
    """The oldest closed days that bring ``size`` (bytes) within ``budget``, and not one more.

    Days that are not free stay. Where all that may go would not be enough, nothing goes: the loss would be for nothing.
    """
    over = 0 if budget is None else size - budget
    if over <= 0:
        return Choice()
    may_go = sorted((u for u in closed if u.free), key=lambda u: (u.to_time, u.from_time, u.relation))
    chosen: list[Unit] = []
    freed = 0
    for _, together in groupby(may_go, key=lambda u: u.to_time):
        if freed >= over:
            break
        day = list(together)  # its rows and its packed hours go together
        chosen += day
        freed += sum(unit.bytes for unit in day)
    return Choice(tuple(chosen)) if freed >= over else Choice(lacking=over - freed)


def growth(units: Sequence[Unit], closed_until: datetime, now: datetime) -> float:
    """Bytes a day, from what the last closed days take; of a database younger than a day, from what it has.

    A unit longer than a day counts by its part.
    """
    begun = min((u.from_time for u in units if u.bytes), default=now)
    since = max(begun, closed_until - _WINDOW)
    until = closed_until if since < closed_until else now
    length = until - since
    if length <= timedelta(0):
        return 0.0
    return sum(u.bytes * _share(u, since, until, now) for u in units) / (length / _DAY)


def _share(unit: Unit, since: datetime, until: datetime, now: datetime) -> float:
    """The part of a unit's bytes that lies between two times: an open unit is filled up to now."""
    end = min(unit.to_time, max(now, unit.from_time))
    overlap = min(end, until) - max(unit.from_time, since)
    if overlap <= timedelta(0) or end <= unit.from_time:
        return 0.0
    return overlap / (end - unit.from_time)


def days_left(size: int, budget: int | None, disk_free: int | None, grows: float, aged: float) -> float | None:
    """Days until the disk is full; None where that can't be known: no budget, and a disk that is not ours to see.

    ``grows`` and ``aged``: bytes a day that come, and that ages drop. A database that its budget stops before the disk
    is full never fills it; of a disk that we don't see, the budget is the limit.
    """
    if disk_free is None and budget is None:
        return None
    net = max(0.0, grows - aged)
    if disk_free is None:
        room = max(0, (budget or 0) - size)
    elif budget is not None and budget - size <= disk_free:
        return math.inf
    else:
        room = disk_free
    return room / net if net > 0 else math.inf
