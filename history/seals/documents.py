"""The document of a seal, which says what ids mean on the day: what amended seals add to it, and what was altered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from core.formatting import count
from core.timestamps import begin
from history.reading.reader import connected
from history.seals.seal_store import SealedDay
from schema.queries import load

_KEYS: Mapping[str, tuple[str, ...]] = {
    "channels": ("id", "valid_from"),
    "sources": ("id",),
    "configurations": ("installation", "revision"),
}
SIGNED = '"configurations"'  # a document with it was made by a version that signs receipts


def merged(former: str, now: str) -> tuple[str, list[str]]:
    """The sealed document with additions of the present one, and their description. Sealed entries do not change."""
    before, present = json.loads(former), json.loads(now)
    added = []
    for table, names in _KEYS.items():
        if table not in before:  # an earlier version sealed the day
            continue
        listed = {tuple(entry.get(name) for name in names) for entry in before[table]}
        new = [entry for entry in present.get(table, ()) if tuple(entry.get(name) for name in names) not in listed]
        if new:
            key = lambda entry, names=names: tuple(entry.get(name) or 0 for name in names)  # noqa: E731
            before[table] = sorted([*before[table], *new], key=key)
            added += [f"{table[:-1]} {entry.get('name') or entry.get('revision')}" for entry in new]
    return (json.dumps(before, ensure_ascii=False, separators=(", ", ": ")) if added else former), added


async def changed_meanings(connection: asyncpg.Connection[Any], sealed: SealedDay) -> tuple[list[str], list[str]]:
    """Differences of the tables from a day's document: of configurations, which is altered; of channels, which
    may have become known late."""
    try:
        sealed_document = json.loads(sealed.document or '{"channels": []}')
        channels = _by_id(sealed_document)
    except (ValueError, KeyError, TypeError):
        return [], []  # its digest says that it was altered
    span = begin(sealed.day), begin(sealed.day, 24)
    text = await connection.fetchval(load("evidence")["build_document"], *span, sealed.seals[-1].installation)
    now = json.loads(text)
    present = {(entry["installation"], entry["revision"]): entry["digest"] for entry in now["configurations"]}
    problems = [
        f"{sealed.day}: configuration {entry['revision']} of installation {entry['installation']} is not as sealed"
        for entry in sealed_document.get("configurations", ())
        if present.get((entry["installation"], entry["revision"])) != entry["digest"]
    ]
    notes = []
    if "configurations" in sealed_document:  # else an earlier version sealed the day
        listed = {(entry["installation"], entry["revision"]) for entry in sealed_document["configurations"]}
        notes += [
            f"configuration {revision} of installation {installation} was added after the seal"
            for installation, revision in sorted(present.keys() - listed)
        ]
    defined = _by_id(now)
    for number, meanings in channels.items():
        name = meanings[-1]["name"]
        if number not in defined:
            notes.append(f"channel {number} was sealed as {name} and is no longer in plant.channel_version")
            continue
        if changed := _changes(meanings, defined[number]):
            notes.append(f"channel {number} ({name}) was sealed with {'; '.join(changed)}")
    return problems, notes


async def altered_files(dsn: str) -> list[str]:
    """Contents of applied configurations that are not those of the SHA-256 in their revision. ``dsn``: the owner's, as
    nobody else may read them."""
    async with connected(dsn, "plantlog verify") as connection:
        names = {
            sha256: f"{name} of revision {row['revision']} of installation {row['installation']}"
            for row in await connection.fetch(load("evidence")["select_revisions"])
            for name, sha256 in json.loads(row["files"]).items()
        }
        async with connection.transaction():
            async for row in connection.cursor(load("evidence")["select_config_files"], prefetch=10):
                if hashlib.sha256(row["content"]).hexdigest() == row["sha256"]:
                    names.pop(row["sha256"], None)
        return [f"plant.config_file lacks {name}, or has another content" for name in names.values()]


def _changes(sealed: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[str]:
    """Differences of a channel's definitions from the sealed ones, each compared with the one of its time."""
    by_time = {entry.get("valid_from"): entry for entry in now}
    pairs = [(entry, by_time.get(entry.get("valid_from"))) for entry in sealed]
    n_same = sum(after is not None for _, after in pairs)
    changes = [] if n_same == len(sealed) == len(now) else [f"{count(len(sealed), 'definition')}, now {len(now)}"]
    for before, after in pairs:
        if after is not None:
            names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            changes += [f"{name} {before.get(name)!r}, now {after.get(name)!r}" for name in names]
    return changes


def _by_id(document: Mapping[str, Any]) -> dict[int, list[dict[str, Any]]]:
    """Channel id → what it meant, by time."""
    by_id: dict[int, list[dict[str, Any]]] = {}
    for entry in document["channels"]:
        by_id.setdefault(entry["id"], []).append(entry)
    return by_id
