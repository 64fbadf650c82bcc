"""A database that is not the appliance's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.database import addresses
from core.errors import OperationError
from core.paths import State
from ops.appliance.database import provide, psql_command
from ops.backup.pgbackrest import environment
from ops.postgres.binaries import Binaries
from ops.postgres.bootstrap import maintenance_dsn
from ops.postgres.cluster import Cluster
from tests.unit.ops.test_ops_state import claimed


def test_external_database_is_remembered_with_own_logins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = claimed(tmp_path)
    monkeypatch.setenv("PLANTLOG_UNVERIFIED_DATABASE", "db.example")
    monkeypatch.setenv("PLANTLOG_DSN", "postgresql://boss:s%2Fx@db.example:5433/plant?sslmode=require")
    used = provide(state, lambda line: None)
    assert used.where == "db.example:5433/plant"
    reader = used.state.dsn("reader")
    assert reader.startswith("postgresql://plantlog_reader:")
    assert reader.endswith("@db.example:5433/plant?sslmode=require")
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in (state.root / "secrets").iterdir())
    monkeypatch.delenv("PLANTLOG_DSN")
    monkeypatch.delenv("PLANTLOG_UNVERIFIED_DATABASE")
    said: list[str] = []
    again = provide(state, said.append)
    assert said == ["the connection to the database at db.example is not verified: its DSN lacks verify-full"]
    assert (again.state.dsn("reader"), again.state.dsn("owner")) == (reader, used.state.dsn("owner"))
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PLANTLOG_CACHE", str(tmp_path / "none"))
    try:
        command, environment = psql_command(state)
    except OperationError as error:  # a machine without any psql
        assert "postgresql-client" in str(error)
    else:
        assert command[-1] == "postgresql://plantlog_reader@db.example:5433/plant?sslmode=require"
        assert environment["PGPASSWORD"] in reader
        monkeypatch.setenv("PAGER", "sh")
        monkeypatch.setenv("PGSSLKEY", "engine:evil")
        command, environment = psql_command(state, ["SELECT 1"])
        assert command[-3:] == ["--no-psqlrc", "--pset=pager=off", "--command=SELECT 1"]
        assert environment.keys() <= {"PATH", "LANG", "LC_ALL", "TERM", "PGPASSWORD", "PGAPPNAME"}


@pytest.mark.parametrize("dsn", ["plant", "mysql://u:p@h/d", "postgresql://u:p@h", "postgresql:u:p@h/d"])
def test_invalid_dsn_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", dsn)
    with pytest.raises(OperationError, match="PLANTLOG_DSN is invalid"):
        provide(claimed(tmp_path), lambda line: None)


@pytest.mark.parametrize("query", ["", "?target_session_attrs=read-write", "?target_session_attrs=primary"])
def test_of_several_hosts_the_primary_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    monkeypatch.setenv("PLANTLOG_UNVERIFIED_DATABASE", "db1")
    monkeypatch.setenv("PLANTLOG_DSN", f"postgresql://boss:s%2Fx@db1:5433,[::1]/plant{query}")
    used = provide(claimed(tmp_path), lambda line: None)
    assert used.where == "db1:5433,[::1]/plant"
    for role in ("owner", "ingest", "reader", "maintenance"):
        assert used.state.dsn(role).endswith("@db1:5433,[::1]/plant?target_session_attrs=primary")
    assert addresses(used.state.dsn("owner")) == [
        "postgresql://boss:s%2Fx@db1:5433/plant?target_session_attrs=primary",
        "postgresql://boss:s%2Fx@[::1]/plant?target_session_attrs=primary",
    ]


@pytest.mark.parametrize(
    ("dsn", "reason"),
    [
        ("postgresql://u:p@h1,h2/d?target_session_attrs=any", "target_session_attrs=any: plantlog needs the primary"),
        ("postgresql://u:p@h1/d?target_session_attrs=standby", "legal: read-write, primary"),
        ("postgresql://u:p@/d?host=h1,h2", "several hosts stand before the path: //user:password@host1,host2/database"),
    ],
)
def test_a_dsn_that_does_not_ask_for_the_primary_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dsn: str, reason: str
) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", dsn)
    with pytest.raises(OperationError, match=reason):
        provide(claimed(tmp_path), lambda line: None)


@pytest.mark.parametrize(
    ("rest", "hosts"),
    [
        ("db.example/d", "db.example"),
        ("db.example/d?sslmode=require", "db.example"),
        ("db.example/d?sslmode=verify-ca", "db.example"),
        ("127.0.0.1,db2:5433/d", "db2"),
        ("192.0.2.1,192.0.2.2/d", "192.0.2.1,192.0.2.2"),
        ("/d?host=db.example", "db.example"),
    ],
)
def test_database_on_another_host_is_refused_unless_verified_or_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str, hosts: str
) -> None:
    state = claimed(tmp_path)
    monkeypatch.setenv("PLANTLOG_DSN", f"postgresql://u:p@{rest}")
    for told in ("", "1", "yes", "other.example"):
        monkeypatch.setenv("PLANTLOG_UNVERIFIED_DATABASE", told)
        with pytest.raises(OperationError, match=f"=verify-full&sslrootcert=.* PLANTLOG_UNVERIFIED_DATABASE={hosts} "):
            provide(state, print)
        assert not state.dsn_file("owner").exists()
    monkeypatch.setenv("PLANTLOG_UNVERIFIED_DATABASE", hosts.upper())
    provide(state, print)
    assert state.dsn_file("owner").exists()


def test_options_of_a_dsn_hold_for_the_servers_other_database() -> None:
    verified = "?sslmode=verify-full&sslrootcert=/run/secrets/tls_ca"
    assert maintenance_dsn(f"postgresql://u:p@db:5432/d{verified}") == f"postgresql://u:p@db:5432/postgres{verified}"


def test_backups_verify_the_database_as_its_dsn_says(tmp_path: Path) -> None:
    state = claimed(tmp_path)
    state.dsn_file("owner").parent.mkdir()
    state.dsn_file("owner").write_text(
        "postgresql://u:p@db:5432/d?sslmode=verify-full&sslrootcert=/run/secrets/tls_ca\n"
    )
    found = environment(state)
    assert [found[name] for name in ("PGHOST", "PGSSLMODE", "PGSSLROOTCERT")] == [
        *("db", "verify-full", "/run/secrets/tls_ca")
    ]


def test_restored_server_on_loopback_is_reached_without_the_options_of_the_other(tmp_path: Path) -> None:
    state = State(tmp_path)
    cluster = Cluster(tmp_path, Binaries(tmp_path))
    state.dsn_file("owner").parent.mkdir()
    state.dsn_file("owner").write_text("postgresql://o:p@database:5432/plantlog?sslmode=verify-full&sslrootcert=/ca\n")
    cluster.move()
    assert state.dsn("owner") == f"postgresql://o:p@127.0.0.1:{cluster.port}/plantlog"


def test_database_with_verify_full_needs_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dsn = "postgresql://u:p@db.example/d?sslmode=verify-full&sslrootcert="
    state, file = claimed(tmp_path / "state"), tmp_path / "ca.crt"
    for root in ("ca.crt", str(file)):
        monkeypatch.setenv("PLANTLOG_DSN", dsn + root)
        with pytest.raises(OperationError, match=r"sslrootcert: found .*ca\.crt; legal: the absolute path"):
            provide(state, print)
    file.touch()
    provide(state, print)


@pytest.mark.parametrize("rest", ["localhost/d", "127.0.0.1:5433,[::1]/d", "/d?host=/run/postgresql", "%2Frun%2Fx/d"])
def test_database_of_this_machine_needs_no_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.setenv("PLANTLOG_DSN", f"postgresql://u:p@{rest}")
    provide(claimed(tmp_path), print)


def test_external_database_beside_a_private_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = claimed(tmp_path)
    (state.root / "postgres" / "cluster").mkdir(parents=True)
    monkeypatch.setenv("PLANTLOG_DSN", "postgresql://u:p@h/d")
    with pytest.raises(OperationError, match="has its own database"):
        provide(state, lambda line: None)
