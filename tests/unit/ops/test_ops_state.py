"""The state folder, what is kept in it, and ports."""

from __future__ import annotations

import io
import json
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from rich.console import Console

from core.addresses import port_advice
from core.config import token_file
from core.config.model import HealthOptions
from core.errors import DatabaseError, OperationError
from core.paths import State
from ingest.spool.member import write_member
from ingest.writer.restored.commit_mark import CommitMark
from ingest.writer.restored.restore_check import ACCEPT
from ops import ports
from ops.appliance import programs
from ops.appliance.database import provide
from ops.appliance.down import _drain
from ops.appliance.programs import check_ports
from ops.appliance.steps import Step
from ops.appliance.up import UpOptions, _check_config, deployment_for
from ops.cli.appliance import tail_command
from ops.deployment import Deployment, Running
from ops.ports import PortRequirement
from ops.postgres.binaries import Binaries, cache_folder, chosen_cache, remember_cache
from ops.postgres.cluster import Cluster
from ops.registration.rename import rename
from ops.spool.replay import accept
from tests.command import run
from tests.ports import free_ports
from tests.samples import batch
from tests.spooling import spooled


def claimed(folder: Path) -> State:
    state = State(folder)
    state.claim()
    return state


def test_foreign_folder_is_refused_as_state_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(OperationError, match=r"contains 'thesis\.tex' and is not a plantlog state folder"):
        State(tmp_path).claim()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_empty_disk_is_accepted_as_state_folder(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir(mode=0o000)
    State(tmp_path).claim()
    assert State(tmp_path).claimed


def test_own_state_folder_is_accepted_again(tmp_path: Path) -> None:
    state = claimed(tmp_path / "state")
    (state.root / "notes.txt").touch()
    state.claim()
    assert state.claimed


def test_missing_dsn_names_the_command_that_creates_it(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    with pytest.raises(OperationError, match="has no database yet: run `plantlog up`"):
        state.dsn("reader")
    state.dsn_file("reader").parent.mkdir()
    state.dsn_file("reader").write_text("postgresql://reader@127.0.0.1/plantlog\n")
    assert state.dsn("reader") == "postgresql://reader@127.0.0.1/plantlog"


def test_state_files_are_private(tmp_path: Path) -> None:
    """Also what an earlier plantlog left open. The database's folders see to themselves."""
    before = os.umask(0o022)
    try:
        state = State(tmp_path / "state")
        for name in ("spool/opcua.sqlite", "log/writer.log", "registry.json", "postgres/cluster/data/PG_VERSION"):
            path = state.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("kept")
            path.chmod(0o755)
        state.claim()
        (state.spool / "new.sqlite").touch()
        open_to_others = [path for path in (state.root, *state.root.rglob("*")) if path.lstat().st_mode & 0o077]
        assert {path.relative_to(state.root).parts[0] for path in open_to_others} == {"postgres"}
        assert (state.root / "postgres/cluster/data/PG_VERSION").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(before)


def test_cache_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a command without the variable would use, and unpack, other programs."""
    state = claimed(tmp_path)
    monkeypatch.delenv("PLANTLOG_CACHE", raising=False)
    remember_cache(state.root)
    assert chosen_cache(state.root) is None
    monkeypatch.setenv("PLANTLOG_CACHE", "/shared")
    remember_cache(state.root)
    started = programs.postgres(state)
    monkeypatch.delenv("PLANTLOG_CACHE")
    assert programs.postgres(state) == started
    assert cache_folder(state.root) == Path("/shared")
    monkeypatch.setenv("PLANTLOG_CACHE", "/other")
    assert cache_folder(state.root) == Path("/other")


def test_deployment_options_are_remembered(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    assert Deployment.load(state) is None
    wanted = Deployment(tmp_path / "plant.toml", True, 5000, 2.0, 21000)
    wanted.save(state)
    assert Deployment.load(state) == wanted
    running = Running("demo", HealthOptions(port=9000), ("writer",))
    running.save(state)
    assert Running.load(state) == running


def test_up_without_config_uses_the_last_one(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    first = deployment_for(state, UpOptions())
    assert (first.config.parts[-2:], first.simulator, first.generated) == (("example", "plant.toml"), True, False)
    mine = deployment_for(state, UpOptions(config=tmp_path / "mine.toml"))
    assert (mine.config, mine.simulator) == (tmp_path / "mine.toml", False)
    mine.save(state)
    assert deployment_for(state, UpOptions()) == mine
    assert deployment_for(state, UpOptions(simulator=True)).simulator
    load = deployment_for(state, UpOptions(channels=20_000, hz=0.5, port=21000))
    assert (load.config, load.simulator, load.generated) == (state.plant / "plant.toml", True, True)
    load.save(state)
    assert deployment_for(state, UpOptions(channels=10)).port == 21000
    assert deployment_for(state, UpOptions(port=22000)).channels is None


def test_up_says_where_to_change_a_generated_plant(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    options, console = UpOptions(port=free_ports(13)), Console(record=True, file=io.StringIO(), width=500)
    deployment = deployment_for(state, options)
    _check_config(deployment, state, options, Step(console, "check configuration"))
    with deployment.config.open("a") as file:
        file.write('[backup]\nrepository = "/mnt/backup"\n')
    plant, _ = _check_config(deployment, state, options, Step(console, "check configuration"))
    assert plant.backup.repository is None
    assert console.export_text().count("to change it, use a copy and --config") == 2


def test_check_without_config_uses_the_last_one(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('[plant]\nname = "mine"\n')
    Deployment(mine, False).save(claimed(tmp_path / "state"))
    checked = run(tmp_path / "state", "config", "check")
    assert (checked.code, checked.err.partition(":")[0]) == (1, str(mine)), checked.out


@pytest.mark.parametrize(
    "asked",
    [UpOptions(config=Path("x.toml"), channels=1), UpOptions(config=Path("x.toml"), port=2000), UpOptions(hz=2.0)],
)
def test_contradicting_options_are_refused(tmp_path: Path, asked: UpOptions) -> None:
    with pytest.raises(OperationError):
        deployment_for(State(tmp_path), asked)


def test_taken_ports_are_named_with_owner_and_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        a, b = one.getsockname()[1], other.getsockname()[1]
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            free = probe.getsockname()[1]
        wanted = [PortRequirement("127.0.0.1", port, "writer", f"change {port}") for port in (a, free, b)]
        with pytest.raises(OperationError) as error:
            ports.check(wanted)
    assert str(error.value).splitlines() == [
        f"writer: port {port} on 127.0.0.1 is in use by {psutil.Process().name()} "
        f"(process {os.getpid()}): change {port}{port_advice(port)}"
        for port in (a, b)
    ]


def test_port_of_an_outgoing_connection_is_in_use_though_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        port = client.getsockname()[1]
        with pytest.raises(OperationError) as error:
            ports.check([PortRequirement("127.0.0.1", port, "writer", "change it")], {os.getpid()})
    advice = "Outgoing connections use ports from 32,768: choose one below"
    assert str(error.value) == f"writer: port {port} on 127.0.0.1 is in use: change it. {advice}"


def test_nothing_is_deleted_unless_somebody_says_so(tmp_path: Path) -> None:
    state = claimed(tmp_path / "state")
    asked = run(state.root, "down", "--wipe")
    said = "plantlog: nothing was deleted: there is no terminal to ask for confirmation; use --yes\n"
    assert (asked.code, asked.err, state.root.exists()) == (3, said, True)


def test_two_processes_with_one_port_are_named(tmp_path: Path) -> None:
    config = tmp_path / "plant.toml"
    source = '[[source]]\nname = "edge"\nkind = "push"\ntoken_file = "t"\nunknown = "create"\n'
    config.write_text(f'[plant]\nname = "mine"\n[viewer]\nport = 8186\n[push]\nhost = "127.0.0.1"\n{source}')
    token_file.write(tmp_path / "t", "token-of-edge-gateway")
    checked = run(tmp_path / "state", "config", "check", config)
    option = f"choose another port in [viewer] of {config}, or use up --port for the simulated plant"
    assert (checked.code, checked.err) == (1, f"plantlog: viewer: port 8186 is that of collector-push, too: {option}\n")


def test_port_of_a_running_process_is_refused_for_another(tmp_path: Path) -> None:
    wanted = {name: [PortRequirement("127.0.0.1", 8186, name, f"change {name}")] for name in ("writer", "viewer")}
    with pytest.raises(OperationError, match=re.escape("viewer: port 8186 is that of writer, too: change viewer")):
        check_ports(wanted, {"writer": None, "viewer": None}, claimed(tmp_path))


def test_logs_of_an_unknown_process_are_refused(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    with pytest.raises(OperationError, match="run `plantlog up`"):
        tail_command(state, None, False, 10)
    (state.log / "writer.log").touch()
    assert tail_command(state, "writer", True, 7)[:4] == ["tail", "-n", "7", "-F"]
    with pytest.raises(OperationError, match="no log of process wirter; known: writer"):
        tail_command(state, "wirter", False, 10)


def test_a_database_that_was_lost_comes_back_on_the_port_of_its_logins(tmp_path: Path) -> None:
    state = State(tmp_path)
    state.dsn_file("owner").parent.mkdir()
    state.dsn_file("owner").write_text("postgresql://o:p@127.0.0.1:12345/plantlog\n")
    assert Cluster(tmp_path, Binaries(tmp_path)).port == 12345
    assert (tmp_path / "postgres" / "port").read_text() == "12345"


def test_no_database_is_accepted_before_one_was_written_to(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    state.spool.mkdir(exist_ok=True)
    with pytest.raises(OperationError, match="has not written to any database yet"):
        accept(state)
    CommitMark(state.spool).begin("1/00000002", None)
    accept(state)
    assert (state.spool / ACCEPT).exists()


def test_half_written_files_are_never_read(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    (state.run / "deployment.json.partial").write_text(json.dumps({})[:1])
    assert Deployment.load(state) is None


def test_reserved_port_stays_reserved_while_unused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    kept = tmp_path / "state" / "port"
    port = ports.reserve(kept)
    assert kept.read_text() == str(port)
    monkeypatch.setattr(ports, "FREE_RANGE", range(port, port + 2))
    for number in range(20):
        assert ports.free_ports(1) != port, number
    assert ports.reserve(kept, port) == port
    kept.unlink()  # the state folder is gone: its port is anybody's
    monkeypatch.setattr(ports, "FREE_RANGE", range(port, port + 1))
    assert ports.free_ports(1) == port
    other = ports.reserve(tmp_path / "other" / "port")
    assert [path.name for path in tmp_path.glob("plantlog-ports-*/*")] == [str(other)], (
        "what is not reserved is removed"
    )


def test_concurrent_starts_get_different_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    first = ports.free_ports(40)
    monkeypatch.setattr(ports, "FREE_RANGE", range(first, first + 40))  # without reservations they would meet
    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(lambda number: ports.reserve(tmp_path / str(number) / "port"), range(24)))
    assert len(set(got)) == 24


def test_rename_without_a_database_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = claimed(tmp_path)
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path))
    with pytest.raises(OperationError, match="has no database yet: run `plantlog up`"):
        rename("a", "b", Console())
    state.dsn_file("owner").parent.mkdir(exist_ok=True)
    state.dsn_file("owner").write_text("postgresql://plantlog_owner:x@127.0.0.1:1/plantlog")
    with pytest.raises(DatabaseError, match="the database does not respond: "):
        rename("a", "b", Console())


@pytest.mark.parametrize("arguments", [(), ("list",), ("verify",), ("rehearse",), ("take-over",)])
def test_backup_of_another_server_names_the_tools_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    state = claimed(tmp_path)
    assert "has no database yet" in run(state.root, "admin", "backup", *arguments).err
    monkeypatch.setenv("PLANTLOG_DSN", "postgresql://u:p@127.0.0.1/d")
    provide(state, print)
    monkeypatch.delenv("PLANTLOG_DSN")
    result = run(state.root, "admin", "backup", *arguments)
    assert result.code == 1
    assert result.err == (
        "plantlog: plantlog backs up only its own server, and PLANTLOG_DSN names another one: use the tools of the "
        "database's machine (docs/backup.md)\n"
    )


@pytest.mark.parametrize("command", ["check", "up"])
def test_backup_of_another_server_is_no_legal_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    config = tmp_path / "plant.toml"
    secret = tmp_path / "passphrase"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    config.write_text(
        '[plant]\nname = "p"\n[backup]\nrepository = "/mnt/backup"\npassphrase_file = "passphrase"\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1502"\ntags = "tags.csv"\n'
    )
    arguments = ("config", "check", config) if command == "check" else ("up", "--config", config)
    if command == "check":
        assert run(tmp_path / "state", *arguments).code == 0
    monkeypatch.setenv("PLANTLOG_DSN", "postgresql://u:p@127.0.0.1:1/d")
    result = run(tmp_path / "state", *arguments)
    assert result.code == 1
    assert (
        f"{config}: [backup] repository: found '/mnt/backup'; legal: no [backup]. plantlog backs up only its own server"
    ) in result.err


async def test_down_says_who_writes_what_the_spools_have(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    await spooled(state.spool, batch([(1, i, 1.0, 0) for i in range(5)]))
    step = Step(Console(), "drain spools")
    left = f"5 rows left in {state.spool}; "
    assert _drain(state, False, step) == f"{left}the next `up` will write them"
    write_member(state.spool, 1)
    assert _drain(state, False, step) == (
        f"{left}the other member of the pair writes what it has, too, and the next `up` the rest"
    )
