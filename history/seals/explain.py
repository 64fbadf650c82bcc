"""Explanations of a difference between stored data and their seal.

- Added samples and events: by their receipts, if the rest is what was sealed.
- Gaps: by receipts that are signed.
- Data that retention dropped: by signed receipts, or by sealed events of it, which an earlier version recorded.

Nothing else is explained: plantlog alters no stored sample, and deletes sealed ones only with an amended seal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any

import asyncpg
import numpy as np

from core.formatting import count
from core.samples import slices
from core.timestamps import begin, microseconds, utc
from history.reading.day_samples import DaySamples
from history.reading.reader import event_rows, events_of
from history.reading.scope import Scope
from history.seals.documents import SIGNED
from history.seals.partial_digests import MARGIN
from history.seals.proof import NOTHING, amended_events, amended_gaps, amended_hour
from history.seals.receipts import Receipts, Removal
from history.seals.report import Finding
from history.seals.seal_store import SealedDay, sealed_day, seals_of_day
from history.standalone import HourDifference, least_change
from schema.queries import load

_CHANNELS = 64  # that are read again at a time
_SEAL_DUE = "; an amended seal is due"


@dataclass(frozen=True, slots=True)
class Explainer:
    """Explains the differences of one day."""

    samples: DaySamples
    sealed: SealedDay
    scope: Scope
    receipts: Receipts

    async def explain(self, differences: Sequence[HourDifference]) -> list[Finding]:
        """Explain each difference."""
        if not differences:
            return []
        findings = {difference: Finding(difference) for difference in differences}
        removals = list(self.receipts.removals)
        if any(difference.kind == "missing" for difference in differences):
            removals += await self._recorded_removals()
        await self._explain_additions(findings)
        for difference, finding in findings.items():
            day = self.sealed.day
            if difference.hour is not None and not finding.explained:
                span = microseconds(begin(day, difference.hour)), microseconds(begin(day, difference.hour + 1))
                removal = next((r for r in removals if r.covers(difference.channel_id, *span)), None)
                # Retention drops all samples of a channel's hour, but keeps events of some types.
                if (
                    removal is not None
                    and difference.kind == "missing"
                    and (difference.channel_id is None or difference.found == 0)
                ):
                    findings[difference] = Finding(difference, removal.description)
        return list(findings.values())

    async def _explain_additions(self, findings: dict[HourDifference, Finding]) -> None:
        """Samples, events and gaps that came, as receipts prove."""
        hours = self.sealed.hours()
        by_hour: dict[int, dict[int, HourDifference]] = {}
        for difference in findings:
            if difference.channel_id is None or difference.hour is None:
                continue
            if len(self.receipts.of_hour(difference.channel_id, difference.hour)):
                by_hour.setdefault(difference.hour, {})[difference.channel_id] = difference
        for hour, of_hour in by_hour.items():
            imported = await self._imported(hour)
            for part in slices(sorted(of_hour), _CHANNELS):
                late = await self.samples.new_times({n: self.receipts.of_hour(n, hour) for n in part})
                for number, samples in (await self.samples.read(part, range(hour, hour + 1))).items():
                    sealed = hours[number].by_hour().get(hour, NOTHING) if number in hours else NOTHING
                    is_sealed = amended_hour(samples, hour, self.samples.day, late[number], sealed) is not None
                    n = int(np.isin(samples.time, late[number]).sum())
                    findings[of_hour[number]] = self._late(of_hour[number], n, "sample", is_sealed, imported)
        event_differences = [d for d in findings if d.what == "events" and d.channel_id is None]
        if event_differences:
            events = await amended_events(self.samples, self.sealed, self.scope, self.receipts)
            proven = {event_hour.hour for event_hour in events.hours}
            for difference in event_differences:
                if difference.hour is not None and (n := events.added.get(difference.hour, 0)):
                    findings[difference] = self._late(difference, n, "event", difference.hour in proven)
        for difference in [d for d in findings if d.what == "gaps" and d.channel_id is None]:
            if changes := (await amended_gaps(self.samples, self.sealed, self.scope, self.receipts)).changes:
                only_added = all(change["was"] is None for change in changes)
                finding = self._late(difference, len(changes), "gap", True)
                findings[difference] = replace(finding, rest_is_sealed=only_added)

    def _late(self, difference: HourDifference, n: int, noun: str, rest_is_sealed: bool, imported: str = "") -> Finding:
        """A difference of which records say that ``n`` rows came late."""
        late = f"late data: {count(n, noun)}"
        if not rest_is_sealed:
            change = least_change(difference.sealed, difference.found - n)
            return Finding(difference, rest=f"; without {late}, {change}" if n else "")
        since = f"the rest is as sealed; written from {self.receipts.since} on"
        return Finding(difference, f"{late}, {since}{_SEAL_DUE}{imported}", rest_is_sealed=True)

    async def _imported(self, hour: int) -> str:
        """The files that events say samples of an hour were imported from, in words."""
        since = utc(self.sealed.seals[-1].read_from) - MARGIN
        span = begin(self.sealed.day, hour), begin(self.sealed.day, hour + 1)
        rows = await self.samples.connection.fetch(load("history_import")["select_imports"], since, *span)
        return "".join(f", imported from {row['file']}" for row in rows)

    async def _recorded_removals(self) -> list[Removal]:
        """Removals by retention that events recorded for the day before receipts were signed."""
        connection, day = self.samples.connection, self.sealed.day
        rows = await connection.fetch(load("evidence")["select_retentions"], begin(day), begin(day, 24))
        removals = []
        unsigned: dict[date, bool] = {}
        for row in rows:
            recorded = row["time"].astimezone(UTC).date()
            if recorded not in unsigned:
                unsigned[recorded] = await self._before_receipts(connection, recorded, row["time"])
            if unsigned[recorded] and (removal := Removal.parsed(row["detail"], row["time"])) is not None:
                removals.append(removal)
        return removals

    async def _before_receipts(self, connection: asyncpg.Connection[Any], day: date, at: datetime) -> bool:
        """Return whether a day's events are as sealed, or not sealed yet, and no seal before says that receipts are
        signed."""
        chain = self.scope.chain
        before = await connection.fetchval(load("evidence")["select_sealed_before"], chain, day)
        if before is not None:
            earlier = await sealed_day(connection, before, await seals_of_day(connection, chain, before))
            if SIGNED in earlier.document or not earlier.is_whole:
                return False
        of_day = await seals_of_day(connection, chain, day)
        if not of_day:
            return True
        sealed = await sealed_day(connection, day, of_day)
        hour = at.astimezone(UTC).hour
        async with connection.transaction():
            events = await events_of(
                event_rows(connection, day, self.scope.of_installation(of_day[0].installation)), day
            )
        return sealed.is_whole and events.by_hour().get(hour) == sealed.parts[-1].events.by_hour().get(hour)
