"""``plantlog admin database monitor|node``: make a server one of several, and start it."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
from rich.console import Console

from core.errors import OperationError
from core.paths import State
from core.servers import own_certificate
from core.servers.server_tls import ca_file
from ops import ports
from ops.appliance import orphans, programs
from ops.appliance.readiness import exit_message
from ops.appliance.steps import Steps
from ops.appliance.supervisor import Supervisor
from ops.appliance.up import state_folder_lock
from ops.failover.nodes import Node, nodes, speed_up_backup
from ops.postgres.binaries import PG_AUTOCTL, provide
from ops.postgres.bootstrap import create_database, maintenance_dsn
from ops.postgres.cluster import OWNER
from ops.postgres.managed import (
    NETWORK_PARTITION_SECONDS,
    REPLICATOR,
    SUPERUSER,
    ManagedCluster,
    check_enterable,
    is_root,
)
from ops.postgres.membership import (
    MONITOR_LOGIN,
    Membership,
    check_address,
    checked_monitor,
    monitor_dsn,
    monitor_file,
    secret_of,
    verified_by,
)
from ops.postgres.server import Server
from schema.queries import load

_READY_SECONDS = 120.0
_POLL_SECONDS = 0.5
_LOG_LINES = 5


def monitor(address: str | None, port: int | None, replaced: str | None, console: Console) -> None:
    """Start the monitor; safe to repeat. ``replaced``: the DSN of one that is lost."""
    state = _server_folder()
    new = None
    if Membership.load(state) is None:
        if address is None:
            raise OperationError("--address is missing: the address of this machine that the nodes reach")
        check_address(address)
        port = port or 5432
        ca = ca_file(state.pki)
        secret = secrets.token_urlsafe(24)
        if replaced is not None:
            secret = secret_of(checked_monitor("--replace", replaced, ca))
        new = Membership(address, port, monitor_dsn(secret, address, port, ca), is_monitor=True)
        _others(new)
    with _claimed(state, new, console, is_monitor=True, address=address, port=port) as ours:
        steps = Steps(console)
        _make(state, ours, steps)
        _start(state, ours, steps)
    console.print(
        f"On each machine of the database: PLANTLOG_MONITOR='{ours.join}' "
        "./plantlog admin database node --address ITS_ADDRESS",
        highlight=False, soft_wrap=True,
    )  # fmt: skip


def node(monitor_dsn: str | None, address: str | None, port: int | None, console: Console) -> None:
    """Start a server of the database; safe to repeat."""
    state = _server_folder()
    monitor_now = None if monitor_dsn is None else checked_monitor("--monitor", monitor_dsn, ca_file(state.pki))
    new = None
    if Membership.load(state) is None:
        if address is None or monitor_now is None:
            raise OperationError(
                "--address and --monitor (or PLANTLOG_MONITOR) are missing: the address of this machine that the "
                "others reach, and what `plantlog admin database monitor` printed"
            )
        check_address(address)
        new = Membership(address, port or 5432, monitor_now, is_monitor=False)
        _others(new)
    with _claimed(state, new, console, is_monitor=False, address=address, port=port) as ours:
        if monitor_now is not None:
            _check_secret(state, ours, monitor_now)
        steps = Steps(console)
        _make(state, ours, steps)
        _start(state, ours, steps)
        if monitor_now is not None and monitor_now != ours.monitor:
            _change_monitor(state, ours, monitor_now, steps)
        with steps.step("wait for the others") as step:
            servers = _wait(state, ours, monitor_now or ours.monitor)
            this_server = next(
                server for server in servers if (server.address, server.port) == (ours.address, ours.port)
            )
            step.result = this_server.state
    dsn = f"postgresql://{OWNER}:PASSWORD@{','.join(f'{server.address}:{server.port}' for server in servers)}/plantlog"
    environment = f"PLANTLOG_DSN='{dsn}?{verified_by('/PATH/OF/ca.crt')}'\n  ca.crt is a copy of {ca_file(state.pki)}"
    console.print(
        f"For the appliances: {environment}\n  the password is {_password_place(state, ours)}",
        highlight=False,
        soft_wrap=True,
    )


def membership(state: State) -> Membership:
    """Membership of a server. Raises OperationError where the state folder is no server's."""
    if (ours := Membership.load(state)) is None or not ours.ready:
        raise OperationError(
            f"{state.root} is neither a monitor nor a node: set PLANTLOG_STATE, or run `plantlog admin database node`"
        )
    return ours


def _server_folder() -> State:
    """The state folder, which may not exist yet. Raises OperationError if it is an appliance's."""
    if not is_root():
        raise OperationError("servers of several machines require root, which gives them a user of their own")
    state = State.current()
    if Membership.load(state) is None and (state.root / "postgres" / "cluster").exists() | state.registry.exists():
        raise OperationError(f"{state.root} is an appliance's: set PLANTLOG_STATE to a new folder for the server")
    check_enterable(state.root)
    return state


@contextmanager
def _claimed(
    state: State, new: Membership | None, console: Console, *, is_monitor: bool, address: str | None, port: int | None
) -> Iterator[Membership]:
    """The membership of the state folder, locked in the block; ``new`` where it has none yet."""
    state.claim()
    with state_folder_lock(state, console):
        ours = Membership.load(state) or new
        assert ours is not None  # another command can't have deleted it
        _check_same(state, ours, is_monitor=is_monitor, address=address, port=port)
        yield ours


def _others(ours: Membership) -> list[Node]:
    """The nodes but this server, which is not one yet. Raises OperationError if it can't become one now.

    The monitor's certificate is checked with a copy of what is made of the secret later: nothing is written here.
    """
    if not ports.is_free(ours.address, ours.port):
        raise OperationError(f"port {ours.port} is in use{ports.holder(ours.port)}: choose another one with --port")
    if ours.is_monitor:
        return []
    with TemporaryDirectory(prefix="plantlog-") as folder:
        own_certificate.derive(Path(folder), ours.secret)
        servers = asyncio.run(nodes(checked_monitor("--monitor", ours.monitor, ca_file(Path(folder)))))
    others = [server for server in servers if (server.address, server.port) != (ours.address, ours.port)]
    if others and not any(server.is_primary for server in others):
        raise OperationError("no node is the primary now: see `plantlog admin database status`, and try again")
    return others


def _check_same(state: State, ours: Membership, *, is_monitor: bool, address: str | None, port: int | None) -> None:
    """Options that were given before are not changed silently."""
    kind = "the monitor" if ours.is_monitor else "a node"
    problems = [
        (ours.is_monitor != is_monitor, f"is {kind}"),
        (address not in (None, ours.address), f"is {kind} at {ours.address}, not {address}"),
        (port not in (None, ours.port), f"is {kind} at port {ours.port}, not {port}"),
    ]
    for is_wrong, text in problems:
        if is_wrong:
            raise OperationError(f"{state.root} {text}: set PLANTLOG_STATE, or `plantlog down --wipe` it first")


def _make(state: State, ours: Membership, steps: Steps) -> None:
    """The server's data, and its place among the others, where they are missing."""
    if ours.ready:
        return
    others = _others(ours)
    primary = next((server for server in others if server.is_primary), None)
    own_certificate.derive(state.pki, ours.secret)
    with steps.step("prepare PostgreSQL") as step:
        binaries = provide(state.root, step.note)
        binaries.check(PG_AUTOCTL)
        cluster = ManagedCluster(state.root, binaries, ours)
        ports.reserve(state.root / "postgres" / "port", ours.port)
        if not others:
            cluster.make(step.note)
            with Server(state.root, log=state.log / "postgres.log") as server:
                asyncio.run(_create_roles(server.owner_dsn, ours))
        ours.save(state)
        cluster.prepare()
        cluster.renew_certificate()
    title = f"copy the database from {primary.address}:{primary.port}" if primary else "join the others"
    with steps.step("create the monitor" if ours.is_monitor else title):
        asyncio.run(_create(cluster, ours, primary, state.log / "create.log"))
        if ours.is_monitor:
            _set(cluster, "postgresql.listen_addresses", cluster.listen)
        else:
            _set(cluster, "replication.password", ours.secret)
            _set(cluster, "timeout.network_partition_timeout", str(NETWORK_PARTITION_SECONDS))
        replace(ours, ready=True).save(state)


async def _create_roles(owner_dsn: str, ours: Membership) -> None:
    """Create the roles of pg_autoctl: it can create some, but no passwords."""
    queries = load("failover")
    superusers = {SUPERUSER: None, REPLICATOR: ours.secret}
    logins = [("format_monitor_login", MONITOR_LOGIN, ours.secret)]
    if not ours.is_monitor:
        await create_database(owner_dsn)
        logins = []
    connection = await asyncpg.connect(maintenance_dsn(owner_dsn))
    try:
        for query, name, password in [*(("format_role", *role) for role in superusers.items()), *logins]:
            statement = await connection.fetchval(queries[query], name, password)
            if statement is not None:
                await connection.execute(statement)
    finally:
        await connection.close()


async def _create(cluster: ManagedCluster, ours: Membership, primary: Node | None, log: Path) -> None:
    with log.open("ab") as file:
        start = file.tell()
        process = await asyncio.create_subprocess_exec(*cluster.create(), stdout=file, stderr=file, cwd="/")
        speeding_up = asyncio.create_task(speed_up_backup(primary, ours)) if primary is not None else None
        try:
            code = await process.wait()
        finally:
            if speeding_up is not None:
                speeding_up.cancel()
    if code:
        raise OperationError("\n".join([f"pg_autoctl exited with {code}: see {log}", *_errors(log, start)]))


def _errors(log: Path, start: int) -> list[str]:
    """The last errors in a log, from a position on."""
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    return [line for line in lines if " ERROR " in line or " FATAL " in line][-_LOG_LINES:]


def _set(cluster: ManagedCluster, name: str, value: str) -> None:
    _run(cluster.autoctl("config", "set", name, value))


def _run(command: list[str]) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if run.returncode:
        raise OperationError(f"pg_autoctl exited with {run.returncode}:\n{run.stdout}{run.stderr}")


def _check_secret(state: State, ours: Membership, monitor: str) -> None:
    changed = replace(ours, monitor=monitor)
    if changed.secret != ours.secret:
        raise OperationError(
            "the monitor does not have the nodes' secret: begin it with `plantlog admin database monitor --replace "
            f"DSN`, with the DSN in {monitor_file(state)}"
        )


def _change_monitor(state: State, ours: Membership, monitor: str, steps: Steps) -> None:
    """Change to another monitor, in place of one that is lost."""
    changed = replace(ours, monitor=monitor)
    with steps.step("change the monitor"):
        asyncio.run(nodes(monitor))  # it answers
        cluster = ManagedCluster(state.root, provide(state.root, lambda line: None), changed)
        _run(cluster.autoctl("disable", "monitor", "--force"))
        _run(cluster.autoctl("enable", "monitor", cluster.manager_dsn(monitor)))
        changed.save(state)
        supervisor = Supervisor(state)  # one that runs may miss the second of two changes
        supervisor.stop_programs("postgres")
        supervisor.start_program("postgres")


def _start(state: State, ours: Membership, steps: Steps) -> None:
    with steps.step("start") as step:
        supervisor = Supervisor(state)
        if not supervisor.answers():
            orphans.end(state, step.note)
            supervisor.start([programs.postgres(state)])
        supervisor.start_program("postgres")
        deadline = time.monotonic() + _READY_SECONDS
        while ports.is_free(ours.address, ours.port):
            _check_running(supervisor, state, deadline, "the server does not listen")
            time.sleep(_POLL_SECONDS)
        step.result = f"{ours.address}:{ours.port}"


def _wait(state: State, ours: Membership, monitor: str) -> list[Node]:
    """Wait until this node has the role that the monitor assigned to it. Returns all nodes."""
    supervisor, deadline = Supervisor(state), time.monotonic() + _READY_SECONDS
    while True:
        with suppress(OperationError):  # the monitor is away: the server runs all the same
            servers = asyncio.run(nodes(monitor))
            if any((server.address, server.port) == (ours.address, ours.port) and server.settled for server in servers):
                return servers
        _check_running(supervisor, state, deadline, "the monitor does not see this node in order")
        time.sleep(_POLL_SECONDS)


def _check_running(supervisor: Supervisor, state: State, deadline: float, problem: str) -> None:
    for process in supervisor.processes():
        if process.state not in ("RUNNING", "STARTING"):
            raise OperationError(exit_message(state, process))
    if time.monotonic() > deadline:
        raise OperationError(f"{problem} after {_READY_SECONDS:g} s: see {state.log / 'postgres.log'}")


def _password_place(state: State, ours: Membership) -> str:
    if state.dsn_file("owner").exists():
        return f"in {state.dsn_file('owner')}"
    return "on the machine of the first node, in secrets/owner.dsn of its state folder"
