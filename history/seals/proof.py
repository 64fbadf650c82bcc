"""Proofs of what came to a sealed day: without it, there is what was sealed.

Sealing amends by this, and verifying explains by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.samples import Samples, slices
from core.timestamps import HOUR_US, begin, microseconds
from history.reading.day_samples import DaySamples
from history.reading.hours import hour_digests
from history.reading.reader import add_event, gap_rows
from history.reading.scope import Scope
from history.seals.partial_digests import MAX_CHANNELS, MAX_SAMPLES
from history.seals.receipts import Receipts, encode_mask
from history.seals.seal_store import SealedDay
from history.standalone import event_digests, gaps_before, gaps_digest, tagged_hash

Digest = tuple[int, bytes]  # rows, digest
NOTHING: Digest = (0, b"")


@dataclass(frozen=True, slots=True)
class AmendedHour:
    """An hour of a channel, or of the events (None), to which rows came, and which of its rows came."""

    channel_id: int | None
    hour: int
    before: Digest
    now: Digest
    added: NDArray[np.bool_]

    def as_json(self, **named: Any) -> dict[str, Any]:
        """Entry of it in an amended seal."""
        return {
            **named,
            "hour": self.hour,
            "before": self.before[0],
            "after": self.now[0],
            "added": encode_mask(self.added),
        }


def amended_hour(samples: Samples, hour: int, day: date, late: Any, sealed: Digest) -> AmendedHour | None:
    """Samples that were added to an hour of a channel; None: without them, the hour is not as sealed.

    ``samples``: those of that hour. ``late``: times of the samples that came, by receipts.
    """
    added = np.isin(samples.time, late)
    if hour_digests(samples.part(~added), day).get(hour, NOTHING) != sealed:
        return None
    return AmendedHour(int(samples.channel[0]), hour, sealed, hour_digests(samples, day)[hour], added)


@dataclass(slots=True)
class AmendedSamples:
    """Changes of the samples of a day since its seal."""

    hours: list[AmendedHour] = field(default_factory=list)
    unproven: set[tuple[int, int]] = field(default_factory=set)  # (channel, hour)
    unread: set[tuple[int, int]] = field(default_factory=set)  # the same: for the next amendment


async def amended_samples(
    samples: DaySamples, sealed: SealedDay, receipts: Receipts, most: int | None = None
) -> AmendedSamples:
    """Hours that samples came to. ``most``: samples to read, about."""
    amended, read = AmendedSamples(), 0
    sealed_hours = {number: hours.by_hour() for number, hours in sealed.hours().items()}
    for hour, channels in receipts.hours().items():
        n = max(
            sealed_hours.get(number, {}).get(hour, NOTHING)[0] + len(receipts.of_hour(number, hour))
            for number in channels
        )
        for part in slices(channels, max(1, min(MAX_CHANNELS, MAX_SAMPLES // max(n, 1)))):
            if most is not None and read >= most:
                amended.unread |= {(number, hour) for number in part}
                continue
            samples_by_channel = await samples.read(part, range(hour, hour + 1))
            read += sum(map(len, samples_by_channel.values()))
            late = await samples.new_times({number: receipts.of_hour(number, hour) for number in part})
            for number in part:
                sealed_digest = sealed_hours.get(number, {}).get(hour, NOTHING)
                if number not in samples_by_channel:
                    amended.unproven |= {(number, hour)} if sealed_digest != NOTHING else set()
                    continue
                changed_hour = amended_hour(samples_by_channel[number], hour, samples.day, late[number], sealed_digest)
                if changed_hour is None:
                    amended.unproven.add((number, hour))
                elif changed_hour.now != sealed_digest:
                    amended.hours.append(changed_hour)
    return amended


@dataclass(frozen=True, slots=True)
class AmendedEvents:
    """Changes of the events of a day since its seal."""

    hours: list[AmendedHour]
    unproven: set[tuple[int, int]]  # time and id of added events without proof
    added: dict[int, int]  # hour → events that came, by receipts


async def amended_events(samples: DaySamples, sealed: SealedDay, scope: Scope, receipts: Receipts) -> AmendedEvents:
    """Hours that events came to."""
    first = microseconds(begin(samples.day))
    rows: dict[int, list[bytes]] = {}
    keys: dict[int, list[tuple[int, int]]] = {}
    async for values in samples.event_rows(scope):
        hour = add_event(rows, values, samples.day)
        keys.setdefault(hour, []).append((values[0], values[1]))
    now, before = event_digests(rows), sealed.parts[-1].events.by_hour()
    amended: list[AmendedHour] = []
    unproven: set[tuple[int, int]] = set()
    n_added: dict[int, int] = {}
    for hour in sorted({(us - first) // HOUR_US for us, _ in receipts.events}):
        added = np.array([key in receipts.events for key in keys.get(hour, ())], bool)
        n_added[hour] = int(added.sum())
        kept = [row for row, is_new in zip(rows.get(hour, ()), added.tolist(), strict=True) if not is_new]
        sealed_digest = before.get(hour, NOTHING)
        if (len(kept), tagged_hash("event hour", *kept) if kept else b"") != sealed_digest:
            unproven |= {key for key in receipts.events if (key[0] - first) // HOUR_US == hour}
        elif added.any():
            amended.append(AmendedHour(None, hour, sealed_digest, now[hour], added))
    return AmendedEvents(amended, unproven, n_added)


@dataclass(frozen=True, slots=True)
class AmendedGaps:
    """Changes of the gaps of a day since its seal."""

    rows: Sequence[tuple[Any, ...]]  # now
    changes: Sequence[Mapping[str, Any]] | None  # as an amended seal lists them; None: not proven

    @property
    def digest(self) -> bytes:
        """The digest of the gaps as they are now."""
        return gaps_digest(self.rows)


async def amended_gaps(samples: DaySamples, sealed: SealedDay, scope: Scope, receipts: Receipts) -> AmendedGaps:
    """Gaps that were added, or whose report was replaced."""
    rows = await gap_rows(samples.connection, samples.day, scope)
    changes = receipts.changed_gaps(rows)
    if changes is not None and gaps_digest(gaps_before(rows, changes)) != sealed.parts[-1].gaps:
        changes = None
    return AmendedGaps(rows, changes)


def by_channel(hours: Sequence[AmendedHour]) -> Iterator[tuple[int, list[AmendedHour]]]:
    """Channel id → its amended hours, both ascending."""
    hours_by_channel: dict[int, list[AmendedHour]] = {}
    for amended in hours:
        hours_by_channel.setdefault(amended.channel_id or 0, []).append(amended)
    yield from (
        (number, sorted(hours_by_channel[number], key=lambda amended: amended.hour))
        for number in sorted(hours_by_channel)
    )
