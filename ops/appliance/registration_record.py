"""Registration by ``up``, and its record in the state folder: with it, ``up`` can start while the database is away.

A registration that was made with the same code, for the same database and configuration, and from the same folder,
leaves nothing to be done in the database. Then the ids in the state folder are right, and collectors need nothing else.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from core.config import snapshot
from core.config.model import Plant
from core.config.snapshot import Snapshot, plant_in_force
from core.database import connected
from core.errors import OperationError
from core.files import write_atomically
from core.paths import State
from ops.appliance import programs
from ops.appliance.steps import Step
from ops.deployment import Deployment
from ops.registration import pair
from ops.registration.difference import Difference
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import register
from ops.registration.revisions import Files

_RECORD = "registered.json"
_MACHINE = Path("/etc/machine-id")
# What the record has → why another value needs the database.
_REASONS = {
    "code": "plantlog was changed since the last `up`",
    "database": "PLANTLOG_DSN is not that of the last `up`",
    "place": "the state folder was moved or copied since the last `up`",
}


def register_plant(
    deployment: Deployment,
    plant: Plant,
    digests: Mapping[str, str],
    state: State,
    take_over: str | None,
    decisions: TagDecisions,
    step: Step,
    expected: Difference | None = None,
) -> Snapshot:
    """Register sources, channels and the member of a pair, and put the configuration in force.

    Raises OperationError, with nothing changed, if that changes something else than ``expected``.
    """
    record = state.run / _RECORD
    record.unlink(missing_ok=True)  # until all is done
    files = Files(deployment.config, digests)
    registration = asyncio.run(register(plant, state.dsn("owner"), state, take_over, decisions, expected, files))
    registration.print_changes(step.note)
    asyncio.run(_join_pair(state, plant, step))
    current = snapshot.save(state.root, deployment.config, digests, plant, registration.versions)
    write_atomically(record, json.dumps(_circumstances(state)))
    return current


async def _join_pair(state: State, plant: Plant, step: Step) -> None:
    """Become the member of a redundant pair; the key of seals is made before it is copied to the other one."""
    from history.seals.keys import signer  # noqa: PLC0415  (its libraries take a tenth of the start)

    await pair.join(state.dsn("owner"), state, plant, step.note)
    if plant.redundancy.member is None or not plant.sealing.enabled:
        return
    async with connected(state.dsn("owner"), "plantlog up") as connection:
        await signer(connection, state)


def why_database_is_needed(state: State, plant: Plant, take_over: str | None) -> str:
    """Reason why ``up`` cannot start without the database; empty: it can, with the configuration in force."""
    return next(_reasons(state, plant, take_over), "")


def is_as_registered(state: State) -> bool:
    """Return whether a configuration is registered, by this version, in this database and from this place."""
    return next(_changes(state), None) is None


def _reasons(state: State, plant: Plant, take_over: str | None) -> Iterator[str]:
    if take_over is not None:
        yield "an installation is taken over in the database"
    yield from _changes(state)
    try:
        if plant != plant_in_force(state.root):
            yield "the configuration was changed since the last `up`"
    except OperationError as error:
        yield str(error)


def _changes(state: State) -> Iterator[str]:
    """Changes since the last registration."""
    record = state.run / _RECORD
    if not record.exists() or not state.registry.exists():
        yield "the last `up` registered no configuration"
        return
    before, now = json.loads(record.read_text()), _circumstances(state)
    yield from (reason for name, reason in _REASONS.items() if before[name] != now[name])


def _circumstances(state: State) -> dict[str, str]:
    machine = _MACHINE.read_text().strip() if _MACHINE.exists() else ""
    return {
        "code": programs.code_digest(),
        "database": hashlib.sha256(state.dsn("owner").encode()).hexdigest(),
        "place": f"{machine}:{state.root.resolve()}",
    }
