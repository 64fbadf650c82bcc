"""Seals and digests in the database."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import DatabaseError, OperationError
from core.files import write_atomically
from core.paths import State
from core.timestamps import microseconds
from history.standalone import (
    ChannelDigests,
    ChannelLabel,
    HourDigests,
    Revision,
    Seal,
    UnverifiableError,
    deposited_problem,
    effective,
    labels_of,
    names_of,
    root_of,
    tagged_hash,
)
from schema.queries import load

if TYPE_CHECKING:
    import asyncpg


@dataclass(frozen=True, slots=True)
class SealedDay:
    """A day's seals and what they were made from. Lists have one element for each revision."""

    day: date
    seals: list[Seal]
    parts: list[Revision]
    differs: list[str]
    rows: list[ChannelDigests]
    document: str  # of the last revision; empty where it is missing
    problems: list[str]  # what could not be read

    @property
    def is_whole(self) -> bool:
        """Return whether the newest seal is made from what is kept."""
        return (
            not self.problems
            and tagged_hash("document", self.document.encode()) == self.parts[-1].document
            and root_of(self.seals[-1], self.parts[-1], self.rows).hex() == self.seals[-1].root
        )

    def hours(self) -> dict[int, HourDigests]:
        """Channel id → its hours in the last revision."""
        newest = effective(self.rows, self.seals[-1].revision)
        return {number: row.hours for number, row in newest.items() if row.hours is not None}

    def names(self) -> dict[int, tuple[str, str]]:
        """Channel id → (name, unit), as sealed, at the day's end."""
        return names_of(self.document) if self.document else {}

    def labels(self) -> dict[int, list[ChannelLabel]]:
        """Channel id → what it meant on the day, as sealed, by time."""
        return labels_of(self.document) if self.document else {}


async def seals(connection: asyncpg.Connection[Any], chain: int, newest: int | None = None) -> list[Seal]:
    """All seals of a chain, or so many of the newest, in the order of sealing."""
    return [_seal(row) for row in await connection.fetch(load("evidence")["select_seals"], chain, newest)]


async def seals_of_day(connection: asyncpg.Connection[Any], installation: int, day: date) -> list[Seal]:
    """The seals of a day that cover an installation, by revision: its own, or those of all installations."""
    by_installation: dict[int, list[Seal]] = {}
    for chain in {1, installation}:
        for seal in await seals(connection, chain):
            if seal.day == day.isoformat() and seal.installation in (0, installation):
                by_installation.setdefault(seal.installation, []).append(seal)
    return by_installation[max(by_installation)] if by_installation else []


def _seal(row: asyncpg.Record) -> Seal:
    fields: dict[str, Any] = dict(row)
    fields |= {name: row[name].hex() for name in ("root", "previous", "differs", "key", "signature")}
    fields |= {name: microseconds(row[name]) for name in ("read_from", "sealed_at")}
    return Seal(**{**fields, "day": row["day"].isoformat()})


async def sealed_day(connection: asyncpg.Connection[Any], day: date, day_seals: Sequence[Seal]) -> SealedDay:
    """A day that has a seal; ``day_seals``: its seals, by revision."""
    queries, key = load("evidence"), (day, day_seals[0].installation)
    rows = await connection.fetch(queries["select_seal_parts"], *key)
    problems: list[str] = []
    parts = []
    for row in rows:
        try:
            events = HourDigests.unpacked(row["events_n"], row["events_digests"])
        except UnverifiableError as error:
            problems.append(f"{day}: events: {error}")
            events = HourDigests((0,) * 24, ())
        parts.append(Revision(row["document"], events, row["gaps_digest"]))
    digests = []
    for row in await connection.fetch(queries["select_digests"], *key):
        try:
            hours = HourDigests.unpacked(row["n"], row["digests"])
        except UnverifiableError as error:
            problems.append(f"{day}: channel {row['channel_id']}: {error}")
            continue
        digest = hours.digest("channel", row["channel_id"]) if any(hours.n) else b""
        digests.append(ChannelDigests(row["channel_id"], row["revision"], hours, digest))
    document = await connection.fetchval(queries["select_document"], rows[-1]["document"]) or ""
    return SealedDay(day, list(day_seals), parts, [row["differs"] for row in rows], digests, document, problems)


@dataclass(frozen=True, slots=True)
class ChainHead:
    """The end of the chain as the state folder knows it: a chain that is cut in the database alone is detected."""

    serial: int
    hash: str

    @classmethod
    def load(cls, state: State) -> ChainHead | None:
        """The newest seal; None where nothing was sealed yet. Raises DatabaseError."""
        try:
            fields = json.loads(_head_file(state).read_text())
            return cls(int(fields["serial"]), str(fields["hash"]))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise DatabaseError(
                f"{_head_file(state)} is damaged; `plantlog evidence seal --accept-chain` creates it again"
            ) from error

    def save(self, state: State) -> None:
        """Keep it, at once or not at all."""
        content = json.dumps({"serial": self.serial, "hash": self.hash})
        write_atomically(_head_file(state), f"{content}\n", 0o600)

    def problem(self, chain: Sequence[Seal]) -> str | None:
        """Problem of a chain that should have this in it."""
        for seal in chain:
            if seal.serial == self.serial:
                return (
                    None
                    if seal.hash() == self.hash
                    else f"seal {self.serial} is not the one that this state folder created"
                )
        end = chain[-1].serial if chain else 0
        return f"the chain ends with seal {end}, but this state folder knows seal {self.serial}: seals were removed"


def _head_file(state: State) -> Path:
    return state.root / "secrets" / "seal.head"


def missing_deposit(chains: Iterable[Sequence[Seal]], deposited: str) -> list[str]:
    """A problem if the seal that a third party has the hash of is in none of the chains. Raises OperationError."""
    try:
        problems = [deposited_problem(chain, deposited) for chain in chains]
    except UnverifiableError as error:
        raise OperationError(str(error)) from error
    return problems[:1] if all(problems) else []


def chain_problems(chain: Sequence[Seal], head: ChainHead | None, from_first: bool = True) -> list[str]:
    """Faults in the order of a chain. ``head``: its end, as known from elsewhere; ``from_first``: from seal 1 on."""
    problems = []
    before: Seal | None = None
    revisions: dict[str, int] = {}
    for seal in chain:
        name = f"seal {seal.serial} ({seal.day}, revision {seal.revision})"
        if before is None and not from_first:
            pass
        elif before is not None and seal.serial == before.serial:
            problems.append(f"the chain forks at {name}: seal {before.serial} of {before.day} has the same number")
        elif seal.serial != (before.serial + 1 if before else 1):
            first, last = (before.serial + 1 if before else 1), seal.serial - 1
            missing = f"seal {first} is" if first == last else f"seals {first} to {last} are"
            problems.append(f"the chain is cut before {name}: {missing} missing")
        elif seal.previous != (before.hash() if before else "0" * 64):
            on = f"seal {before.serial} as it is" if before else "the beginning"
            problems.append(f"the chain is broken at {name}: it does not follow {on}")
        if seal.revision != revisions.get(seal.day, -1) + 1:
            problems.append(f"{name} follows revision {revisions.get(seal.day, 'none')}")
        revisions[seal.day] = seal.revision
        before = seal
    if head is not None and (problem := head.problem(chain)):
        problems.append(problem)
    return problems
