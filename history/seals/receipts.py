"""Receipts: what came to a sealed day since its newest seal, and what retention dropped (``plant.receipt``).

Whoever can write to the database can forge receipts. So those of samples and events are only a hint which rows to leave
out: the rest has to have the sealed digest. Those of gaps and of retention explain something only if they are signed;
those of gaps have numbers, and count once: seals list the numbers that they used up.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import chain
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.batch import Int64s
from core.samples import segments
from core.sealing_key import receipt_statement
from core.timestamps import HOUR_US, begin, microseconds
from history.reading.scope import Scope
from history.seals.keys import stored_keys
from history.standalone import GapRow, signed, trusted_keys
from ingest.writer.transaction.receipts import SAMPLE
from schema.queries import load

_EVENT = np.dtype([("time", ">i8"), ("id", ">i8")])


@dataclass(frozen=True, slots=True)
class Removal:
    """Removal by retention, as its receipt or its event records it."""

    what: str  # raw, event
    begins: int  # µs since 1970
    ends: int
    channels: frozenset[int]  # 0: events without a channel
    description: str

    @classmethod
    def parsed(cls, text: str, at: datetime) -> Removal | None:
        """A receipt, or the detail of an event ``retention``, from JSON; None: it is none."""
        try:
            detail = json.loads(text)
            spans = detail["channel_ids"].strip("{}").replace("[", "").replace(")", "").split(",")
            bounds = [int(bound) for bound in spans if bound]
            channels = (range(a, b) for a, b in zip(bounds[::2], bounds[1::2], strict=True))
            since, until = (microseconds(datetime.fromisoformat(detail[name])) for name in ("from", "to"))
            why = f" ({detail['why']})" if detail.get("why") else ""
            record = f"retention recorded at {at.isoformat(timespec='seconds')}{why}"
            return cls(detail["what"], since, until, frozenset(chain.from_iterable(channels)), record)
        except (ValueError, KeyError, TypeError):
            return None

    def covers(self, channel: int | None, begins: int, ends: int) -> bool:
        """Return whether all of a span of a channel (None: of events) was dropped, or of events may have been."""
        if not self.begins <= begins < ends <= self.ends:
            return False
        return self.what == "event" if channel is None else self.what == "raw" and channel in self.channels


@dataclass(slots=True)
class Receipts:
    """Receipts of one day, of the data that a seal covers."""

    day: date
    samples: dict[int, Int64s] = field(default_factory=dict)  # channel id → times (µs), ascending
    others: dict[int, Int64s] = field(default_factory=dict)  # the same of channels that the seal does not cover
    events: set[tuple[int, int]] = field(default_factory=set)  # time (µs) and id
    gaps: list[dict[str, Any]] = field(default_factory=list)  # oldest first; signed ones only
    removals: list[Removal] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)  # rows of samples, events and gaps
    gap_ids: list[int] = field(default_factory=list)  # those of gaps
    gap_changes: list[int] = field(default_factory=list)  # those of them that change a row of the day
    since: str = ""  # when the first of them was written

    def of_hour(self, channel: int, hour: int) -> Int64s:
        """Times of a channel's samples in an hour of the day."""
        times = self.samples.get(channel, np.zeros(0, np.int64))
        edges = microseconds(begin(self.day, hour)), microseconds(begin(self.day, hour + 1))
        first, last = np.searchsorted(times, edges).tolist()
        return times[first:last]

    def hours(self) -> dict[int, list[int]]:
        """Hour → channels that got samples, both ascending."""
        first = microseconds(begin(self.day))
        channels_by_hour: dict[int, list[int]] = {}
        for channel in sorted(self.samples):
            for hour in np.unique((self.samples[channel] - first) // HOUR_US).tolist():
                channels_by_hour.setdefault(hour, []).append(channel)
        return dict(sorted(channels_by_hour.items()))

    def contents(self, samples: Mapping[int, Int64s]) -> bytes:
        """Samples as the content of a receipt."""
        content = np.empty(sum(map(len, samples.values())), SAMPLE)
        content["channel_id"] = np.repeat(list(samples), [len(times) for times in samples.values()])
        content["time"] = np.concatenate([np.zeros(0, np.int64), *samples.values()])
        return content.tobytes()

    def event_contents(self, events: Iterable[tuple[int, int]]) -> bytes:
        """Events as the content of a receipt."""
        return np.array(sorted(events), _EVENT).tobytes()

    def add_gap(self, number: int, change: dict[str, Any]) -> None:
        """Add a signed receipt of a gap."""
        self.gaps.append(change)
        self.gap_ids.append(number)
        key, ends = (change["source"], change["channel"], change["from"]), microseconds(begin(self.day, 24))
        if self._row(key, change["was"], ends) != self._row(key, change["now"], ends):
            self.gap_changes.append(number)

    def changed_gaps(self, rows: Sequence[GapRow]) -> list[dict[str, Any]] | None:
        """Changes since the seal as an amended one lists them; None: a gap is not as its newest receipt says.

        ``rows``: the gaps of the day as they are now.
        """
        ends = microseconds(begin(self.day, 24))
        now = {row[:3]: row for row in rows}
        first: dict[tuple[Any, ...], dict[str, Any]] = {}
        last: dict[tuple[Any, ...], dict[str, Any]] = {}
        for gap in self.gaps:
            key = gap["source"], gap["channel"], gap["from"]
            first.setdefault(key, gap)
            last[key] = gap
        changes = []
        for key in sorted(first, key=lambda key: (key[0], key[1] is not None, key[1] or 0, key[2])):
            former, current = (self._row(key, state, ends) for state in (first[key]["was"], last[key]["now"]))
            if current != now.get(key):
                return None
            if former != current:
                changes.append({"gap": list(key), "was": None if former is None else list(former)})
        return changes

    def _row(self, key: tuple[Any, ...], state: Mapping[str, Any] | None, ends: int) -> GapRow | None:
        """A gap as the day has it; None: it does not touch the day."""
        if state is None:
            return None
        until = ends if state["to"] is None else min(state["to"], ends)
        first = microseconds(begin(self.day))
        if until <= first and key[2] < first:
            return None
        return (*key, until, state["reason"], state["detail"], state["backfilled"])


async def receipts_of(
    connection: asyncpg.Connection[Any],
    day: date,
    scope: Scope,
    anchors: Sequence[str] | None,
    differs: Sequence[str] = (),
) -> Receipts:
    """The receipts of a day.

    ``anchors``: public keys to trust; None: those in the database. ``differs``: what the seals of the day say of their
    differences.
    """
    receipts = Receipts(day)
    trusted, used = await _public_keys(connection, scope.chain, anchors), _used_receipts(differs)
    samples: list[NDArray[Any]] = []
    for row in await connection.fetch(load("evidence")["select_receipts"], day):
        kind, content = row["kind"], row["content"]
        statement = receipt_statement(kind, content, row["id"] if kind == "gap" else None)
        valid = bool(row["signature"]) and any(signed(public, row["signature"].hex(), statement) for public in trusted)
        if kind == "retention":
            if valid and (removal := Removal.parsed(content.decode(), row["written_at"])) is not None:
                receipts.removals.append(removal)
            continue
        if kind == "gap":
            change = json.loads(content)
            if not scope.covers(change["source"]):
                continue
            if not valid or change["day"] != day.isoformat() or row["id"] in used:
                continue
            receipts.add_gap(row["id"], change)
        elif kind == "samples":
            samples.append(np.frombuffer(content, SAMPLE))
        else:
            receipts.events |= {(int(event["time"]), int(event["id"])) for event in np.frombuffer(content, _EVENT)}
        receipts.ids.append(row["id"])
        receipts.since = receipts.since or row["written_at"].isoformat(timespec="seconds")
    all_samples = np.unique(np.concatenate([np.zeros(0, SAMPLE), *samples]))
    channels, times = all_samples["channel_id"].astype(np.int32), all_samples["time"].astype(np.int64)
    for rows in segments(channels):
        number = int(channels[rows.start])
        (receipts.samples if scope.covers(None, number) else receipts.others)[number] = np.sort(times[rows])
    return receipts


def _used_receipts(differs: Sequence[str]) -> frozenset[int]:
    """Numbers of the receipts that seals used up."""
    try:
        return frozenset(number for text in differs if text for number in json.loads(text).get("receipts", ()))
    except (ValueError, TypeError, AttributeError):
        return frozenset()  # altered: amendments() says so


async def _public_keys(connection: asyncpg.Connection[Any], chain: int, anchors: Sequence[str] | None) -> list[str]:
    """Public keys that receipts may be signed with."""
    keys = await stored_keys(connection, chain)
    if anchors is None:
        return [key.public for key in keys]
    trusted = trusted_keys(keys, anchors)
    return sorted({*anchors, *(key.public for key in keys if key.fingerprint in trusted)})


def encode_mask(mask: Iterable[bool] | NDArray[np.bool_]) -> str:
    """Bits of the rows that were added, as in an amended seal."""
    return base64.b64encode(zlib.compress(np.packbits(np.asarray(mask, bool)).tobytes(), 9)).decode()
