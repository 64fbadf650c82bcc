"""Logins of the installations that share a database."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from core.errors import PlantlogError
from core.paths import State
from ops.appliance.database import Database as Used
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from ops.registration import heartbeat
from ops.registration.installation import installation_id
from ops.registration.register import register
from tests.database import connected
from tests.integration.ops.test_installation import TAGS, state_in
from tests.integration.ops.test_register import plant
from tests.waiting import until

_STORED = (
    "SELECT string_agg(rolpassword, ' ' ORDER BY rolname) FROM pg_authid"
    " WHERE rolname IN ('plantlog_ingest', 'plantlog_reader', 'plantlog_maintenance')"
)


@pytest.mark.slow
def test_each_installation_has_logins_of_its_own(server: str, tmp_path: Path) -> None:
    """Logins are the server's: a second installation, in this or in another database, leaves those of the first."""
    assert server  # it sees to the programs being there

    async def logins(dsn: str) -> None:
        states = [state_in(tmp_path / name) for name in ("first", "second", "elsewhere")]
        databases = [f"{dsn}/{name}" for name in ("north", "north", "south")]
        first, second, elsewhere = (
            _used(state, database, state.root.name) for state, database in zip(states, databases, strict=True)
        )
        for name in ("north", "south"):
            await create_database(f"{dsn}/{name}")
        await first.prepare()
        before = await _fetchval(f"{dsn}/north", _STORED)
        assert "new passwords" not in await second.prepare()
        assert "new passwords" not in await elsewhere.prepare()
        assert "new passwords" not in await first.prepare()
        assert await _fetchval(f"{dsn}/north", _STORED) == before, "those of the first are not altered"
        roles = ("ingest", "reader", "maintenance")
        users = [await _fetchval(state.dsn(role), "SELECT session_user") for state in states for role in roles]
        identities = ["", *(f"_{installation_id(state)!s:.8}" for state in states[1:])]
        assert users == [f"plantlog_{role}{identity}" for identity in identities for role in roles]
        await _execute(f"{dsn}/north", "ALTER ROLE plantlog_ingest PASSWORD 'stolen'")
        assert "new passwords for plantlog_ingest" in await first.prepare(), "its own it restores"

        await register(plant(tmp_path / "p", TAGS), f"{dsn}/north", states[0])
        heir = _used(state_in(tmp_path / "heir"), f"{dsn}/north", "heir")
        async with connected(f"{dsn}/north") as owner:
            await heartbeat.record(owner, states[0])
            lines: list[str] = []
            refused = asyncio.create_task(heir.prepare("demo", lines.append))
            await until(lambda: lines)
            await heartbeat.record(owner, states[0])  # it goes on
            with pytest.raises(PlantlogError, match=r"of plant demo, last seen .* is running, and cannot be taken"):
                await refused
        await _execute(f"{dsn}/north", "UPDATE plant.presence SET seen_at = seen_at - INTERVAL '1 minute'")
        await heir.prepare("demo")
        assert await _fetchval(heir.state.dsn("ingest"), "SELECT session_user") == "plantlog_ingest"
        for role in roles:
            with pytest.raises(asyncpg.InvalidPasswordError):
                await _fetchval(states[0].dsn(role), "SELECT 1")
            assert await _fetchval(states[1].dsn(role), "SELECT 1") == 1

    with Server(tmp_path / "server") as private:
        asyncio.run(logins(private.owner_dsn.rpartition("/")[0]))


def _used(state: State, owner_dsn: str, password: str = "secret") -> Used:
    """A given database, and the DSNs of its logins."""
    (state.root / "secrets").mkdir()
    state.dsn_file("owner").write_text(owner_dsn)
    for role in ("ingest", "reader", "maintenance"):
        state.dsn_file(role).write_text(f"postgresql://plantlog_{role}:{password}@{owner_dsn.rpartition('@')[2]}")
    return Used(state, None)


async def _fetchval(dsn: str, query: str) -> Any:
    async with connected(dsn) as connection:
        return await connection.fetchval(query)


async def _execute(dsn: str, query: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(query)
