"""Thousands of connections that never finish a request: whoever has something to say is still heard."""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from core.paths import CHECKOUT
from tests.config_in_force import activate
from tests.integration.ingest.test_push import Site, site_in
from tests.waiting import until

_HALF_OPEN = 2000
_SEVERAL = 100  # of them at once
_FILES = 1024  # what a process may open, as on most machines


@asynccontextmanager
async def push_process(
    site: Site, log: Path, ready: Callable[[], Awaitable[bool]] | None = None
) -> AsyncIterator[None]:
    """The push endpoint in a process of its own, which may open 1,024 files."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))

    activate(site.state.root, site.root / "p" / "plant.toml")
    with log.open("wb") as log_file:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ingest", "push", "--state", str(site.state.root)),
            env={"PYTHONPATH": str(CHECKOUT)},
            preexec_fn=limited,
            stderr=log_file,
        )
    try:
        await until(ready or site.ready)
        yield
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.slow
async def test_gateway_is_served_despite_half_open_requests(tmp_path: Path) -> None:
    site = site_in(tmp_path)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * _HALF_OPEN), hard))
    log = tmp_path / "log"
    opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    async with push_process(site, log):

        async def half_open() -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", site.plant.push.port)
            writer.write(b"POST /api/v2/write HTTP/1.1\r\nHost: plant\r\nX-")
            opened.append((reader, writer))

        async def several() -> None:
            await asyncio.gather(*(half_open() for _ in range(_SEVERAL)))

        async def is_heard_before_they_are_given_up() -> bool:
            await several()
            for n in range(10):
                assert (await site.push(b"boiler pressure=1 %d000" % (n + 1))).status == 204
            return any(not reader.at_eof() and reader.exception() is None for reader, _ in opened[-_SEVERAL:])

        for _ in range(0, _HALF_OPEN, _SEVERAL):
            await several()
        await until(is_heard_before_they_are_given_up)
    for _, writer in opened:
        writer.close()
    assert log.stat().st_size < 20_000
