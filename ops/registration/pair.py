"""A redundant pair as ``up`` sees it: two state folders of one installation, which describe the plant in the same way.

They meet in the database: each leaves there what it runs, and neither starts beside one that runs something else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import asyncpg

from core.config.base import fields_of
from core.config.explain import field_legal
from core.config.model import NotifyOptions, Plant, PlantOptions, RetentionOptions
from core.config.quantities import RETENTION_LEGAL
from core.config.reference import SOURCES, tables, value_text
from core.config.snapshot import tags_json
from core.database import connected
from core.errors import OperationError
from core.paths import State, plantlog_version
from core.users.directory import AUDIT_SPOOL
from ingest.spool.member import (
    LEASE_SECONDS,
    PATIENCE,
    folder_id,
    read_member,
    read_token,
    write_holder,
    write_member,
)
from ops.registration.heartbeat import location
from ops.registration.installation import installation_id
from schema.queries import load

_POLL_SECONDS = 0.5
_LONGEST_LEASE = 60.0  # s; much more than a lease lasts
_MAX_DIFFERENCES = 3  # that a message names
_MACHINE_TABLES = {
    "health",
    "push",
    "viewer",
    "tls",
    "spool",
    "collectors",
    "writer",
    "backup",
    "redundancy",
}  # each machine's
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


async def check(
    connection: asyncpg.Connection[Any], state: State, plant: Plant, progress: Callable[[str], None]
) -> bool:
    """Raise OperationError, with nothing changed, if this state folder must not run as configured.

    Returns whether it is a member of a pair that the database knows: then both members may run at the same time.
    """
    member = plant.redundancy.member
    if member is not None:
        _check_folder(state, plant, member)
    queries, installation = load("pair"), installation_id(state)
    if not await connection.fetchval(queries["has_tables"]):
        return False
    members = {row["member"]: row for row in await connection.fetch(queries["select_members"], installation)}
    if member is None:
        await _check_alone(connection, state, members, progress)
        return False
    if not members:
        await _check_identity(connection, state, plant)
        return False
    await _check_lease(connection, state, installation)
    same, other = members.get(member), members.get(3 - member)
    # A copy of a state folder has the same identity.
    is_here = same is not None and (same["folder"], same["place"]) == (folder_id(state.spool), location(state))
    if same is not None and not is_here and await _runs(connection, installation, member, progress):
        raise OperationError(
            f"[redundancy] member: found {member}, but member {member} of this pair runs in {same['place']}; "
            f"legal: {3 - member}, or stop that one with `plantlog down`"
        )
    differences = [] if other is None else list(_differences(plant, other))
    if other is not None and differences and await _runs(connection, installation, 3 - member, progress):
        more = len(differences) - _MAX_DIFFERENCES
        listed = "; ".join(differences[:_MAX_DIFFERENCES]) + (f"; and {more} more" if more > 0 else "")
        raise OperationError(
            f"member {3 - member} of this pair, in {other['place']}, runs another configuration: {listed}. Both "
            "members run the same version and describe the plant in the same way. To change both: stop one with "
            "`plantlog down`, run `up` on the other, then on this one"
        )
    return True


def _check_folder(state: State, plant: Plant, member: int) -> None:
    before = read_member(state.spool)
    if before is not None:
        if before != member:
            raise OperationError(
                f"[redundancy] member: found {member}; legal: {before}, which {state.root} has been so far, or a new "
                "state folder"
            )
    elif member == 2 and any(path.name != AUDIT_SPOOL for path in state.spool.glob("*.sqlite")):
        raise OperationError(
            f"[redundancy] member: found 2; legal: 1, as {state.root} was an appliance of its own so far, or a new "
            "state folder"
        )


def check_database(state: State, plant: Plant, has_dsn: bool) -> None:
    """Raise OperationError if member 2 would get a database of its own."""
    if plant.redundancy.member == 2 and not has_dsn:
        raise OperationError(
            "[redundancy] member = 2, and PLANTLOG_DSN is not set: set it to the database of member 1, as the file "
            f"secrets/owner.dsn in the state folder of member 1 has it. Nothing was changed in {state.root}"
        )


async def _check_alone(
    connection: asyncpg.Connection[Any], state: State, members: Mapping[int, Any], progress: Callable[[str], None]
) -> None:
    for number, row in members.items():
        if row["folder"] != folder_id(state.spool) and await _runs(
            connection, installation_id(state), number, progress
        ):
            raise OperationError(
                f"this installation is a redundant pair, whose member {number} runs in {row['place']}: set "
                f"[redundancy] member = {3 - number}, or stop that one with `plantlog down`"
            )


async def _check_identity(connection: asyncpg.Connection[Any], state: State, plant: Plant) -> None:
    """A new state folder has to get the identity of the first member."""
    queries, installation = load("pair"), installation_id(state)
    other = await connection.fetchrow(queries["select_pair_of"], installation, plant.name)
    if other is not None and not await connection.fetchval(queries["is_registered"], installation):
        raise OperationError(
            f"{state.root} is installation {installation}, but the pair of plant {plant.name} is installation "
            f"{other['id']}: copy the file `installation` and the folder `secrets` from the state folder of member "
            f"{other['member']}, {other['place']}, to {state.root}"
        )


async def _check_lease(connection: asyncpg.Connection[Any], state: State, installation: UUID) -> None:
    """Raise OperationError if nobody but an intruder can have written what the table of leases has."""
    lease = await connection.fetchrow(load("pair")["select_lease"], installation)
    if lease is None:
        return
    token = read_token(state.spool)
    problems = [
        (lease["member"] not in (1, 2), f"member {lease['member']}; legal: 1 or 2"),
        (lease["token"] < token, f"token {lease['token']}; legal: at least {token}, which this member has seen"),
        (
            lease["expires"] > _LONGEST_LEASE,
            f"a lease that ends in {lease['expires']:,.0f} s; legal: at most {LEASE_SECONDS:g} s",
        ),
    ]
    for is_wrong, text in problems:
        if is_wrong:
            raise OperationError(
                f"plant.writer_lease was changed, or the database is older than {state.root}: found {text}. Nothing is "
                "lost. Delete the row of this installation as the owner: "
                f"DELETE FROM plant.writer_lease WHERE installation_id = '{installation}'; then run `up` again"
            )


async def join(dsn: str, state: State, plant: Plant, progress: Callable[[str], None]) -> None:
    """Make this state folder the member that the configuration says, or an appliance of its own again."""
    from ingest.writer.pair.lease import Heartbeat, request_lost  # noqa: PLC0415  (imports numpy, which `status` does not need)

    member, queries, installation = plant.redundancy.member, load("pair"), installation_id(state)
    async with connected(dsn, "plantlog up") as connection, connection.transaction():
        await connection.execute(queries["lock_pair"], installation)
        members = {row["member"]: row for row in await connection.fetch(queries["select_members"], installation)}
        if member is None:
            if members:
                await connection.execute(queries["dissolve"], installation)
                progress("no longer a member of a redundant pair")
            return
        if not members:
            write_holder(state.spool, is_holder=True)  # it polls on
            await connection.execute(queries["copy_gaps"], installation, member)
            await connection.execute(queries["record_away"], installation, 3 - member, _EPOCH, None)
        elif member not in members:
            await connection.execute(queries["record_away"], installation, member, _EPOCH, None)
        elif (other := members.get(3 - member)) is not None and other["away"]:  # also from new sources
            await connection.execute(queries["record_away"], installation, 3 - member, other["seen_at"], None)
        heartbeat = await connection.fetchrow(
            load("lease")["member_seen"], installation, member, folder_id(state.spool), 0, []
        )
        described = json.dumps(description(plant))
        await connection.execute(
            queries["describe_member"], installation, member, location(state), plantlog_version(), described
        )
    assert heartbeat is not None
    request_lost(state.spool, Heartbeat(**heartbeat))
    write_member(state.spool, member)


async def _runs(
    connection: asyncpg.Connection[Any], installation: UUID, member: int, progress: Callable[[str], None]
) -> bool:
    """Return whether a member is running: it was seen just now, and is seen again."""
    query, first = load("pair")["select_members"], None
    while True:
        row = next(row for row in await connection.fetch(query, installation) if row["member"] == member)
        if row["age"] > PATIENCE:
            return False
        if first is None:
            progress(f"member {member} was seen {row['age']:.0f} s ago in {row['place']}; checking whether it runs")
            first = row["seen_at"]
        if row["seen_at"] != first:
            return True
        await asyncio.sleep(_POLL_SECONDS)


def description(plant: Plant) -> dict[str, Any]:
    """Options that must be the same in both members: not what is a machine's own, such as ports and files."""
    options: dict[str, Any] = {}
    for name in fields_of(Plant).keys() - _MACHINE_TABLES - {"sources"}:
        options |= dict(_options(name, getattr(plant, name)))
    for source in plant.sources:
        options |= {f"source.{source.name}.{name}": value for name, value in _options("", source)}
        options[f"source.{source.name}.tags"] = hashlib.sha256(tags_json(source)).hexdigest()[:16]
    return options


def _options(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        items = list(value.items())
    elif hasattr(value, "__pydantic_fields__"):
        items = [
            (option, getattr(value, option)) for option in fields_of(type(value)) if option not in ("tags", "name")
        ]
    else:
        if not isinstance(value, Path):
            yield name, list(value) if isinstance(value, tuple | frozenset) else value
        return
    for key, item in items:
        yield from _options(f"{name}.{key}" if name else key, item)


def _differences(plant: Plant, other: Any) -> Iterator[str]:
    """Differences at the other member, as text."""
    if other["version"] != plantlog_version():
        yield f"plantlog {other['version']} there, {plantlog_version()} here"
    own_description, other_description = json.loads(json.dumps(description(plant))), json.loads(other["configuration"])
    for name in sorted(own_description.keys() | other_description.keys()):
        if own_description.get(name) != other_description.get(name):
            if name.endswith(".tags"):
                yield f"{name}: other tags"
            else:
                shown = (_shown(name, options) for options in (other_description, own_description))
                yield f"{name}: {next(shown)} there, {next(shown)} here"


def _shown(name: str, options: Mapping[str, Any]) -> str:
    """A value of :func:`description` as it is written in the file."""
    value, (table, _, option) = options.get(name), name.rpartition(".")
    field = fields_of(_table(table, options)).get(option)
    if name not in options or (value is None and (field is None or field_legal(option, field) != RETENTION_LEGAL)):
        return "nothing"
    return json.dumps(value, ensure_ascii=False) if field is None else value_text(option, field, value)


def _table(name: str, options: Mapping[str, Any]) -> type[Any]:
    """The class of a table of the file."""
    if name.startswith("source."):
        return SOURCES.get(options.get(f"{name}.kind", ""), Plant)
    special: dict[str, type[Any]] = {"plant": PlantOptions, "notify": NotifyOptions}
    return {**tables(), **special}.get(name, RetentionOptions if name.startswith("retention.") else Plant)
