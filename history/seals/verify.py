"""``plantlog evidence verify``: compare stored data with their seals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import asyncpg

from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.patterns import no_match
from history.archive.archived_days import ArchivedDays
from history.reading.day_samples import DaySamples
from history.reading.hours import hour_digests
from history.reading.reader import channels_of, connected, gap_rows, has_data, lateness, seal_time
from history.reading.scope import Chain, Scope, choose, load_scope
from history.seals.documents import altered_files, changed_meanings
from history.seals.explain import Explainer
from history.seals.keys import stored_keys, trust_anchors
from history.seals.partial_digests import MAX_CHANNELS, MAX_SAMPLES, ByHour
from history.seals.receipts import receipts_of
from history.seals.report import DayReport, Report
from history.seals.seal_store import (
    ChainHead,
    SealedDay,
    chain_problems,
    missing_deposit,
    sealed_day,
    seals,
    seals_of_day,
)
from history.standalone import (
    AmendedRows,
    HourDifference,
    HourDigests,
    Seal,
    amended_hours,
    amendments,
    compare,
    event_digests,
    gaps_digest,
    root,
    root_of,
    seal_problems,
    tagged_hash,
    wrong_key,
)
from schema.queries import load

_FIRST_SLICE = 32  # channels of the first slice
_FEW_CHANNELS = 8  # channels


@dataclass(frozen=True, slots=True)
class _Question:
    """Data to verify, and the keys to trust."""

    key: Path | None
    day: date | None
    patterns: Sequence[str]
    archived: ArchivedDays


async def verify(
    dsn: str,
    state: State,
    key: Path | None,
    day: date | None,
    patterns: Sequence[str],
    installation: str | None = None,
    deposited: str | None = None,
) -> list[Report]:
    """Check chains, and one day or all of some channels or of all; a report for each chain.

    ``dsn``: the reader's. ``installation``: a plant or the beginning of an id; all; None: the state folder's.
    ``deposited``: hash of a seal that one of the chains must have.

    Raises OperationError.
    """
    async with connected(dsn, "plantlog verify") as connection:
        scope = await load_scope(connection, 0)
        labels = {chain.number: chain.label for chain in await choose(connection, state, "all")}
        chosen = await choose(connection, state, installation)
        question = _Question(key, day, patterns, ArchivedDays(state.root))
        reports = [await _verify_chain(connection, state, chain, question, scope) for chain in chosen]
        if patterns and not any(report.days for report in reports):
            await _matching_channels(connection, patterns, {}, scope)
        if day is not None and not any(report.days for report in reports):
            problems = [problem for report in reports for problem in report.chain]
            others = sorted({seal.chain for number in labels for seal in await seals_of_day(connection, number, day)})
            by = f" by {' or '.join(report.installation for report in reports)}" if len(labels) > 1 else ""
            sealed_by = [f"it is by {labels[number]}: use --installation" for number in others if labels.get(number)]
            raise OperationError("; ".join([f"{day} is not sealed{by}", *sealed_by, *problems]))
        if not patterns:
            newest = {day_report.day: day_report for report in reversed(reports) for day_report in report.days}
            for day_report in newest.values():
                day_report.unsealed = await _unsealed(connection, day_report.day, scope, labels)
        if day is None and not patterns and state.dsn_file("owner").exists():
            reports[0].chain += await altered_files(state.dsn("owner"))
        if deposited is not None:
            chains = [await seals(connection, chain.number) for chain in chosen]
            reports[0].chain += missing_deposit(chains, deposited)
        if installation is None:
            reports[0].not_verified = [label for number, label in labels.items() if number != chosen[0].number]
        return reports


async def _verify_chain(
    connection: asyncpg.Connection[Any],
    state: State,
    chosen: Chain,
    question: _Question,
    scope: Scope,
) -> Report:
    """One chain, and one day of it or all. Keys and end of the state folder's own chain are known there."""
    key, day = question.key, question.day
    trusted = trust_anchors(state, key) if chosen.is_own or key is not None else None
    chain = await seals(connection, chosen.number)
    report = Report(chosen.label, len(chain), trusted is not None)
    report.chain = chain_problems(chain, ChainHead.load(state) if chosen.is_own else None)
    keys = await stored_keys(connection, chosen.number)
    report.wrong_key = wrong_key(chain, keys, trusted)
    report.chain += seal_problems(chain, keys, None if report.wrong_key else trusted)
    by_day: dict[date, list[Seal]] = {}
    for seal in chain:
        by_day.setdefault(date.fromisoformat(seal.day), []).append(seal)
    for sealed_date in sorted(by_day) if day is None else [day] if day in by_day else []:
        sealed = await sealed_day(connection, sealed_date, sorted(by_day[sealed_date], key=lambda seal: seal.revision))
        own_scope = scope.of_installation(sealed.seals[-1].installation)
        report.days.append(await _verify_day(connection, sealed, question, own_scope, trusted))
    if day is None and not chain and not report.chain:
        report.next_seal = await _first_seal(connection, scope.of_installation(chosen.number))
    return report


async def _first_seal(connection: asyncpg.Connection[Any], scope: Scope) -> str:
    """The first day of an installation without seals, and when it will be sealed, in words."""
    now = datetime.now(UTC)
    closed_until = now - await lateness(connection)
    for row in await connection.fetch(load("evidence")["select_unsealed_days"], closed_until, scope.chain):
        if await has_data(connection, row["day"], scope):
            return f"{row['day']} is closed: `plantlog evidence seal` seals it"
    day = closed_until.date()
    return f"{day} can be sealed after {await seal_time(connection, day):%Y-%m-%d %H:%M} UTC"


async def _unsealed(
    connection: asyncpg.Connection[Any], day: date, scope: Scope, labels: Mapping[int, str]
) -> list[str]:
    """Installations whose samples of a day are in no seal, in words."""
    sealed = {row["installation"] for row in await connection.fetch(load("evidence")["select_sealed_numbers"], day)}
    if 0 in sealed:
        return []
    unsealed = Counter(scope.owner(None, channel) for channel in await channels_of(connection, day, scope))
    return [
        f"{count(channels, 'channel')} of {labels.get(number) or f'installation {number}'}"
        for number, channels in sorted(unsealed.items())
        if number not in sealed
    ]


async def _verify_day(
    connection: asyncpg.Connection[Any],
    sealed: SealedDay,
    question: _Question,
    scope: Scope,
    trusted: Sequence[str] | None,
) -> DayReport:
    seal, day = sealed.seals[-1], sealed.day
    report = DayReport(day, seal.revision, 0, list(sealed.problems), seal=seal)
    digests_match_root = True
    for signed, parts in zip(sealed.seals, sealed.parts, strict=True):
        if root_of(signed, parts, sealed.rows).hex() != signed.root:
            report.problems.append(
                f"{day}: the digests kept for revision {signed.revision} do not make up its signed root"
            )
            digests_match_root = False
    if sealed.document and tagged_hash("document", sealed.document.encode()) != sealed.parts[-1].document:
        report.problems.append(f"{day}: the document with the names of its channels was altered")
    if not sealed.document:
        report.problems.append(f"{day}: the document with the names of its channels is missing")
    hours, names = sealed.hours(), _names(sealed)
    patterns = question.patterns
    channels = await _matching_channels(connection, patterns, names, scope) if patterns else set(hours)
    kept = dict.fromkeys(amended_hours(sealed.differs) if digests_match_root else (), b"")
    event_rows: dict[int, list[bytes]] = {}
    events: HourDigests | None = None
    try:
        samples = await DaySamples.of_day(connection, question.archived, day, seal.chain)
        if not patterns:
            channels |= set(await samples.channels(scope))
        digests = await _digests(samples, sorted(channels), report, kept)
        if not patterns:
            event_rows = await samples.event_hours(scope)
            events = HourDigests.of_hours(event_digests(event_rows))
    except OperationError as error:  # the archive can't be read; gaps and meanings are not in it
        report.problems.append(f"{day}: {error}")
        samples, channels, digests, kept = DaySamples(connection, day), set(), {}, {}
    differences = [
        difference
        for number in sorted(channels)
        for difference in compare(
            names.get(number, f"channel {number}"),
            number,
            hours[number].by_hour() if number in hours else {},
            digests.get(number, {}),
        )
    ]
    gaps = None if patterns else await gap_rows(connection, day, scope)
    if events is not None:
        differences += compare("events", None, sealed.parts[-1].events.by_hour(), events.by_hour())
    if gaps is not None and gaps_digest(gaps) != sealed.parts[-1].gaps:
        differences.append(HourDifference("gaps", None, None, seal.gaps, len(gaps)))
    if events is not None and gaps is not None:
        if not digests_match_root and not differences:
            report.notes.append("what is stored is what those digests say: seal_digest or day_seal was altered with it")
        if not digests_match_root and _stored_matches_root(sealed, digests, events, gaps):
            report.notes.append("what is stored makes up the signed root all the same: only the digests were altered")
    receipts = await receipts_of(connection, day, scope, trusted, sealed.differs)
    report.findings = await Explainer(samples, sealed, scope, receipts).explain(differences)
    differing = {(difference.channel_id, difference.hour) for difference in differences}
    rows = AmendedRows(
        {channel_hour: content for channel_hour, content in kept.items() if content and channel_hour not in differing},
        {} if events is None else {h: r for h, r in event_rows.items() if (None, h) not in differing},
        None if (None, None) in differing else gaps,
    )
    report.amended, unproven = amendments(sealed.differs, sealed.parts, sealed.rows, rows)
    altered, notes = await changed_meanings(connection, sealed)
    report.problems += [f"{day}: {problem}" for problem in unproven] + altered
    report.notes += notes
    return report


def _names(sealed: SealedDay) -> dict[int, str]:
    try:
        return {number: name for number, (name, _) in sealed.names().items()}
    except (ValueError, KeyError, TypeError):
        return {}  # its digest says that it was altered


async def _matching_channels(
    connection: asyncpg.Connection[Any], patterns: Sequence[str], sealed: Mapping[int, str], scope: Scope
) -> set[int]:
    rows = await connection.fetch(load("evidence")["select_matching_channels"], list(patterns))
    channels = set(scope.select(row["id"] for row in rows)) | {
        number for number, name in sealed.items() if name in patterns
    }
    if not channels:
        raise no_match("--channel", patterns)
    return channels


async def _digests(
    samples: DaySamples, channels: Sequence[int], report: DayReport, kept: dict[tuple[int, int], bytes]
) -> dict[int, ByHour]:
    """All hours of channels, read again: hour by hour, as rows lie, or of few channels the day at once.

    ``kept``: the values of its channels and hours become their samples in the canonical form.
    """
    digests: dict[int, ByHour] = {}
    size, hours = (_FIRST_SLICE, 1) if samples.files is None and len(channels) > _FEW_CHANNELS else (1, 24)
    for hour in range(0, 24, hours):
        done = 0
        while part := channels[done : done + size]:
            samples_by_channel = await samples.read(part, range(hour, hour + hours))
            for number, samples_of in samples_by_channel.items():
                digests.setdefault(number, {}).update(hour_digests(samples_of, samples.day, kept))
            n = sum(map(len, samples_by_channel.values()))
            report.samples += n
            done += len(part)
            size = max(1, min(MAX_CHANNELS, 2 * size, size * MAX_SAMPLES // max(n, 1)))
    return digests


def _stored_matches_root(
    sealed: SealedDay, hours_by_channel: Mapping[int, ByHour], events: HourDigests, gaps: Sequence[tuple[Any, ...]]
) -> bool:
    """Return whether the signed root comes of what is stored."""
    channels = {
        number: HourDigests.of_hours(hours).digest("channel", number) for number, hours in hours_by_channel.items()
    }
    day, document = sealed.day.isoformat(), sealed.parts[-1].document
    stored_root = root(day, document, events.digest("events", 0), gaps_digest(gaps), channels)
    return stored_root.hex() == sealed.seals[-1].root
