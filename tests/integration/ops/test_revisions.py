"""Applied configurations are kept in the database: who and when, contents, differences, and the way back."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import pwd
import stat
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from core.config import snapshot
from core.config.load import load_with_digests
from core.errors import DatabaseError, NotConfirmed, OperationError
from ops.appliance.registration_record import register_plant
from ops.appliance.steps import Step
from ops.cli.config import app
from ops.deployment import Deployment
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import register
from ops.registration.rename import rename_channel
from ops.registration.revisions import Files, find, revisions
from tests.database import Database, connected, rows
from tests.states import claimed

_CONFIGURATION = """[plant]
name = "{name}"
[[source]]
name = "{name}-plc"
kind = "modbus"
address = "tcp://127.0.0.1:1502"
tags = "tags/plc.csv"
"""
_TAGS = "name,address,unit\na,holding:0,K\nb,holding:1,\n"


class Plant:
    """A state folder, and the configuration files of its plant."""

    def __init__(self, database: Database, folder: Path, name: str = "p") -> None:
        self.state = claimed(folder / "state", owner=database.owner_dsn)
        self.config = folder / "plant.toml"
        self.tags = folder / "tags" / "plc.csv"
        self.tags.parent.mkdir()
        self.config.write_text(_CONFIGURATION.format(name=name))
        self.tags.write_text(_TAGS)
        self.dsn = database.owner_dsn

    def up(self, *same_quantity: str, new_channel: tuple[str, ...] = ()) -> None:
        """Register the files and put them in force."""
        deployment, step = Deployment(self.config, simulator=False), Step(Console(file=io.StringIO()), "register")
        decisions = TagDecisions(same_quantity, new_channel)
        register_plant(deployment, *load_with_digests(self.config), self.state, None, decisions, step)
        deployment.save(self.state)

    def run(self, *arguments: str) -> Result:
        """``plantlog config`` with these arguments. Raises what it raises."""
        result = CliRunner().invoke(app, arguments, env={"PLANTLOG_STATE": str(self.state.root)})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def log(self) -> Any:
        return json.loads(self.run("log", "--json").stdout)


@pytest.fixture
def plant(database: Database, tmp_path: Path) -> Plant:
    """One whose first configuration is applied."""
    plant = Plant(database, tmp_path)
    plant.up()
    return plant


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_each_applied_configuration_is_kept_with_who_and_when(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant.up()
    assert len(plant.log()) == 1, "nothing was changed"
    monkeypatch.setenv("SUDO_USER", "alice")
    monkeypatch.setattr("sys.argv", ["__main__.py", "apply", "--config", "a plant.toml"])
    plant.tags.write_text(_TAGS.replace("b,holding:1", "c,holding:2").replace("a,holding:0,K", "a,holding:0,°C"))
    plant.up("a")
    second, first = plant.log()
    account = pwd.getpwuid(os.geteuid()).pw_name
    assert (first["number"], first["added"], first["sudo_user"], first["account"]) == (1, 2, None, account)
    assert [second[what] for what in ("number", "added", "moved", "changed", "retired")] == [2, 1, 0, 1, 1]
    assert (second["account"], second["sudo_user"]) == (account, "alice")
    assert second["command"] == "plantlog apply --config 'a plant.toml'"
    assert second["files"] == {"plant.toml": sha256(plant.config), "tags/plc.csv": sha256(plant.tags)}
    current = snapshot.in_force(plant.state.root)
    assert current is not None
    assert sorted(current.digests.values()) == sorted(second["files"].values())
    shown = plant.run("log", "-n", "1").stdout
    assert f"alice as {account}" in shown
    assert "plantlog up" not in shown


def test_a_new_comment_is_a_new_revision(plant: Plant) -> None:
    plant.config.write_text(f"# same\n{plant.config.read_text()}")
    plant.up()
    second, first = plant.log()
    assert [second[what] for what in ("added", "moved", "changed", "retired")] == [0, 0, 0, 0]
    assert second["files"]["tags/plc.csv"] == first["files"]["tags/plc.csv"]


async def test_the_event_has_the_digests_that_the_seal_covers(plant: Plant, database: Database) -> None:
    [(text, detail)] = await rows(database, "SELECT text, detail FROM plant.event WHERE type = 'config_applied'")
    found = json.loads(detail)
    assert text.startswith("revision 1 by ")
    assert (found["installation"], found["revision"], found["file"]) == (1, 1, "plant.toml")
    assert found["files"] == {"plant.toml": sha256(plant.config), "tags/plc.csv": sha256(plant.tags)}


async def test_only_the_owner_reads_contents_and_nobody_changes_them(
    plant: Plant, database: Database, owner: asyncpg.Connection
) -> None:
    assert await rows(database, "SELECT count(*) FROM plant.config_revision") == [(1,)]
    for dsn in (database.reader_dsn, database.ingest_dsn, database.maintenance_dsn):
        async with connected(dsn) as connection:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch("SELECT * FROM plant.config_file")
    for statement in (
        "DELETE FROM plant.config_file",
        "UPDATE plant.config_revision SET account = 'bob'",
        "TRUNCATE plant.config_revision",
    ):
        with pytest.raises(asyncpg.PostgresError, match="is refused: rows are only added"):
            await owner.execute(statement)
    with pytest.raises(asyncpg.CheckViolationError):
        await owner.execute("INSERT INTO plant.config_file VALUES (repeat('0', 64), 'other')")


def test_files_are_shown_as_they_were(plant: Plant) -> None:
    before = plant.config.read_bytes()
    plant.config.write_text(f"# ü\r\n{plant.config.read_text()}", newline="")
    plant.up()
    assert plant.run("show", "1", "plant.toml").stdout_bytes == before
    assert plant.run("show", "2", "plant.toml").stdout_bytes == plant.config.read_bytes()
    listed = plant.run("show", "2").stdout
    assert f"{sha256(plant.config)}  " in listed
    assert "tags/plc.csv" in listed
    assert json.loads(plant.run("show", "2", "--json").stdout)["number"] == 2


def test_what_is_not_kept_is_refused(plant: Plant, tmp_path: Path, database: Database) -> None:
    for command in (("show", "7"), ("diff", "7"), ("diff", "1", "7"), ("revert", "7", "--yes")):
        with pytest.raises(OperationError, match="there is no revision 7; legal: 1 to 1"):
            plant.run(*command)
    with pytest.raises(OperationError, match=r"no file other\.csv; legal: plant\.toml, tags/plc\.csv"):
        plant.run("show", "1", "other.csv")
    (tmp_path / "new").mkdir()
    with pytest.raises(OperationError, match="no configuration is kept yet: run `plantlog up`"):
        Plant(database, tmp_path / "new").run("log")
    plant.state.dsn_file("owner").write_text("postgresql://owner@127.0.0.1:1/plantlog")
    with pytest.raises(DatabaseError, match="the database does not respond"):
        plant.run("log")


async def test_another_content_than_was_applied_is_noticed(plant: Plant, owner: asyncpg.Connection) -> None:
    await owner.execute(
        "SET session_replication_role = replica; ALTER TABLE plant.config_file DROP CONSTRAINT config_file_check;"
        "UPDATE plant.config_file SET content = content || 'x'"
    )
    with pytest.raises(OperationError, match=r"plant\.toml of revision 1 is not what was applied"):
        await asyncio.to_thread(plant.run, "show", "1")


def test_difference_between_revisions_and_to_the_files_now(plant: Plant) -> None:
    assert plant.run("diff", "1").exit_code == 0
    plant.tags.write_text(_TAGS.replace("holding:1", "holding:9"))
    plant.up("b")
    result = plant.run("diff", "1", "2")
    assert result.exit_code == 1
    header = "--- tags/plc.csv\trevision 1\n+++ tags/plc.csv\trevision 2\n"
    assert result.stdout.startswith(header)
    assert "\n-b,holding:1,\n+b,holding:9,\n" in result.stdout
    assert plant.run("diff", "2").exit_code == 0
    # Files as they are, even where `up` would reject them.
    plant.config.write_text(
        f'{plant.config.read_text()}tag = "x"\n[[source]]\nname = "q"\nkind = "modbus"\ntags = "q.csv"\n'
    )
    (plant.config.parent / "q.csv").write_text("name,address\nq,holding:1")
    found = json.loads(plant.run("diff", "2", "--json").stdout)
    assert sorted(found) == ["plant.toml", "q.csv"]
    assert found["q.csv"] == (
        "--- /dev/null\trevision 2\n+++ q.csv\tnow\n@@ -0,0 +1,2 @@\n+name,address\n+q,holding:1\n"
        "\\ No newline at end of file\n"
    )


def test_revert_writes_the_files_of_a_revision(plant: Plant) -> None:
    first = plant.config.read_text(), plant.tags.read_text()
    plant.tags.write_text(f"{_TAGS}c,holding:3,\n")
    plant.up()
    unapplied = f"{plant.config.read_text()}# not applied\n"
    plant.config.write_text(unapplied)
    plant.config.chmod(0o640)
    result = plant.run("revert", "1", "--yes")
    assert (plant.config.read_text(), plant.tags.read_text()) == first
    assert stat.S_IMODE(plant.config.stat().st_mode) == 0o640
    assert "+++ plant.toml\trevision 1" in result.stdout
    assert "-c,holding:3," in result.stdout
    assert result.stdout.endswith("Next: `plantlog config apply`\n")
    [copy] = [path for path in plant.config.parent.rglob("*.until-*") if path.is_file()]
    assert (copy.name.startswith("plant.toml.until-"), copy.read_text()) == (True, unapplied), "the tag list is kept"
    assert len(plant.log()) == 2, "nothing is applied yet"
    plant.up()
    third, _, old = plant.log()
    assert (third["files"], third["retired"]) == (old["files"], 1)
    assert "the files are those of revision 1\n" in plant.run("revert", "1").stdout


def test_revert_whose_apply_is_refused_leaves_the_files(plant: Plant) -> None:
    edited = f"{_TAGS}c,holding:3,\n"
    plant.tags.write_text(edited)
    result = CliRunner().invoke(app, ["revert", "1", "--apply", "--yes"], env={"PLANTLOG_STATE": str(plant.state.root)})
    assert isinstance(result.exception, OperationError), result.exception
    assert "plantlog is not running" in str(result.exception)
    assert plant.tags.read_text() == edited
    assert list(plant.config.parent.rglob("*.until-*")) == [], "a copy of what was not replaced"
    assert result.stderr.startswith("the files are as they were before.")


def test_revert_brings_back_a_file_that_is_gone(plant: Plant) -> None:
    plant.tags.unlink()
    plant.tags.parent.rmdir()
    assert "+++ tags/plc.csv\trevision 1" in plant.run("revert", "1", "--yes").stdout
    assert plant.tags.read_text() == _TAGS


def test_revert_needs_a_confirmation_and_the_files_that_it_showed(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    edited = f"{_TAGS}c,holding:3,\n"
    plant.tags.write_text(edited)
    with pytest.raises(NotConfirmed, match="nothing was written: there is no terminal"):
        plant.run("revert", "1")
    assert plant.tags.read_text() == edited
    monkeypatch.setattr("ops.appliance.revert.confirm", lambda *_: plant.tags.write_text(f"{edited}d,holding:4,\n"))
    with pytest.raises(OperationError, match=r"plc\.csv was changed since it was shown. Nothing was written"):
        plant.run("revert", "1")
    assert plant.tags.read_text().endswith("d,holding:4,\n")
    assert list(plant.config.parent.rglob("*.until-*")) == []


def test_revert_writes_all_files_or_none(plant: Plant) -> None:
    plant.tags.write_text(f"{_TAGS}c,holding:3,\n")
    plant.config.write_text(f"# new\n{plant.config.read_text()}")
    plant.up()
    before = plant.config.read_text()
    plant.tags.unlink()
    plant.tags.parent.rmdir()
    plant.tags.parent.write_text("a file where the folder of the tag lists was")
    with pytest.raises(OperationError, match=r"the files can't be replaced: .*/tags"):
        plant.run("revert", "1", "--yes")
    assert plant.config.read_text() == before


async def test_channels_that_were_renamed_or_redefined_meanwhile_need_a_decision(plant: Plant, tmp_path: Path) -> None:
    await rename_channel(plant.dsn, plant.state, "b", "level")
    plant.tags.write_text(_TAGS.replace("b,", "level,").replace("a,holding:0,K", "a,holding:0,bar"))
    await asyncio.to_thread(plant.up, "a")
    await asyncio.to_thread(plant.run, "revert", "1", "--yes")
    with pytest.raises(OperationError, match=r"(?s)a: unit bar → K.*b: renamed to level"):
        await asyncio.to_thread(plant.up)
    await asyncio.to_thread(plant.up, "a", new_channel=("b",))
    third = find(3, await asyncio.to_thread(revisions, plant.state))
    assert (third.added, third.changed, third.retired) == (1, 1, 1)


def test_files_outside_of_the_folder_are_written_only_where_they_are_read(plant: Plant, tmp_path: Path) -> None:
    nested = tmp_path / "etc" / "plant.toml"
    nested.parent.mkdir()
    nested.write_text(plant.config.read_text().replace("tags/plc.csv", "../tags/plc.csv"))
    plant.config = nested
    plant.up()
    assert sorted(plant.log()[0]["files"]) == ["../tags/plc.csv", "plant.toml"]
    plant.tags.write_text(f"{_TAGS}c,holding:3,\n")
    plant.run("revert", "2", "--yes")
    assert plant.tags.read_text() == _TAGS
    nested.write_text(nested.read_text().replace("../tags/plc.csv", "plc.csv"))
    (nested.parent / "plc.csv").write_text(_TAGS)
    plant.up()
    with pytest.raises(OperationError, match=r"revision 2 has the file \.\./tags/plc\.csv outside of"):
        plant.run("revert", "2", "--yes")


def test_a_file_that_changes_while_it_is_applied_is_noticed(plant: Plant) -> None:
    plant.tags.write_text(f"{_TAGS}c,holding:3,\n")
    read = load_with_digests(plant.config)
    plant.tags.write_text(f"{_TAGS}c,holding:4,\n")
    step = Step(Console(file=io.StringIO()), "register")
    with pytest.raises(OperationError, match=r"plc\.csv was changed since it was read. Nothing was applied"):
        register_plant(Deployment(plant.config, False), *read, plant.state, None, TagDecisions(), step)
    assert len(plant.log()) == 1
    plant.up()
    assert plant.log()[0]["added"] == 1, "it was not registered before"


def test_each_installation_has_its_own_revisions(plant: Plant, database: Database, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Plant(database, tmp_path / "other", "q")
    other.tags.write_text("name,address\nc,holding:0\n")
    other.up()
    assert [revision["number"] for revision in other.log()] == [1]
    assert other.run("show", "1", "tags/plc.csv").stdout == "name,address\nc,holding:0\n"
    plant.tags.write_text(f"{_TAGS}d,holding:3,\n")
    plant.up()
    assert [revision["number"] for revision in plant.log()] == [2, 1]
    assert len(other.log()) == 1


async def test_each_member_of_a_pair_has_its_own_files(plant: Plant, tmp_path: Path) -> None:
    async def up(member: int) -> int | None:
        config = tmp_path / f"{member}" / "plant.toml"
        if not config.parent.exists():
            (config.parent / "tags").mkdir(parents=True)
            (config.parent / "tags" / "plc.csv").write_text(_TAGS)
            config.write_text(f"{plant.config.read_text()}[redundancy]\nmember = {member}\n")
        described, digests = load_with_digests(config)
        done = await register(described, plant.dsn, plant.state, files=Files(config, digests))
        snapshot.save(plant.state.root, config, digests, described)
        return done.revision

    assert [await up(1), await up(2), await up(1), await up(2)] == [2, 3, None, None]
    with pytest.raises(OperationError, match=r"revision 2 is of member 1 of the pair, and .* is member 2"):
        await asyncio.to_thread(plant.run, "revert", "2", "--yes")
