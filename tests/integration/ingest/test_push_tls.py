"""The push endpoint over TLS."""

from __future__ import annotations

import asyncio
import io
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from core.config.https import TlsSettings
from core.servers import http
from core.servers.server_tls import ca_file
from tests.config_in_force import activate
from tests.integration.core.test_http_flood import push_process
from tests.integration.ingest.test_push import Site, site_in
from tests.integration.ops.test_server_tls import command, own, serving
from tests.telegraf import Telegraf
from tests.waiting import PATIENCE, until

_HALF_OPEN = 450  # more than a server's connections


@asynccontextmanager
async def push_with_tls(site: Site) -> AsyncIterator[ssl.SSLContext]:
    """The push process; what a client trusts that it serves."""
    activate(site.state.root, site.root / "p" / "plant.toml")
    TlsSettings.of(site.plant).ensure(site.state.root)
    trusting = ssl.create_default_context(cafile=str(ca_file(site.state.pki)))

    async def answers() -> bool:
        with suppress(aiohttp.ClientError):
            return await pushed(site, trusting, 1) in (204, 400)
        return False

    async with push_process(site, site.root / "log", answers):
        yield trusting


async def pushed(site: Site, trusting: ssl.SSLContext, number: int) -> int:
    """The status of the response to a line."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            f"https://127.0.0.1:{site.plant.push.port}/api/v2/write?org=o&bucket=b",
            data=io.BytesIO(b"boiler pressure=1 %d000" % number),
            headers={"Authorization": "Token token-of-edge-gateway"},
            ssl=trusting,
        ) as response,
    ):
        return response.status


@pytest.mark.parametrize(
    ("addresses", "most"), [(1, http._MAX_PER_ADDRESS), (200, http._MAX_CONNECTIONS)], ids=["one address", "many"]
)
async def test_half_open_handshakes_are_evicted_for_a_client_that_speaks(
    addresses: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_MAX_SECONDS", dict.fromkeys(http._MAX_SECONDS, PATIENCE * 10))  # none ends by its age
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8 * _HALF_OPEN), hard))
    opened: list[asyncio.StreamReader] = []
    writers: list[asyncio.StreamWriter] = []
    ca = str(ca_file(tmp_path / "pki"))
    async with serving(own(tmp_path)) as port:

        async def half_open(number: int) -> None:
            source = f"127.0.{1 + number % addresses}.1"
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
            writer.write(b"\x16\x03\x01\x02"[: 4 * (number % 2)])
            opened.append(reader)
            writers.append(writer)

        for number in range(_HALF_OPEN):
            await half_open(number)
            if number % 50 == 49:
                assert await command("curl", "-sS", "--cacert", ca, f"https://localhost:{port}/") == (0, "https")
        await until(lambda: sum(not one.at_eof() and one.exception() is None for one in opened) <= most)
    for writer in writers:
        writer.close()


@pytest.mark.slow
@pytest.mark.timeout(1800)  # where Telegraf has to be built
async def test_telegraf_pushes_over_tls(tmp_path: Path) -> None:
    tags = '[[source.tag]]\nname = "boiler/pressure"\naddress = "mem.available"\n'
    site = site_in(tmp_path, push='host = "0.0.0.0"', tags=tags)
    secrets = {"telegraf_token": "token-of-edge-gateway", "reader_dsn": site.dsn}
    ca = {"PLANTLOG_CA": str(ca_file(site.state.pki))}
    ca["PLANTLOG_PUSH"] = f"https://localhost:{site.plant.push.port}"
    async with push_with_tls(site):
        with Telegraf(tmp_path, "telegraf.conf", secrets, ca).running():
            await until(site.samples)
