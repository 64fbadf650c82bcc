"""The archive in S3-compatible storage, served by versitygw over TLS."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from core.errors import OperationError
from core.timestamps import begin
from history.archive.location import Location, S3Options
from history.archive.manifest import claim
from history.archive_days.day import archive_day, own_installation
from history.notebook.archive import Archive
from tests import repository_servers
from tests.database import Database
from tests.integration.history.archive_site import problems_of
from tests.integration.history.sealed_plant import DAY, SealedPlant, minute
from tests.repository_servers import Peer, running
from tests.sample_tables import HOUR_US, bits
from tests.waiting import PATIENCE

pytestmark = pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing())

NAME = "s3://plantlog/archive"


def options_of(peer: Peer) -> S3Options:
    """Options of a client."""
    backup = peer.options(Path("/dev/null"))
    assert backup.key_file is not None
    assert backup.s3_endpoint is not None
    access_key, secret_key = backup.key_file.read_text().split()
    return S3Options(access_key, secret_key, backup.s3_endpoint, ca_file=str(backup.ca_file))


@pytest.mark.slow
async def test_archive_in_a_bucket(database: Database, tmp_path: Path) -> None:
    peer = repository_servers.s3(tmp_path / "server", tmp_path / "files")
    async with SealedPlant(database, tmp_path / "state", "north") as plant:
        await plant.samples("unit/pressure", minute(0, [40.0 + i / 100 for i in range(120)]))
        await plant.seal()
        with running(peer):
            options = options_of(peer)
            location = Location.at(NAME, options)
            own = await own_installation(plant.owner, plant.state)
            claim(location, has_days=False)
            await archive_day(plant.owner, own, location, DAY, plant.state)
            archive = Archive.open(NAME, s3=options)
            assert problems_of(archive) == []
            assert len(archive.samples(["unit/*"], begin(DAY), begin(DAY, 24))) == 120
            assert location.listing("incoming") == []
            await plant.late("unit/pressure", [(9 * HOUR_US, bits(1.0), 0)])
            await plant.seal()
            assert (await archive_day(plant.owner, own, location, DAY, plant.state)).revision == 1
            assert len(archive.samples(["unit/*"], begin(DAY), begin(DAY, 24))) == 121
            with pytest.raises(OperationError, match=rf"archive {NAME}: .*access key"):
                claim(Location.at(NAME, S3Options("other", "secret", options.endpoint, ca_file=options.ca_file)), False)
        with pytest.raises(OperationError, match=rf"archive {NAME}: "):  # the server is away
            await asyncio.wait_for(archive_day(plant.owner, own, location, DAY, plant.state), PATIENCE)
        with running(peer):
            assert problems_of(archive) == []
