"""Days to drop to meet the disk budget, and how many days the disk will last. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby

from core.formatting import count

_DAY = timedelta(days=1)
_WINDOW = 7 * _DAY  # over which growth is averaged


@dataclass(frozen=True, slots=True)
class StorageUnit:
    """Raw data that can be dropped as a whole and frees its disk space at once."""

    relation: str
    from_time: datetime
    to_time: datetime
    bytes: int
    free: bool = True  # it has its seal, and its rollups are made


@dataclass(frozen=True, slots=True)
class BudgetChoice:
    """Days that the budget drops, oldest first, and how many bytes (0: none) cannot be freed at all."""

    units: tuple[StorageUnit, ...] = ()
    lacking: int = 0


def choose(size: int, budget: int | None, closed_units: Sequence[StorageUnit]) -> BudgetChoice:
    """The oldest closed days that bring ``size`` (bytes) within ``budget``, and not one more.

    Days that are not free are kept. If everything that may be dropped is not enough, nothing is dropped.
    """
    excess = 0 if budget is None else size - budget
    if excess <= 0:
        return BudgetChoice()
    droppable = sorted((u for u in closed_units if u.free), key=lambda u: (u.to_time, u.from_time, u.relation))
    chosen: list[StorageUnit] = []
    freed = 0
    for _, day_units in groupby(droppable, key=lambda u: u.to_time):
        if freed >= excess:
            break
        day = list(day_units)  # its rows and its packed hours go together
        chosen += day
        freed += sum(unit.bytes for unit in day)
    return BudgetChoice(tuple(chosen)) if freed >= excess else BudgetChoice(lacking=excess - freed)


def growth(units: Sequence[StorageUnit], closed_until: datetime, now: datetime) -> float:
    """Bytes a day, from what the last closed days take; of a database younger than a day, from what it has.

    A unit longer than a day counts by its part.
    """
    oldest = min((u.from_time for u in units if u.bytes), default=now)
    since = max(oldest, closed_until - _WINDOW)
    until = closed_until if since < closed_until else now
    length = until - since
    if length <= timedelta(0):
        return 0.0
    return sum(u.bytes * _share(u, since, until, now) for u in units) / (length / _DAY)


def _share(unit: StorageUnit, since: datetime, until: datetime, now: datetime) -> float:
    """The part of a unit's bytes that lies between two times: an open unit is filled up to now."""
    end = min(unit.to_time, max(now, unit.from_time))
    overlap = min(end, until) - max(unit.from_time, since)
    if overlap <= timedelta(0) or end <= unit.from_time:
        return 0.0
    return overlap / (end - unit.from_time)


def days_left(
    size: int, budget: int | None, disk_free: int | None, growth_per_day: float, aged_per_day: float
) -> float | None:
    """Days until the disk is full; None where that can't be known: no budget, and a disk that is not ours to see.

    ``growth_per_day``, ``aged_per_day``: bytes added and dropped by age per day. A database with a smaller budget
    never fills it; if the disk is not visible, the budget is the limit.
    """
    if disk_free is None and budget is None:
        return None
    net = max(0.0, growth_per_day - aged_per_day)
    if disk_free is None:
        room = max(0, (budget or 0) - size)
    elif budget is not None and budget - size <= disk_free:
        return math.inf
    else:
        room = disk_free
    return room / net if net > 0 else math.inf


def duration(left: float | None) -> str:
    """Days of :func:`days_left` in words. The dashboards read the number back from them (queries ``days_left``)."""
    if left is None:
        return ""
    return "disk lasts for years" if left > 3650 else f"disk lasts {count(round(left), 'day')}"
