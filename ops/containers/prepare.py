"""``plantlog admin prepare``: the part of ``up`` before processes start, for deployments such as containers.

The DSNs of all roles are in the state folder's ``secrets`` already, and the database server is run elsewhere.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from rich.console import Console

from core.addresses import is_loopback
from core.config import snapshot
from core.config.https import TlsSettings
from core.config.load import load_with_digests
from core.config.model import Plant
from core.errors import OperationError
from core.formatting import count
from core.paths import State
from core.users.directory import UserDirectory, closed_viewer
from ops.appliance import refusals
from ops.appliance.database import Database
from ops.appliance.steps import Step, Steps
from ops.appliance.up import new_state_folder
from ops.backup.repository import configure
from ops.postgres import verified
from ops.postgres.bootstrap import wait_until_ready
from ops.postgres.mounted import ARCHIVE, REPOSITORY, existing, is_mounted
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import register
from ops.registration.revisions import Files

_ANSWER_SECONDS = 60.0


def prepare(config: Path, console: Console, take_over: str | None, decisions: TagDecisions) -> None:
    """Schema, logins and registration. Safe to run again. Raises DatabaseError if the database is unreachable."""
    state = State.current()
    steps = Steps(console)
    with new_state_folder(state, console) as undo:
        state.claim()
        with steps.step("check configuration") as step:
            plant, digests = _check_config(config, state, step)
            verified.check(state.dsn("owner"), "secrets/owner_dsn, which `plantlog admin init` updates")
            asyncio.run(wait_until_ready(state.dsn("owner"), _ANSWER_SECONDS))
            refusals.check_registration(state, plant, decisions, take_over, None, step.note)
            TlsSettings.of(plant).ensure(state.root, all_names=True)
            undo.pop_all()
        db = Database(state, None)
        with steps.step("upgrade schema") as step:
            step.result = f"{db.where}, {asyncio.run(db.prepare(take_over, step.note))}"
            for problem in asyncio.run(db.setting_problems()):
                step.note(problem)
        with steps.step("register sources and channels") as step:
            files = Files(config, digests)
            registration = asyncio.run(register(plant, state.dsn("owner"), state, take_over, decisions, None, files))
            registration.print_changes(step.note)
            step.result = count(sum(len(source.tags) for source in plant.sources), "channel")
            snapshot.save(state.root, config, digests, plant, registration.versions)
        with steps.step("set up backups") as step:
            cluster = existing(state.root) if is_mounted() else None
            step.result = plant.backup.repository or "no [backup] repository"
            for problem in configure(state, cluster, plant.backup, step.note):
                step.warn(problem)
            if cluster is not None:
                cluster.configure()


def _check_config(config: Path, state: State, step: Step) -> tuple[Plant, dict[str, str]]:
    plant, digests = load_with_digests(config)
    if plant.collectors.processes > 1:
        raise OperationError(
            f"{config}: [collectors] processes is {plant.collectors.processes}: containers start one collector "
            "per protocol; legal: 1 (or use `plantlog up`)"
        )
    _check_mounted(config, "[backup] repository", plant.backup.repository, REPOSITORY, "PLANTLOG_BACKUP")
    _check_mounted(config, "[archive] location", plant.archive.location, ARCHIVE, "PLANTLOG_ARCHIVE")
    if not is_loopback(plant.database.host):
        raise OperationError(f"{config}: [database] is not supported in containers; legal: no table [database]")
    if plant.redundancy.member is not None:
        raise OperationError(f"{config}: [redundancy] is not supported in containers; legal: no table [redundancy]")
    if (closed := closed_viewer(plant.viewer.host, UserDirectory(state.root).users())) is not None:
        step.note(closed)
    step.result = f"{config}: plant {plant.name}, {count(len(plant.sources), 'source')}"
    return plant, digests


def _check_mounted(config: Path, option: str, folder: str | None, mounted: Path, variable: str) -> None:
    """Raises OperationError where it is a folder of the container only."""
    if folder is None or not folder.startswith("/"):
        return
    if Path(folder) != mounted:
        raise OperationError(
            f"{config}: {option} is {folder!r}; legal in containers: '{mounted}', where the folder that .env names as "
            f"{variable} is mounted, or a server"
        )
    if not mounted.is_dir():
        raise OperationError(
            f"{config}: {option} is '{mounted}', and nothing is mounted there: set {variable} in .env to the folder"
        )
