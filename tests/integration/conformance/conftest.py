"""A plant on the server that is given (PLANTLOG_TEST_DSN, PLANTLOG_CACHE), whichever edition it has.

Days are UTC whatever a session's time zone is: here it has daylight saving time.

Every test that asks for ``plant`` runs with the form of compression that the edition takes by itself and, where that is
another one, with ``packed``, which both have.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.database import Database
from tests.integration.conformance.plant import CHANNELS, ZONE, ConformancePlant, set_time_zone

# Needs a Debian server and a Community one: there is nothing to collect where the second is not given.
collect_ignore = [] if os.environ.get("PLANTLOG_COMMUNITY_CACHE") else ["test_moving.py"]

_REGISTER = """
INSERT INTO plant.source (id, name, kind, address) OVERRIDING SYSTEM VALUE VALUES (1, 'gateway', 'push', '');
INSERT INTO plant.channel (id, name, source_id, address, kind, unit) OVERRIDING SYSTEM VALUE
SELECT i, 'gateway/c' || i, 1, '', 'analog', 'bar' FROM generate_series(1, {}) AS i
"""


@pytest.fixture(params=["default", "packed"])
async def plant(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[ConformancePlant]:
    await set_time_zone(database, ZONE)
    owner = await asyncpg.connect(database.owner_dsn)
    await owner.execute(_REGISTER.format(CHANNELS))
    edition = await owner.fetchval("SELECT value FROM plant.setting WHERE key = 'edition'")
    plant = ConformancePlant(database, owner, edition)
    if request.param == "packed":
        if edition == "apache":
            await owner.close()
            pytest.skip("packed is what this edition takes by itself")
        await plant.set_compression("packed")
    yield plant
    await owner.close()
