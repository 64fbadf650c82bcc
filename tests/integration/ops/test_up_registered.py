"""Actions of ``up`` while the database is away; no other failure is taken for that."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from core.config.load import load, load_with_digests
from core.errors import DatabaseAway, DatabaseError
from core.paths import State
from ops.appliance import programs
from ops.appliance.database import Database as ApplianceDatabase
from ops.appliance.registration_record import register_plant, why_database_is_needed
from ops.appliance.steps import Step
from ops.deployment import Deployment
from ops.registration.redefined_tags import TagDecisions
from tests.database import Database
from tests.states import claimed, store_dsns

_CONFIGURATION = """
[plant]
name = "p"
[[source]]
name = "plc"
kind = "modbus"
address = "tcp://127.0.0.1:1502"
tags = "tags.csv"
"""


@pytest.fixture
def state(database: Database, tmp_path: Path) -> State:
    """A state folder whose configuration, ``plant.toml`` beside it, is registered."""
    state = claimed(tmp_path / "state")
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    config = tmp_path / "plant.toml"
    config.write_text(_CONFIGURATION)
    store_dsns(state, owner=database.owner_dsn)
    register(state)
    return state


def register(state: State) -> None:
    config = state.root.parent / "plant.toml"
    plant, digests = load_with_digests(config)
    step = Step(Console(file=io.StringIO()), "register")
    register_plant(Deployment(config, simulator=False), plant, digests, state, None, TagDecisions(), step)


def reason(state: State, take_over: str | None = None) -> str:
    return why_database_is_needed(state, load(state.root.parent / "plant.toml"), take_over)


def test_unchanged_configuration_needs_no_database(state: State) -> None:
    config = state.root.parent / "plant.toml"
    assert reason(state) == ""
    config.write_text(f"# the same\n{_CONFIGURATION}")
    assert reason(state) == ""
    config.write_text(_CONFIGURATION.replace("1502", "1503"))
    assert reason(state) == "the configuration was changed since the last `up`"
    register(state)
    assert reason(state) == ""
    (config.parent / "tags.csv").write_text("name,address\na,holding:0\nb,holding:1\n")
    assert reason(state) == "the configuration was changed since the last `up`"


def test_what_is_not_registered_needs_the_database(
    state: State, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reason(state, take_over="other") == "an installation is taken over in the database"
    with monkeypatch.context() as patch:
        patch.setattr(programs, "code_digest", lambda: "of another version")
        assert reason(state) == "plantlog was changed since the last `up`"
    store_dsns(state, owner=f"{database.owner_dsn}?application_name=plantlog")
    assert reason(state) == "PLANTLOG_DSN is not that of the last `up`"
    store_dsns(state, owner=database.owner_dsn)
    assert reason(state) == ""
    copied = tmp_path / "copied"
    state.root.rename(copied)
    assert reason(State(copied)) == "the state folder was moved or copied since the last `up`"
    copied.rename(state.root)
    assert reason(state) == ""
    store_dsns(state, owner="postgresql://owner@127.0.0.1:1/plantlog")
    with pytest.raises(OSError, match="Connect call failed"):
        register(state)
    store_dsns(state, owner=database.owner_dsn)
    assert reason(state) == "the last `up` registered no configuration"


async def test_only_a_server_that_does_not_respond_is_away(state: State, database: Database) -> None:
    listening = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    login, _, place = database.owner_dsn.rpartition("@")
    name = place.rpartition("/")[2]

    async def failure(dsn: str) -> type[DatabaseError]:
        store_dsns(state, owner=dsn)
        with pytest.raises(DatabaseError, match=r"database of PLANTLOG_DSN \(") as raised:
            await ApplianceDatabase(state, None).prepare()
        return raised.type

    async with listening:
        assert await failure(f"{login}@127.0.0.1:{port}/{name}") is DatabaseAway, "it hangs up"
        assert await failure(f"{login}@127.0.0.1:1,127.0.0.1:{port}/{name}") is DatabaseAway
    assert await failure(f"{login}@127.0.0.1:{port}/{name}") is DatabaseAway, "it is gone"
    assert await failure(f"{login}@no-such-host.invalid:5432/{name}") is DatabaseAway
    assert await failure(f"{login}@{place}_that_does_not_exist") is DatabaseError
    assert await failure(f"postgresql://postgres:wrong@{place}") is DatabaseError
