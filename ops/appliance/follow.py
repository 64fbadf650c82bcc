"""Apply a plan that changes nothing but tags: the living collectors follow, and all else stays as ``up`` left it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from core.config.files import digest
from core.config.processes import is_collector
from core.database import connect, database_errors
from core.paths import State
from ops import health
from ops.appliance.plan import Plan
from ops.appliance.readiness import Progress, wait_until_configured, wait_until_ready
from ops.appliance.registered import is_as_registered, register_plant
from ops.appliance.steps import Steps
from ops.appliance.supervisor import Supervisor
from ops.deployment import Deployment
from ops.migration.migrate import is_current
from ops.registration import heartbeat
from ops.registration.redefined_tags import TagDecisions


def can_follow(plan: Plan, state: State) -> bool:
    """Whether ``up`` would have nothing to do but to register tags and to tell the collectors.

    Raises OperationError if a copy of the state folder runs, DatabaseError.
    """
    if not plan.tags_only or plan.plant.redundancy.member is not None or not is_as_registered(state):
        return False
    if any(process.state != "RUNNING" for process in Supervisor(state).processes()):
        return False
    with database_errors():
        return asyncio.run(_is_prepared(state))


async def _is_prepared(state: State) -> bool:
    """Whether the database has this version's schema."""
    connection = await connect(state.dsn("owner"), "plantlog apply")
    try:
        await heartbeat.check(connection, state, lambda line: None)
        return await is_current(connection)
    finally:
        await connection.close()


def follow(plan: Plan, deployment: Deployment, decisions: TagDecisions, state: State, steps: Steps) -> None:
    """Apply the plan. Raises OperationError, with nothing applied, if it is stale."""
    os.umask(0o077)
    plant = plan.plant
    collectors = list(filter(is_collector, health.processes(plant)))
    progress = Progress(Supervisor(state), state, health.processes(plant))
    with steps.step("register channels") as step, database_errors():
        plan.check(state, {path: digest(Path(path)) for path in plan.digests})
        current = register_plant(deployment, plant, plan.digests, state, None, decisions, step, plan.difference)
        deployment.save(state)
    with steps.step("apply to collectors"):
        wait_until_configured(collectors, current.number, plant, progress)
    with steps.step("wait for connections") as step:
        wait_until_ready(health.processes(plant), plant, progress, step, deployment.simulator)
