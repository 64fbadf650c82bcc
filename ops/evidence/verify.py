"""``plantlog verify``: compare stored data with their seals.

A difference is explained where arrival evidence says how it came: batches of the channel's source written since the
seal that reach into the hour (samples added), a deletion or retention on record (samples missing). A change at equal
count is never explained: nothing that plantlog does alters a stored sample. Two things can't be told from honest
ones: a forger who also writes the evidence, and samples changed in an hour that late data came for before its amended
seal.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import asyncpg

from ingest.errors import OperationError
from ingest.timestamps import utc
from ops.evidence.keys import stored_keys, trust_anchors
from ops.evidence.partial_digests import MARGIN, MAX_CHANNELS, MAX_SAMPLES, ByHour
from ops.evidence.reader import begin, channels_of, connect, events_of, gap_rows, gaps_digest, read
from ops.evidence.seal_store import ChainHead, SealedDay, sealed_day, seals
from ops.evidence.standalone import Difference, HourDigests, Seal, compare, root, root_of, seal_problems, tagged_hash
from ops.formatting import count
from ops.paths import State
from schema.queries import load

_FIRST_SLICE = 32  # channels of the first slice
_FEW_CHANNELS = 8  # channels
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference, and what evidence explains it."""

    difference: Difference
    explained: str  # empty: nothing does

    def describe(self) -> str:
        """For people."""
        return f"{self.difference.describe()}: {self.explained or 'NOT explained by any record'}"


@dataclass(slots=True)
class DayReport:
    """What was found of one day."""

    day: date
    revision: int
    samples: int  # that were read
    problems: list[str] = field(default_factory=list)  # of the digests that are kept
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is unexplained."""
        return not self.problems and all(one.explained for one in self.findings)


@dataclass(slots=True)
class Report:
    """What was found in all."""

    seals: int
    anchored: bool  # a key was there to hold on to
    chain: list[str] = field(default_factory=list)  # problems
    days: list[DayReport] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is unexplained."""
        return not self.chain and all(day.ok for day in self.days)

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        days = []
        for day in self.days:
            findings = [
                {**asdict(f.difference), "kind": f.difference.kind, "explained": f.explained or None}
                for f in day.findings
            ]
            days.append({
                "day": day.day.isoformat(), "ok": day.ok, "revision": day.revision, "samples": day.samples,
                "problems": day.problems, "differences": findings, "notes": day.notes,
            })  # fmt: skip
        return {"ok": self.ok, "seals": self.seals, "anchored": self.anchored, "chain": self.chain, "days": days}


async def verify(
    dsn: str,
    state: State,
    key: Path | None,
    day: date | None,
    patterns: Sequence[str],
    progress: ProgressCallback = lambda line: None,
) -> Report:
    """Check the chain, and one day or all of some channels or of all. ``dsn``: the reader's. Raises OperationError."""
    trusted = trust_anchors(state, key)
    connection = await connect(dsn, "plantlog verify")
    try:
        chain = await seals(connection)
        report = Report(len(chain), trusted is not None)
        head = ChainHead.load(state)
        report.chain = chain_problems(chain, head)
        report.chain += seal_problems(chain, await stored_keys(connection), trusted)
        by_day: dict[date, list[Seal]] = {}
        for seal in chain:
            by_day.setdefault(date.fromisoformat(seal.day), []).append(seal)
        if day is not None and day not in by_day:
            raise OperationError(f"{day} is not sealed" + (f"; {'; '.join(report.chain)}" if report.chain else ""))
        for one in [day] if day is not None else sorted(by_day):
            sealed = await sealed_day(connection, one, sorted(by_day[one], key=lambda seal: seal.revision))
            report.days.append(await _verify_day(connection, sealed, patterns))
            progress(f"{one}: {'as sealed' if report.days[-1].ok else 'NOT as sealed'}")
        return report
    finally:
        connection.terminate()


def chain_problems(chain: Sequence[Seal], head: ChainHead | None) -> list[str]:
    """Where the chain is cut or out of order. ``head``: its end, as known from elsewhere."""
    found = []
    before: Seal | None = None
    revisions: dict[str, int] = {}
    for seal in chain:
        name = f"seal {seal.serial} ({seal.day}, revision {seal.revision})"
        if seal.serial != (before.serial + 1 if before else 1):
            first, last = (before.serial + 1 if before else 1), seal.serial - 1
            missing = f"seal {first} is" if first == last else f"seals {first} to {last} are"
            found.append(f"the chain is cut before {name}: {missing} missing")
        elif seal.previous != (before.hash() if before else "0" * 64):
            on = f"seal {before.serial} as it is" if before else "the beginning"
            found.append(f"the chain is broken at {name}: it does not follow {on}")
        if seal.revision != revisions.get(seal.day, -1) + 1:
            found.append(f"{name} follows revision {revisions.get(seal.day, 'none')}")
        revisions[seal.day] = seal.revision
        before = seal
    if head is not None and (problem := head.problem(chain)):
        found.append(problem)
    return found


async def _verify_day(connection: asyncpg.Connection[Any], sealed: SealedDay, patterns: Sequence[str]) -> DayReport:
    seal, day = sealed.seals[-1], sealed.day
    report = DayReport(day, seal.revision, 0, list(sealed.problems))
    digests_match_root = True
    for one, parts in zip(sealed.seals, sealed.parts, strict=True):
        if root_of(one, parts, sealed.rows).hex() != one.root:
            report.problems.append(
                f"{day}: the digests kept for revision {one.revision} do not make up its signed root"
            )
            digests_match_root = False
    if sealed.document and tagged_hash("document", sealed.document.encode()) != sealed.parts[-1].document:
        report.problems.append(f"{day}: the document with the names of its channels was altered")
    if not sealed.document:
        report.problems.append(f"{day}: the document with the names of its channels is missing")
    hours, names = sealed.hours(), _names(sealed)
    if patterns:
        channels = await _matching_channels(connection, patterns, names)
    else:
        channels = set(hours) | set(await channels_of(connection, day))
    found = await _digests(connection, day, sorted(channels), report)
    differences = [
        one
        for number in sorted(channels)
        for one in compare(
            names.get(number, f"channel {number}"),
            number,
            hours[number].by_hour() if number in hours else {},
            found.get(number, {}),
        )
    ]
    if not patterns:
        differences += await _event_and_gap_differences(connection, sealed)
        if not digests_match_root and not differences:
            report.notes.append("what is stored is what those digests say: seal_digest or day_seal was altered with it")
        if not digests_match_root and await _stored_matches_root(connection, sealed, found):
            report.notes.append("what is stored makes up the signed root all the same: only the digests were altered")
    report.findings = await _explain(connection, sealed, differences)
    report.notes += await _changed_labels(connection, sealed)
    return report


def _names(sealed: SealedDay) -> dict[int, str]:
    try:
        return {number: name for number, (name, _) in sealed.names().items()}
    except (ValueError, KeyError, TypeError):
        return {}  # its digest says that it was altered


async def _matching_channels(
    connection: asyncpg.Connection[Any], patterns: Sequence[str], sealed: Mapping[int, str]
) -> set[int]:
    rows = await connection.fetch(load("evidence")["select_matching_channels"], list(patterns))
    found = {row["id"] for row in rows} | {number for number, name in sealed.items() if name in patterns}
    if not found:
        raise OperationError(f"no channel matches {', '.join(patterns)} (* matches any text)")
    return found


async def _digests(
    connection: asyncpg.Connection[Any], day: date, channels: Sequence[int], report: DayReport
) -> dict[int, ByHour]:
    """All hours of channels, read again: hour by hour, as rows lie, or of few channels the day at once."""
    found: dict[int, ByHour] = {}
    size, hours = (1, 24) if len(channels) <= _FEW_CHANNELS else (_FIRST_SLICE, 1)
    for hour in range(0, 24, hours):
        done = 0
        while part := channels[done : done + size]:
            series = await read(connection, part, begin(day, hour), begin(day, hour + hours))
            for one in series:
                found.setdefault(one.channel_id, {}).update(one.hours(day))
            samples = sum(len(one.time) for one in series)
            report.samples += samples
            done += len(part)
            size = max(1, min(MAX_CHANNELS, 2 * size, size * MAX_SAMPLES // max(samples, 1)))
    return found


async def _event_and_gap_differences(connection: asyncpg.Connection[Any], sealed: SealedDay) -> list[Difference]:
    """Events and gaps that differ."""
    parts = sealed.parts[-1]
    async with connection.transaction():
        events = await events_of(connection, sealed.day)
    gaps = await gap_rows(connection, sealed.day)
    found = list(compare("events", None, parts.events.by_hour(), events.by_hour()))
    if gaps_digest(gaps) != parts.gaps:
        found.append(Difference("gaps", None, None, sealed.seals[-1].gaps, len(gaps)))
    return found


async def _stored_matches_root(
    connection: asyncpg.Connection[Any], sealed: SealedDay, found: Mapping[int, ByHour]
) -> bool:
    """Whether the signed root comes of what is stored."""
    async with connection.transaction():
        events = await events_of(connection, sealed.day)
    gaps = gaps_digest(await gap_rows(connection, sealed.day))
    channels = {number: HourDigests.of(hours).digest("channel", number) for number, hours in found.items()}
    day, document = sealed.day.isoformat(), sealed.parts[-1].document
    made = root(day, document, events.digest("events", 0), gaps, channels)
    return made.hex() == sealed.seals[-1].root


@dataclass(frozen=True, slots=True)
class _Removal:
    """A deletion, or what retention took; channels None: of all."""

    kind: str
    what: str  # raw, event
    channels: frozenset[int] | None
    description: str

    @classmethod
    def of(cls, row: asyncpg.Record) -> _Removal:
        """From section ``select_removals``."""
        why = f" ({row['why']})" if row["why"] else ""
        description = f"{row['type']} recorded at {row['time'].isoformat(timespec='seconds')}{why}"
        return cls(
            row["type"], row["what"], None if row["channels"] is None else frozenset(row["channels"]), description
        )

    def covers(self, channel: int | None) -> bool:
        """Whether samples of a channel (None: events) can have gone with it."""
        if channel is None:
            return self.what == "event"
        return self.what == "raw" and (self.channels is None or channel in self.channels)


async def _explain(
    connection: asyncpg.Connection[Any], sealed: SealedDay, differences: Sequence[Difference]
) -> list[Finding]:
    if not differences:
        return []
    queries = load("evidence")
    since = utc(sealed.seals[-1].read_from) - MARGIN
    sources_of: dict[int | None, set[int]] = {}
    for row in await connection.fetch(queries["select_channel_sources"]):
        sources_of.setdefault(row["id"], set()).add(row["source_id"])
    # What came of a source must account for all that was added to its channels, not for each hour alone.
    added: dict[int, int] = {}
    for one in differences:
        if one.channel_id is not None and one.kind == "added":
            for source in sources_of.get(one.channel_id, ()):
                added[source] = added.get(source, 0) + one.found - one.sealed
    whole = await connection.fetch(queries["select_arrivals"], since, begin(sealed.day), begin(sealed.day, 24))
    enough = {
        row["source_id"] for row in whole if row["kind"] == "samples" and row["rows"] >= added.get(row["source_id"], 0)
    }
    arrivals: dict[int | None, list[asyncpg.Record]] = {None: whole}
    removals: dict[int | None, list[_Removal]] = {}
    for hour in {one.hour for one in differences}:
        span = (begin(sealed.day, hour or 0), begin(sealed.day, 24 if hour is None else hour + 1))
        if hour is not None:
            arrivals[hour] = await connection.fetch(queries["select_arrivals"], since, *span)
        removals[hour] = [_Removal.of(row) for row in await connection.fetch(queries["select_removals"], since, *span)]
    findings = []
    for one in differences:
        sources = sources_of.get(one.channel_id, set()) & enough
        came = [row for row in arrivals[one.hour] if one.channel_id is None or row["source_id"] in sources]
        findings.append(Finding(one, _explanation(one, came, removals[one.hour])))
    return findings


def _explanation(one: Difference, arrivals: Sequence[asyncpg.Record], removals: Sequence[_Removal]) -> str:
    """What is on record that accounts for a difference; empty: nothing does."""
    if one.what == "gaps" and one.channel_id is None:
        came = [row for row in arrivals if row["kind"] == "gaps"]
        return _describe_arrivals(came) if came else ""
    # What was deleted may have come anew, and otherwise; what retention took is not changed by it.
    removals_covering = [
        row for row in removals if row.covers(one.channel_id) and (one.kind == "missing" or row.kind == "deleted")
    ]
    if one.kind == "missing":
        return removals_covering[0].description if removals_covering else ""
    kinds = ("samples",) if one.channel_id is not None else ("samples", "events")  # conflicts are events
    came = [row for row in arrivals if row["kind"] in kinds]
    if one.kind == "changed":
        return f"{removals_covering[0].description}; {_describe_arrivals(came)}" if removals_covering and came else ""
    enough = sum(row["rows"] for row in came) >= one.found - one.sealed
    return _describe_arrivals(came) + "; an amended seal is due" if came and enough else ""


def _describe_arrivals(rows: Sequence[asyncpg.Record]) -> str:
    batches, n = sum(row["batches"] for row in rows), sum(row["rows"] for row in rows)
    first = min(row["written_from"] for row in rows).isoformat(timespec="seconds")
    return f"late data: {n:,} rows in {batches:,} batches that reach into it were written from {first} on"


async def _changed_labels(connection: asyncpg.Connection[Any], sealed: SealedDay) -> list[str]:
    """What ids meant on the day as sealed, and mean otherwise by plant.channel_version: the table was altered."""
    try:
        was = _by_id(sealed.document or '{"channels": []}')
    except (ValueError, KeyError, TypeError):
        return []
    span = (begin(sealed.day), begin(sealed.day, 24))
    now = _by_id(await connection.fetchval(load("evidence")["build_document"], *span))
    notes = []
    for number, one in was.items():
        name = one[-1]["name"]
        if number not in now:
            notes.append(f"channel {number} was sealed as {name} and is no longer in plant.channel_version")
        elif len(one) != len(now[number]):
            notes.append(f"channel {number} ({name}) was sealed with {len(one)} definitions, now {len(now[number])}")
        else:
            pairs = zip(one, now[number], strict=True)
            changed = [f"{k} {o[k]!r}, now {n.get(k)!r}" for o, n in pairs for k in o if o[k] != n.get(k)]
            if changed:
                notes.append(f"channel {number} ({name}) was sealed with {'; '.join(changed)}")
    return notes


def _by_id(document: str) -> dict[int, list[dict[str, Any]]]:
    """Channel id → what it meant, by time."""
    found: dict[int, list[dict[str, Any]]] = {}
    for one in json.loads(document)["channels"]:
        found.setdefault(one["id"], []).append(one)
    return found


def format_report(report: Report, limit: int) -> list[str]:
    """The report for people; ``limit``: findings to list of each day (0: all)."""
    said = [count(report.seals, "seal") + ("; chain and signatures hold" if report.seals and not report.chain else "")]
    said += [f"  {problem}" for problem in report.chain]
    if not report.anchored and report.seals:
        said.append(
            "  signatures were checked with the keys in the database alone: give --key, a public key kept elsewhere"
        )
    for day in report.days:
        verdict = "as sealed" if day.ok and not day.findings else "differs, explained" if day.ok else "NOT as sealed"
        said.append(f"{day.day} (revision {day.revision}): {verdict}; {day.samples:,} samples read")
        said += [f"  {problem}" for problem in day.problems]
        listed = sorted(day.findings, key=lambda one: bool(one.explained))
        said += [f"  {one.describe()}" for one in listed[: limit or None]]
        if limit and len(listed) > limit:
            said.append(f"  {len(listed) - limit:,} more (--limit 0 lists all)")
        said += [f"  note: {note}" for note in day.notes]
    return said
