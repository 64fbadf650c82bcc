"""The plan of a changed configuration: what it names, when it is stale, and names that were exchanged."""

from __future__ import annotations

import asyncio
import io
import socket
from pathlib import Path

import pytest
from rich.console import Console

from core.config import snapshot, token_file
from core.config.load import load, load_with_digests
from core.config.model import Plant as Model
from core.errors import NotConfirmed, OperationError
from core.paths import State
from core.terminal import confirm
from ops.appliance import programs
from ops.appliance.plan import Plan, make_plan
from ops.appliance.supervisor import render
from ops.appliance.up import print_summary
from ops.deployment import Deployment
from ops.postgres.archive import ArchiveSettings
from ops.postgres.cluster import ARCHIVE_FILE
from ops.registration.redefined_tags import TagDecisions
from ops.registration.register import Registration, register
from ops.registration.rename import rename, rename_channel
from tests.certificates import make, pem
from tests.database import Database, rows

_CONFIGURATION = """[plant]
name = "p"
[[source]]
name = "plc"
kind = "modbus"
address = "tcp://127.0.0.1:1502"
tags = "plc.csv"
[[source]]
name = "other"
kind = "modbus"
address = "tcp://127.0.0.1:1503"
tags = "other.csv"
"""
_UNDECIDED = TagDecisions()
_PLC = "name,address,unit,hi\na,holding:0,K,\nb,holding:1,,\nc,holding:2,,\nd,holding:3,,\n"
_OTHER = "name,address\nx,holding:0\n"


class Plant:
    """A plant whose first configuration is in force."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.state = State(folder / "state")
        self.state.claim()
        for role in ("owner", "ingest", "reader", "maintenance"):
            self.state.dsn_file(role).parent.mkdir(exist_ok=True)
            self.state.dsn_file(role).write_text(database.owner_dsn)
        self.state.external_database_marker.touch()
        self.deployment = Deployment(folder / "plant.toml", simulator=False)
        self.write(_CONFIGURATION, _PLC, _OTHER)
        self.ids: dict[str, dict[str, int]] = {}

    def write(self, configuration: str, plc: str, other: str = _OTHER) -> None:
        folder = self.deployment.config.parent
        for name, text in (("plant.toml", configuration), ("plc.csv", plc), ("other.csv", other)):
            (folder / name).write_text(text)

    def read(self) -> tuple[Model, dict[str, str]]:
        return load_with_digests(self.deployment.config)

    async def up(self, plan: Plan | None = None, decisions: TagDecisions = _UNDECIDED) -> Registration:
        plant, digests = self.read()
        expected = None if plan is None else plan.difference
        done = await register(plant, self.database.owner_dsn, self.state, None, decisions, expected)
        snapshot.save(self.state.root, self.deployment.config, digests, plant, done.versions)
        own_database = not self.state.has_external_database
        wanted = programs.all_programs(self.deployment, plant, self.state, own_database=own_database)
        (self.state.run / "supervisord.conf").write_text(render(self.state, wanted))
        return done

    async def plan(self, decisions: TagDecisions = _UNDECIDED) -> Plan:
        return await make_plan(self.deployment, *self.read(), self.state, decisions)


@pytest.fixture
async def site(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plant:
    # Nothing is started here: the processes count as those of this checkout.
    monkeypatch.setattr("ops.appliance.supervisor.Supervisor.is_own", lambda self: True)
    plant = Plant(database, tmp_path)
    await plant.up()
    return plant


_DATABASE = (
    "SELECT c.id, c.name, c.source_id, c.address, c.unit, c.range_hi, c.retired_at IS NOT NULL AS retired"
    " FROM plant.channel AS c ORDER BY c.id"
)


async def test_unchanged_files_have_an_empty_plan(site: Plant) -> None:
    assert not await site.plan()
    site.write(f"# the same\n{_CONFIGURATION}", _PLC)
    assert not await site.plan()


async def test_plan_masks_secrets_in_urls(site: Plant) -> None:
    site.write(_CONFIGURATION + '[notify]\nwebhook = "https://u:geheim@h:8/a?key=SECRET1"\n', _PLC)
    plan = await site.plan()
    assert '[notify] webhook: none → "https://***@h:8/a?***"' in plan.lines()
    assert plan.to_json()["options"]["[notify] webhook"] == [None, "https://***@h:8/a?***"]
    await site.up(plan)
    site.write(_CONFIGURATION + '[notify]\nwebhook = "https://h/a?key=SECRET2"\n', _PLC)
    assert list((await site.plan()).lines()) == ['[notify] webhook: "https://***@h:8/a?***" → "https://h/a?***"']


async def test_plan_prints_options_as_they_are_written(site: Plant) -> None:
    default, fast = '[retention.default]\nraw = "90d"\n', '[retention.fast]\nraw = "7d"\nminute = "forever"\n'
    budget = '[storage]\ndisk_budget = "200 GiB"\n'
    site.write(f'{_CONFIGURATION}poll_interval = "500ms"\n{budget}{default}{fast}', _PLC)
    plan = await site.plan()
    assert [line for line in plan.lines() if line.startswith("[")] == [
        '[retention] default raw: "forever" → "90d"',
        '[retention] fast raw: none → "7d"',
        '[source] other poll_interval: "1s" → "500ms"',
        '[storage] disk_budget: none → "200 GiB"',
    ]
    assert plan.to_json()["options"]["[retention] default raw"] == [None, 7776000.0]


async def test_plan_names_every_change_and_changes_nothing(site: Plant) -> None:
    before = await rows(site.database, _DATABASE)
    site.write(
        _CONFIGURATION.replace("1503", "1504") + "[writer]\nconnections = 3\n",
        "name,address,unit,hi\na,holding:0,K,9\nbb,holding:1,,\ne,holding:7,,\n",
        "name,address\nx,holding:0\nc,holding:2\n",
    )
    plan = await site.plan(TagDecisions(same_quantity=("c",)))
    assert list(plan.lines()) == [
        "source other: changed (address tcp://127.0.0.1:1503 → tcp://127.0.0.1:1504)",
        "~ c: source plc → other (the same quantity)",
        "+ bb: added to plc (reads what b read)",
        "+ e: added to plc",
        "- b: retired from plc",
        "- d: retired from plc",
        "~ a: hi none → 9",
        "[writer] connections: 2 → 3",
    ]
    assert list(plan.effects()) == [
        "restarts: writer",
        "connects again: other",
        "1 added channel may be a renamed one: `plantlog config rename b bb` before this keeps the history",
    ]
    assert not plan.tags_only
    assert plan.counts() == {"added": 2, "retired": 2, "moved": 1, "changed": 1, "sources": 1, "options": 1}
    assert plan.to_json()["sources"]["plc"]["changed"] == {"a": {"hi": [None, 9.0]}}
    assert await rows(site.database, _DATABASE) == before
    await site.up(plan, TagDecisions(same_quantity=("c",)))
    assert not await site.plan()


async def test_plan_names_the_default_that_an_option_goes_back_to(site: Plant) -> None:
    other = "name,address,type,word_order,unit_id,alarm_bad\nx,holding:0,float32,{}\n"
    site.write(_CONFIGURATION, _PLC, other.format("CDAB,7,true"))
    await site.up(decisions=TagDecisions(same_quantity=("*",)))
    site.write(_CONFIGURATION, _PLC, other.format(",,"))
    (line,) = (await site.plan(TagDecisions(same_quantity=("*",)))).lines()
    assert line == (
        "~ x: alarm_bad True → False (default), unit_id 7 → 1 (default), word_order CDAB → ABCD (default) "
        "(the same quantity)"
    )


async def test_tags_restart_nothing(site: Plant) -> None:
    site.write(_CONFIGURATION, _PLC + "e,holding:9,,\n")
    plan = await site.plan()
    assert list(plan.effects()) == ["restarts: nothing; living connections follow the change"]
    assert plan.tags_only
    site.write(f"{_CONFIGURATION}poll_interval = '2s'\n", _PLC + "e,holding:9,,\n")
    plan = await site.plan()
    assert list(plan.effects()) == ["restarts: nothing; living connections follow the change"]
    assert not plan.tags_only, "an option of a source"


def test_summary_prints_addresses_that_clients_can_use(tmp_path: Path) -> None:
    token_file.write(tmp_path / "token", "token-of-a-gateway")
    servers = '[plant]\nname = "p"\n[health]\nhost = "::1"\n[push]\nhost = "0.0.0.0"\n[viewer]\nhost = "::"\n'
    push = '[[source]]\nname = "g"\nkind = "push"\ntoken_file = "token"\nunknown = "create"\n'
    for tls, name in (
        ("", socket.gethostname()),
        ('[tls]\nnames = ["historian.example.org"]\n', "historian.example.org"),
    ):
        config = tmp_path / "plant.toml"
        config.write_text(servers + tls + push)
        shown = Console(file=io.StringIO())
        print_summary(Deployment(config, False), load(config), "", State(tmp_path), shown, database_is_away=False)
        text = shown.file.getvalue()  # type: ignore[attr-defined]
        assert f"https://{name}:8186/api/v2/write" in text
        assert f"https://{name}:9110/" in text
        assert "http://[::1]:9103/health" in text


async def test_maintenance_restarts_with_another_certificate_which_it_reports(site: Plant) -> None:
    https = _CONFIGURATION + '[viewer]\nhost = "0.0.0.0"\n'
    site.write(https, _PLC)
    restarts, closed = (await site.plan()).effects()
    assert restarts == "restarts: maintenance, viewer"
    assert "the dashboards are closed until `plantlog user add" in closed
    await site.up()
    folder = site.deployment.config.parent
    certificate, key = make(folder / "pki")
    site.write(f'{https}[tls]\ncertificate_file = "{pem(certificate)}"\nkey_file = "{key}"\n', _PLC)
    assert "restarts: maintenance, viewer" in (await site.plan()).effects()
    await site.up()
    site.write(site.deployment.config.read_text().replace("0.0.0.0", "127.0.0.1"), _PLC)
    assert "restarts: maintenance, viewer" in (await site.plan()).effects()


async def test_plan_names_what_backups_need(site: Plant) -> None:
    """PostgreSQL restarts to archive, once."""
    site.state.external_database_marker.unlink()
    folder = site.deployment.config.parent
    await site.up()
    secret = folder / "passphrase"
    secret.write_text("0123456789abcdef0123456789abcdef")
    secret.chmod(0o600)
    backup = f'[backup]\nrepository = "{folder}/backup"\npassphrase_file = "{secret}"\n'
    site.write(_CONFIGURATION + backup, _PLC)
    assert list((await site.plan()).effects()) == ["restarts: postgres"]
    ArchiveSettings(f"{folder}/backup", "", 30, 1, archiving=True).save(site.state.root / "postgres" / ARCHIVE_FILE)
    await site.up()
    assert not await site.plan()
    site.write(_CONFIGURATION, _PLC)
    assert "restarts: postgres" in (await site.plan()).effects()


async def test_stale_plan_is_refused(site: Plant) -> None:
    edited = _PLC + "e,holding:9,,\n"
    site.write(_CONFIGURATION, edited)
    plan = await site.plan()
    plan.check(site.state, site.read()[1])
    site.write(_CONFIGURATION, edited + "f,holding:10,,\n")
    with pytest.raises(OperationError, match=r"plan is stale: .*plc\.csv was changed since it was shown"):
        plan.check(site.state, site.read()[1])
    before = await rows(site.database, _DATABASE)
    with pytest.raises(OperationError, match="plan is stale: sources or channels in the database were changed"):
        await site.up(plan)
    assert await rows(site.database, _DATABASE) == before
    site.write(_CONFIGURATION, edited)
    await site.up()  # somebody else
    with pytest.raises(OperationError, match="another configuration was applied since it was shown"):
        plan.check(site.state, site.read()[1])
    with pytest.raises(OperationError, match="plan is stale"):
        await site.up(plan)
    site.write(_CONFIGURATION, edited + "f,holding:10,,\n")
    plan = await site.plan()
    await rename_channel(site.database.owner_dsn, site.state, "b", "bb")
    with pytest.raises(OperationError, match=r"plan is stale: .*Nothing was applied"):
        await site.up(plan)


async def test_exchanged_names_are_recognised_and_need_a_decision(site: Plant) -> None:
    ids = {row[1]: row[0] for row in await rows(site.database, _DATABASE)}
    crosswise = _PLC.replace("b,holding:1", "c,holding:1").replace("c,holding:2", "b,holding:2")
    site.write(_CONFIGURATION, crosswise)
    before = await rows(site.database, _DATABASE)
    plan = await site.plan()
    assert plan.difference.redefinitions.undecided == ("c", "b")
    with pytest.raises(OperationError, match=r"b and c have exchanged their addresses.*rename b c --exchange"):
        await site.up()
    assert await rows(site.database, _DATABASE) == before
    await rename_channel(site.database.owner_dsn, site.state, "b", "c", exchange=True)
    done = await site.up()
    assert list(done.difference.lines()) == []
    now = done.registry.channels["plc"]
    assert (now["b"], now["c"]) == (ids["c"], ids["b"]), "each keeps its address and history"
    named = await rows(
        site.database,
        "SELECT v.channel_id, v.name, v.address FROM plant.channel_version AS v"
        " WHERE v.valid_to = 'infinity' AND v.name IN ('b', 'c') ORDER BY v.channel_id",
    )
    assert named == [(ids["b"], "c", "holding:1"), (ids["c"], "b", "holding:2")]


async def test_rename_asks_only_for_what_is_to_be_done(site: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(site.state.root))
    site.deployment.save(site.state)
    place = site.deployment.config.parent / "plc.csv"

    async def next_step(old: str, new: str, *, exchange: bool = False) -> str:
        console = Console(file=io.StringIO(), width=1000)
        await asyncio.to_thread(rename, old, new, console, exchange=exchange)
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().partition("Next: ")[2]

    assert await next_step("b", "bb") == f"change b to bb in {place}:3, then run `plantlog up`.\n"
    assert await next_step("bb", "b") == f"{place}:3 has the new name already: run `plantlog up`.\n"
    told = "run `plantlog up` with a tag list in which each has its new name.\n"
    assert await next_step("b", "c", exchange=True) == told


async def test_names_are_exchanged_only_of_own_channels(site: Plant) -> None:
    with pytest.raises(OperationError, match="there is no channel nothing"):
        await rename_channel(site.database.owner_dsn, site.state, "b", "nothing", exchange=True)
    with pytest.raises(OperationError, match="already has the name c"):
        await rename_channel(site.database.owner_dsn, site.state, "b", "c")


def test_plan_needs_a_confirmation() -> None:
    confirm(lambda: True, lambda: True)
    with pytest.raises(NotConfirmed, match="no terminal to ask for confirmation; use --yes"):
        confirm(lambda: False, lambda: True)
    with pytest.raises(NotConfirmed, match="nothing was applied"):
        confirm(lambda: True, lambda: False)
