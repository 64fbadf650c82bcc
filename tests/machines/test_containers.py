"""The whole appliance in containers of Debian's packages: up, rows, kills, losses, the same rows, down."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from rich.console import Console

from core.paths import CHECKOUT, EXAMPLE
from core.timestamps import now_us
from ops.containers.init import init
from ops.maintenance.jobs import jobs
from simulator.compare import compare
from simulator.compare_samples import Comparison
from tests.docker import FILES, Docker, engine
from tests.ports import free_ports
from tests.waiting import PATIENCE, until, until_sync

SECOND = 1_000_000  # µs
PORTS = ("PLANTLOG_DATABASE_PORT", "PLANTLOG_PUSH_PORT", "PLANTLOG_VIEWER_PORT", "PLANTLOG_PROMETHEUS_PORT")
ENDED = {"certificate", "dashboards", "migrate", "trust"}
PROJECT = "plantlog-test"
SERVICE_USER = 10001  # if root runs `init`
PLANTLOG = ("exec", "--no-TTY", "maintenance", "plantlog")
_CA_KEY = "/var/lib/plantlog/pki/tls/ca.key"

pytestmark = pytest.mark.timeout(1800)  # images are built from nothing


class Stack:
    """The project's containers."""

    def __init__(self, docker: Docker, folder: Path, first_port: int) -> None:
        init(folder, Console(quiet=True))
        self.docker = docker
        self.folder = folder
        self.ports = {name: first_port + number for number, name in enumerate(PORTS)}
        self.plant, self.repository = folder / "plant", folder / "repository"
        shutil.copytree(EXAMPLE.parent, self.plant)
        config = self.plant / "containers.toml"
        before, header, after = config.read_text().partition("# [backup]\n")
        config.write_text(before + header[2:] + after.replace("# ", "", 2))
        self.repository.mkdir()
        if os.geteuid() == 0:
            for path in (self.repository, self.plant, self.plant / "tags"):
                os.chown(path, SERVICE_USER, SERVICE_USER)
        settings = {**self.ports, "PLANTLOG_PLANT": self.plant, "PLANTLOG_BACKUP": self.repository}
        environment = folder / ".env"
        kept = [line for line in environment.read_text().splitlines() if line.partition("=")[0] not in settings]
        changed = [f"{name}={value}" for name, value in settings.items()]
        environment.write_text("\n".join([*kept, *changed, f"PLANTLOG_PROJECT={PROJECT}", ""]))
        self._options = ("--env-file", str(environment))
        self._files = (*FILES, "-f", str(self._impatient(folder / "compose.test.yml")))
        self.secrets = folder / "secrets"

    @property
    def dsn(self) -> str:
        """The reader's, from here."""
        return self.dsn_of("reader")

    def dsn_of(self, role: str) -> str:
        """A role's, from here."""
        dsn = (self.secrets / f"{role}_dsn").read_text()
        here = dsn.replace("@database:5432", f"@127.0.0.1:{self.ports['PLANTLOG_DATABASE_PORT']}")
        return here.replace("/run/secrets", str(self.secrets))

    def _impatient(self, override: Path) -> Path:
        """Health is looked at every 3 s: what waits for it need not wait for ten, and each look is a process."""
        services = self.docker.described(*self._options)["services"]
        health = {name: {"healthcheck": {"interval": "3s"}} for name in services}
        override.write_text(json.dumps({"services": health}))  # JSON is YAML
        return override

    def compose(self, *arguments: str) -> str:
        return self.docker.compose(*self._options, *arguments, files=self._files)

    def states(self) -> dict[str, str]:
        """Service → healthy, starting, …; of one that ended its exit code."""
        body = [json.loads(line) for line in self.compose("ps", "--all", "--format", "json").splitlines()]
        return {
            one["Service"]: str(one["ExitCode"]) if one["State"] == "exited" else one["Health"] or one["State"]
            for one in body
        }

    def well(self) -> bool:
        """Return whether everything that was to end has, and everything else is healthy."""
        return all(state == ("0" if name in ENDED else "healthy") for name, state in self.states().items())

    async def fetch(self, query: str) -> list[Any]:
        connection = await asyncpg.connect(self.dsn)
        try:
            return list(await connection.fetch(query))
        finally:
            await connection.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with engine(tmp_path_factory.mktemp("engine")) as docker:
        docker.run(CHECKOUT / "ops" / "containers" / "image" / "base.sh")
        up = Stack(docker, tmp_path_factory.mktemp("made"), free_ports(len(PORTS)))
        try:
            try:
                up.compose("down", "--volumes", "--timeout", "1")  # what a run that was killed has left
                up.compose("up", "--build", "--detach")  # as docs/containers.md has it
            except AssertionError as error:
                raise AssertionError(f"{error}\n{up.compose('logs', '--no-color', '--tail', '30')}") from None
            yield up
        finally:
            up.compose("down", "--volumes", "--timeout", "30")
            assert up.states() == {}
            assert up.docker.run("docker", "volume", "ls", "--quiet", "--filter", f"name={PROJECT}") == ""


def until_well(stack: Stack) -> None:
    until_sync(stack.well, 240, 1.0, stack.states)


async def connected(stack: Stack) -> None:
    """Wait until every source that is read is."""
    found: list[Any] = []

    async def connected() -> bool:
        found[:] = await stack.fetch("SELECT name, state, reason FROM plant.source WHERE kind <> 'push'")
        return len(found) == 4 and all(row["state"] in ("connected", "degraded") for row in found)

    await until(connected, 240, 0.5, lambda: found)


async def compared(stack: Stack, folder: Path, from_us: int) -> Comparison:
    """Ground truth and table, once what was published until now is in the table or on record as a gap."""
    to_us = now_us()
    result: dict[str, Comparison] = {}

    async def settled() -> bool:
        stack.compose("cp", "simulator:/var/lib/simulator/truth/.", str(folder))
        result.update(await compare(folder, stack.dsn, from_us, to_us))
        return result["all"].missing_silent == 0 and now_us() > to_us + SECOND

    await until(settled, 120, 1, lambda: result)
    all_of_them = result["all"]
    # A device that answers too late, on a machine that is busy, leaves a gap on record; nothing goes without one.
    assert (all_of_them.duplicated, all_of_them.invented, all_of_them.altered) == (0, 0, 0), result
    assert min(all_of_them.published, all_of_them.stored) > 1000
    return all_of_them


async def test_containers_store_exactly_once_over_kills(stack: Stack, tmp_path: Path) -> None:
    until_well(stack)
    await connected(stack)
    begun = now_us() + SECOND
    # The writer is killed: the spools, in a volume, keep what comes. The database is started again: the writer waits.
    stack.compose("kill", "--signal", "KILL", "writer")
    stack.compose("up", "--detach", "--no-build", "writer")
    until_well(stack)
    stack.compose("restart", "database")
    until_well(stack)
    result = await compared(stack, tmp_path / "truth", begun)
    counts = "SELECT count(*), count(DISTINCT (channel_id, time)) FROM plant.samples"
    ((rows, distinct),) = await stack.fetch(counts)
    assert rows == distinct > result.published
    assert (await stack.fetch("SELECT value FROM plant.setting WHERE key = 'edition'"))[0]["value"] == "apache"


@pytest.mark.gate
def test_container_processes_are_unprivileged_and_read_only(stack: Stack) -> None:
    until_well(stack)
    for service in ("writer", "collector-opcua", "viewer", "simulator"):
        output = stack.compose(
            *("exec", "--no-TTY", service, "sh", "-c"),
            "id -u; grep -h -e CapEff -e NoNewPrivs /proc/self/status; touch /opt/plantlog/x 2>&1 || true;"
            f"cat {_CA_KEY} 2>&1 || true",
        )
        user, capabilities, privileges, touched, key = output.splitlines()
        assert user == "10001"
        assert int(capabilities.split()[1], 16) == 0
        assert privileges.split()[1] == "1"
        assert "Read-only file system" in touched
        assert "No such file" in key
    assert "PRIVATE KEY" in stack.compose("exec", "--no-TTY", "maintenance", "cat", _CA_KEY), "it issues certificates"


async def test_connections_to_the_database_are_encrypted(stack: Stack) -> None:
    """By whoever connects; the certificate is verified also from here."""
    owner = await asyncpg.connect(stack.dsn_of("owner"))
    try:

        async def names(state: str) -> set[str]:
            query = "SELECT application_name FROM pg_stat_ssl JOIN pg_stat_activity USING (pid)"
            found = await owner.fetch(f"{query} WHERE {state} AND client_addr IS NOT NULL")
            return {row["application_name"].partition(":")[0] for row in found}

        async def are_connected() -> bool:
            return {"plantlog writer", "plantlog maintenance"} <= await names("ssl")

        await until(are_connected, every=0.2)
        assert await names("NOT ssl") == set()
    finally:
        await owner.close()
    with pytest.raises(asyncpg.InvalidAuthorizationSpecificationError, match="no encryption"):
        await asyncpg.connect(f"{stack.dsn.partition('?')[0]}?sslmode=disable")


def test_prometheus_scrapes_every_process(stack: Stack) -> None:
    def up() -> dict[str, str]:
        address = f"http://127.0.0.1:{stack.ports['PLANTLOG_PROMETHEUS_PORT']}/api/v1/query?query=up"
        with urllib.request.urlopen(address, timeout=PATIENCE) as answer:
            found = json.loads(answer.read())["data"]["result"]
        return {sample["metric"]["process"]: sample["value"][1] for sample in found}

    wanted = {"writer", "collector-opcua", "collector-modbus", "collector-push", "maintenance", "viewer", "notifier"}
    until_sync(lambda: up() == dict.fromkeys(wanted, "1"), 240, 0.5, stack.states)


async def test_every_maintenance_job_runs_without_failure(stack: Stack) -> None:
    """Jobs that take the owner's rights and the sealing key are among them: a day that is closed is sealed."""
    begun = now_us()
    two_days_ago = begun - 2 * 86_400 * SECOND
    push(stack, "".join(f"old,host=h,member=all used={n} {(two_days_ago + n) * 1000}\n" for n in range(10)).encode())
    await stored(stack, "telegraf/h/old/all/used", 10)
    names = [job.name for job in (*jobs(), *jobs())]  # twice: what follows from another one, too
    since = datetime.fromtimestamp(begun / SECOND, UTC)  # an earlier test has cut off runs: it restarted the database

    stack.compose(*PLANTLOG, "admin", "maintenance", "run", *names)

    async def ran() -> bool:
        """One that was skipped since it was just running elsewhere runs again."""
        found = await stack.fetch(
            "SELECT started_at, job, outcome, detail FROM plant.job_run WHERE outcome IS NOT NULL"
        )
        assert [tuple(row) for row in found if row["outcome"] == "failed" and row["started_at"] > since] == []
        # There is no archive.
        lacking = set(names) - {"archive"} - {row["job"] for row in found if row["outcome"] == "ok"}
        if lacking:
            stack.compose(*PLANTLOG, "admin", "maintenance", "run", *sorted(lacking))
        return not lacking and any(row["job"] == "archive" and row["outcome"] == "skipped" for row in found)

    await until(ran, 600, 1.0)
    day = datetime.fromtimestamp(two_days_ago / SECOND, UTC).date()
    assert f"{day} " in stack.compose(*PLANTLOG, "evidence", "verify", str(day))


def push(stack: Stack, lines: bytes) -> None:
    """Push like a gateway, with the token that init made."""
    token = (stack.secrets / "telegraf_token").read_text()
    address = f"https://127.0.0.1:{stack.ports['PLANTLOG_PUSH_PORT']}/api/v2/write"
    request = urllib.request.Request(address, lines, {"Authorization": f"Token {token}"})
    trusting = ssl.create_default_context(cafile=str(stack.secrets / "tls_ca"))
    with urllib.request.urlopen(request, timeout=PATIENCE, context=trusting) as answer:
        assert answer.status == 204


async def stored(stack: Stack, channel: str, n: int) -> list[float]:
    """The channel's values by time, once there are ``n`` of them."""
    query = f"SELECT value FROM plant.samples_named WHERE name = '{channel}' ORDER BY time"
    found: list[float] = []

    async def enough() -> bool:
        found[:] = [row["value"] for row in await stack.fetch(query)]
        return len(found) >= n

    await until(enough, every=0.2, show=lambda: found)
    return found


async def test_gateway_pushes_with_the_generated_token(stack: Stack) -> None:
    lines = "".join(f"mem,host=h,member=all used={n} {(now_us() + n) * 1000}\n" for n in range(100)).encode()
    for _ in range(2):  # as a gateway does that did not hear the first answer
        push(stack, lines)
    found = await stored(stack, "telegraf/h/mem/all/used", 100)
    assert found == list(range(100))


def backed_up(stack: Stack) -> str:
    """Output of `backup`, once the job makes none."""
    lines: list[str] = []

    def done() -> bool:
        try:
            lines.append(stack.compose(*PLANTLOG, "admin", "backup"))
        except AssertionError as error:
            if "another backup is running" not in str(error):
                raise
        return bool(lines)

    until_sync(done, 240, 1)  # the first full one, beside other tests
    return lines[0]


async def test_a_lost_database_is_restored(stack: Stack, tmp_path: Path) -> None:
    """Only its volume is lost: collectors go on, and the journal has what the repository lacks."""
    until_well(stack)
    await connected(stack)
    begun = now_us() + SECOND
    backed_up(stack)
    made = json.loads(stack.compose(*PLANTLOG, "admin", "backup", "list", "--json"))
    assert made[0]["kind"] == "full"
    assert "status: ok" in stack.compose(*PLANTLOG, "admin", "backup", "verify")
    assert f"{made[-1]['label']} is whole" in stack.compose(*PLANTLOG, "admin", "backup", "rehearse")
    stack.compose("rm", "--stop", "--force", "database", "migrate", "maintenance")
    stack.docker.run("docker", "volume", "rm", f"{PROJECT}_database")
    stack.compose("run", "--rm", "--no-TTY", "restore")
    stack.compose("up", "--detach", "--no-build")
    until_well(stack)
    await connected(stack)
    await compared(stack, tmp_path / "truth", begun)
    assert await stack.fetch("SELECT FROM plant.gap WHERE reason = 'database_restored'") == []


async def test_a_lost_machine_is_restored(stack: Stack, tmp_path: Path) -> None:
    """There is the repository with its passphrase; `init` makes other secrets."""
    until_well(stack)
    await connected(stack)
    begun = now_us() + SECOND
    backed_up(stack)
    kept = {name: (stack.secrets / name).read_text() for name in ("tokens/telegraf", "backup_passphrase")}
    stack.compose("down", "--timeout", "10")
    for volume in ("database", "state"):
        stack.docker.run("docker", "volume", "rm", f"{PROJECT}_{volume}")
    shutil.rmtree(stack.secrets)
    for file in stack.plant.rglob("*"):
        if file.is_file():
            file.unlink()
    init(stack.folder, Console(quiet=True))
    (stack.secrets / "backup_passphrase").write_text(kept["backup_passphrase"])
    (stack.secrets / "tokens" / "telegraf").unlink()  # gateways have the former token
    stack.compose("run", "--rm", "--no-TTY", "restore", "--repository", "/mnt/backup")
    assert (stack.secrets / "tokens" / "telegraf").read_text() == kept["tokens/telegraf"]
    stack.compose("up", "--detach", "--no-build")
    until_well(stack)
    await connected(stack)
    await compared(stack, tmp_path / "truth", begun)
    with pytest.raises(AssertionError, match="the first one may still back up to it"):
        stack.compose(*PLANTLOG, "admin", "backup")
    stack.compose(*PLANTLOG, "admin", "backup", "take-over")
    stack.compose("up", "--detach", "--no-build")
    assert "incr" in backed_up(stack)
