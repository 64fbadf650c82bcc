"""``plantlog prepare``: what ``up`` does before it starts processes, for a deployment whose processes others start.

The DSNs of all roles are in the state folder's ``secrets`` already, and the database is somebody else's to run.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from ingest.config import snapshot
from ingest.config.load import load_with_digests
from ingest.errors import OperationError
from ops.database import Database
from ops.meaning import Choice
from ops.paths import State
from ops.postgres.bootstrap import until_it_answers
from ops.register import register
from ops.steps import Steps
from ops.words import count

_ANSWER_SECONDS = 60.0


def prepare(config: Path, console: Console, take_over: bool, choice: Choice) -> None:
    """Schema, logins, registration of the plant. Safe to run again; ends with an error where the database is away."""
    state = State.current()
    state.claim()
    steps = Steps(console)
    with steps.step("check the configuration") as step:
        plant, digests = load_with_digests(config)
        if plant.collectors.processes > 1:
            raise OperationError(
                f"{config}: [collectors] processes is {plant.collectors.processes}: who starts processes for himself, "
                "as containers do, starts one collector a protocol; legal: 1, or `plantlog up`"
            )
        step.result = f"{config}: plant {plant.name}, {count(len(plant.sources), 'source')}"
    used = Database(state, None)
    with steps.step("bring the schema to this version") as step:
        asyncio.run(until_it_answers(used.dsn("owner"), _ANSWER_SECONDS))
        step.result = f"{used.where}, {asyncio.run(used.prepare(take_over, step.say))}"
        for lack in asyncio.run(used.missing()):
            step.say(lack)
    with steps.step("register sources and channels") as step:
        registered = asyncio.run(register(plant, used.dsn("owner"), state, take_over, choice))
        registered.tell(step)
        step.result = count(sum(len(source.tags) for source in plant.sources), "channel")
        snapshot.save(state.root, config, digests, plant, registered.versions)
