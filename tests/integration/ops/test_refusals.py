"""Commands that are refused change nothing: no file, no row, no process."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from rich.console import Console

from core.config.load import load
from core.errors import OperationError
from core.installation import installations
from core.paths import State
from ops.appliance import orphans, programs
from ops.appliance.refusals import check_registration
from ops.appliance.supervisor import Supervisor
from ops.appliance.up import UpOptions, up
from ops.deployment import Deployment
from ops.registration import heartbeat
from ops.registration.redefined_tags import TagDecisions
from tests.command import plantlog, run
from tests.database import Database, connected
from tests.folders import enterable_tmp_path  # noqa: F401  (a fixture)
from tests.integration.ops.test_service_install import refusal, systemd
from tests.integration.ops.test_up_registered import state
from tests.ports import free_ports
from tests.states import claimed, store_dsns
from tests.supervised import end

__all__ = ["state", "systemd"]
_AWAY = "postgresql://plantlog:wrong@127.0.0.1:1/plantlog"
_NODE = ("admin", "database", "node", "--address", "127.0.0.1")
_MONITOR = "postgresql://autoctl_node:a-secret-of-a-monitor@127.0.0.1:1/pg_auto_failover"


@pytest.fixture
def external(state: State) -> State:
    """A registered state folder, whose database is a server elsewhere."""
    state.run.mkdir(exist_ok=True)
    state.external_database_marker.touch()
    return state


def _contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _refused(state: State, *words: object) -> str:
    before = _contents(state.root)
    result = run(state.root, *words)
    assert result.code == 1, result
    assert _contents(state.root) == before
    return result.out + result.err


def test_up_checks_tags_in_doubt_before_it_starts_anything(external: State) -> None:
    config = external.root.parent / "plant.toml"
    (config.parent / "tags.csv").write_text("name,address\na,holding:7\n")
    output = _refused(external, "up", "--config", config)
    assert "1 tag of the configuration has a new definition under an old name" in " ".join(output.split())
    assert not (external.run / "supervisor.sock").exists()


def test_new_dsn_that_leads_nowhere_leaves_the_old_one(external: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", _AWAY)
    output = _refused(external, "up", "--config", external.root.parent / "plant.toml")
    assert "the database of PLANTLOG_DSN does not respond" in " ".join(output.split())
    assert "That of the last `up` stays in use" in " ".join(output.split())


def test_database_that_is_away_is_left_to_up(external: State) -> None:
    store_dsns(external, owner=_AWAY)
    check_registration(external, load(external.root.parent / "plant.toml"), TagDecisions())


def test_take_over_of_nobody_is_refused_before_logins_are_locked(state: State, tmp_path: Path) -> None:
    new = claimed(tmp_path / "new")
    store_dsns(new, owner=state.dsn("owner"))
    with pytest.raises(OperationError, match="--take-over: no installation is nobody"):
        check_registration(new, load(tmp_path / "plant.toml"), TagDecisions(), "nobody")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("user", "add", "anna", "--role", "viewer"), "the first user must be an engineer"),
        (("user", "add", "root", "--role", "engineer"), "user: found 'root'; legal: "),
        (("user", "add", "anna", "--role", "engineer", "--password-file", "absent"), "found no such file; legal: "),
        (("up", "--config", "absent.toml"), "absent.toml"),
        (("admin", "database", "monitor"), "--address is missing"),
        (("admin", "database", "monitor", "--address", "192.0.2.1"), "legal: an address of this machine"),
        (("admin", "database", "monitor", "--address", "127.0.0.1", "--replace", "nothing"), "--replace is not what"),
        (("admin", "database", "monitor", "--address", "127.0.0.1", "--port", "TAKEN"), "is in use"),
        (_NODE, "--address and --monitor"),
        ((*_NODE, "--monitor", "nothing"), "--monitor is not what"),
        (
            ("admin", "database", "node", "--address", "127.0.0.1", "--port", "TAKEN", "--monitor", _MONITOR),
            "is in use",
        ),
        (
            ("admin", "database", "node", "--address", "127.0.0.1", "--port", "FREE", "--monitor", _MONITOR),
            "does not respond",
        ),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_refused_command_makes_no_state_folder(words: tuple[str, ...], reason: str, tmp_path: Path) -> None:
    if words[0] == "admin" and os.getuid() != 0:
        pytest.skip("requires root")
    with socket.create_server(("127.0.0.1", 0)) as other:
        ports = {"TAKEN": other.getsockname()[1], "FREE": free_ports(1)}
        result = run(tmp_path / "state", *(ports.get(word, word) for word in words))
    assert result.code == 1, result
    assert reason in " ".join(result.err.split())
    assert list(tmp_path.iterdir()) == []


def test_port_in_use_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    config, state = tmp_path / "plant.toml", tmp_path / "state"
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    with socket.create_server(("127.0.0.1", 0)) as other:
        config.write_text(
            f'[plant]\nname = "p"\n[viewer]\nport = {other.getsockname()[1]}\n[health]\nport = {free_ports(20)}\n'
            '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
        )
        result = run(state, "up", "--config", config)
        assert "is in use" in result.err, result
        assert not state.exists()
        State(state).claim()
        assert "is in use" in _refused(State(state), "up", "--config", config)


def test_port_that_is_taken_after_the_check_is_named(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", database.owner_dsn)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "state"))
    config, viewer = tmp_path / "plant.toml", free_ports(21)
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    config.write_text(
        f'[plant]\nname = "p"\n[viewer]\nport = {viewer}\n[health]\nport = {viewer + 1}\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
    )
    check = programs.check_ports
    with ExitStack() as taken:

        def check_and_take(*arguments: Any) -> None:
            check(*arguments)
            taken.enter_context(socket.create_server(("127.0.0.1", viewer)))

        monkeypatch.setattr(programs, "check_ports", check_and_take)
        taken.callback(end, State(tmp_path / "state"))
        with pytest.raises(OperationError) as refused:
            up(UpOptions(config=config), Console(quiet=True))
    assert re.fullmatch(
        rf"viewer: port {viewer} on 127.0.0.1 is in use by \S+ \(process {os.getpid()}\): choose another port in "
        rf"\[viewer\] of {config}, or use up --port for the simulated plant",
        str(refused.value),
    )
    log = (tmp_path / "state" / "log" / "viewer.log").read_text()
    assert f"cannot listen on port {viewer} of 127.0.0.1: address already in use" in log
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("dsn", "words", "reason"),
    [
        ("", ("--take-over", "nobody"), "--take-over: no installation is nobody; registered: none"),
        ("", ("--take-over", "nobody", "--port", "FREE", "--no-simulator"), "--take-over: no installation is nobody"),
        ("OF_ANOTHER", ("--take-over", "nobody"), "--take-over: no installation is nobody; registered: installation"),
        ("OF_ANOTHER", (), "source plc belongs to another installation of this database"),
        ("NEWER", (), "was upgraded by a newer plantlog"),
        (_AWAY, (), "`up` cannot start without the database"),
    ],
)
def test_first_up_that_the_database_refuses_leaves_nothing(
    dsn: str,
    words: tuple[str, ...],
    reason: str,
    state: State,
    database: Database,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if dsn == "NEWER":
        asyncio.run(_upgrade_by_a_newer(database))
    monkeypatch.setenv("PLANTLOG_DSN", database.owner_dsn if dsn.isupper() else dsn)
    new, empty = tmp_path / "new", tmp_path / "empty"
    ports = free_ports(30)
    config = () if "--port" in words else ("--config", tmp_path / "plant.toml")
    (tmp_path / "plant.toml").write_text(
        f"{(tmp_path / 'plant.toml').read_text()}[viewer]\nport = {ports}\n[health]\nport = {ports + 1}\n"
    )
    empty.mkdir()
    for folder in (new, empty):
        result = run(folder, "up", *config, *(str(ports) if word == "FREE" else word for word in words))
        assert result.code == 1, result
        assert reason in " ".join((result.out + result.err).split()), result
        assert not orphans.find(State(folder))
    assert not new.exists()
    assert list(empty.iterdir()) == []


async def test_running_installation_is_not_taken_over_and_nothing_changes(
    state: State, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", database.owner_dsn)
    (new := State(tmp_path / "new")).claim()
    ports = free_ports(30)
    (tmp_path / "plant.toml").write_text(
        f"{(tmp_path / 'plant.toml').read_text()}[viewer]\nport = {ports}\n[health]\nport = {ports + 1}\n"
    )
    before = _contents(new.root)
    words = ("up", "--config", tmp_path / "plant.toml", "--take-over", "p")
    async with connected(database.owner_dsn) as connection:
        await heartbeat.record(connection, state)
        taking_over = asyncio.create_task(plantlog(new.root, *words))
        while not taking_over.done():
            await heartbeat.record(connection, state)
            await asyncio.wait([taking_over], timeout=0.2)
    result = await taking_over
    assert result.code == 1, result
    assert "is running, and cannot be taken over" in " ".join(result.err.split())
    assert _contents(new.root) == before
    assert not Supervisor(new).answers()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--config", "absent.toml"), "absent.toml"),
        (("--config", "plant.toml"), "source plc belongs to another installation of this database"),
        (("--config", "plant.toml", "--take-over", "nobody"), "--take-over: no installation is nobody"),
    ],
)
def test_refused_prepare_leaves_the_folder_and_the_database(
    words: tuple[str, ...], reason: str, state: State, database: Database, tmp_path: Path
) -> None:
    """The secrets are mounted before it runs."""
    new = State(tmp_path / "new")
    new.root.mkdir()
    store_dsns(new, owner=database.owner_dsn)
    before = asyncio.run(_installations(database))
    result = run(new.root, "admin", "prepare", *(tmp_path / word if ".toml" in word else word for word in words))
    assert result.code == 1, result
    assert reason in " ".join(result.err.split()), result
    assert list(new.root.iterdir()) == [new.dsn_file("owner").parent]
    assert list(_contents(new.root)) == [new.dsn_file("owner")]
    assert asyncio.run(_installations(database)) == before


async def _installations(database: Database) -> list[UUID]:
    async with connected(database.owner_dsn) as connection:
        return [installation.id for installation in await installations(connection)]


def test_refused_service_makes_no_state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ops.service.foreground.faulthandler.enable", lambda: None)
    monkeypatch.setenv("PLANTLOG_DSN", "nothing")
    result = run(tmp_path / "state", "admin", "service", "run")
    assert (result.code, "PLANTLOG_DSN is invalid" in result.err) == (1, True), result
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("service", "run"), ("prepare",)])
def test_newer_database_is_refused_before_the_folder_is_claimed(
    words: tuple[str, ...], state: State, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.service.foreground.faulthandler.enable", lambda: None)
    asyncio.run(_upgrade_by_a_newer(database))
    new, ports = State(tmp_path / "new"), free_ports(30)
    new.root.mkdir()
    config = tmp_path / "plant.toml"
    config.write_text(f"{config.read_text()}[viewer]\nport = {ports}\n[health]\nport = {ports + 1}\n")
    if words == ("prepare",):
        store_dsns(new, owner=database.owner_dsn)
        words = (*words, "--config", str(config))
    else:
        monkeypatch.setenv("PLANTLOG_DSN", database.owner_dsn)
        new.run.mkdir()
        Deployment(config, simulator=False).save(new)
    before = _contents(new.root)
    result = run(new.root, "admin", *words)
    assert result.code == 1, result
    assert "was upgraded by a newer plantlog" in " ".join(result.err.split()), result
    assert _contents(new.root) == before


def test_refused_service_leaves_an_appliance_that_runs_outside_of_it(
    external: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.service.foreground.faulthandler.enable", lambda: None)
    monkeypatch.setattr("ops.service.foreground._is_ours", lambda supervisor: False)  # as of another control group
    Deployment(tmp_path / "plant.toml", simulator=False).save(external)
    (tmp_path / "tags.csv").write_text("name,address\na,holding:7\n")
    supervisor = Supervisor(external)
    supervisor.start([])
    try:
        result = run(external.root, "admin", "service", "run")
        assert result.code == 1, result
        assert "1 tag of the configuration has a new definition under an old name" in " ".join(result.err.split())
        assert supervisor.answers()
        assert not (external.run / "service").exists()
    finally:
        end(external)


async def _upgrade_by_a_newer(database: Database) -> None:
    async with connected(database.owner_dsn) as connection:
        await connection.execute("INSERT INTO plant.migration VALUES (9999, 'of_a_newer', 'x')")


@pytest.mark.parametrize("is_there", [False, True])
def test_refused_restore_makes_no_state_folder(is_there: bool, tmp_path: Path) -> None:
    (repository := tmp_path / "repository").mkdir()
    if is_there:
        (repository / "backup").mkdir()
    (passphrase := tmp_path / "passphrase").write_text("a-passphrase\n")
    words = ("--repository", repository, "--passphrase-file", passphrase)
    result = run(tmp_path / "state", "admin", "restore", *words)
    assert result.code == 1, result
    assert ("it has no backup" if is_there else "has no backups of plantlog") in " ".join(result.err.split()), result
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="requires root")
def test_service_whose_port_is_in_use(external: State, systemd: Path, tmp_path: Path) -> None:
    described = (tmp_path / "plant.toml").read_text()
    with socket.create_server(("127.0.0.1", 0)) as other:
        (tmp_path / "plant.toml").write_text(f"{described}[viewer]\nport = {other.getsockname()[1]}\n")
        output = refusal(tmp_path, "--config", str(tmp_path / "plant.toml"), "--user", "root")
    assert "is in use" in output
    assert not list(systemd.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="requires root")
def test_service_of_a_configuration_that_up_refuses(external: State, systemd: Path, tmp_path: Path) -> None:
    (tmp_path / "tags.csv").write_text("name,address\na,holding:7\n")
    output = refusal(tmp_path, "--config", str(tmp_path / "plant.toml"), "--user", "root")
    assert "1 tag of the configuration has a new definition under an old name" in output
    other = (tmp_path / "plant.toml").read_text().replace('name = "p"', 'name = "other"')
    (tmp_path / "plant.toml").write_text(other)
    output = refusal(tmp_path, "--config", str(tmp_path / "plant.toml"), "--user", "root")
    assert "describes plant other, and in force is plant p" in output
    assert not list(systemd.iterdir())
