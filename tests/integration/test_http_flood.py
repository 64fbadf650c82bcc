"""Thousands of connections that never finish a request: whoever has something to say is still heard."""

from __future__ import annotations

import asyncio
import resource
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from ops.paths import CHECKOUT
from tests.configured import put_in_force
from tests.integration.test_push import Site, site, until

_HALF_OPEN = 2000
_FILES = 1024  # what a process may open, as on most machines


@asynccontextmanager
async def push_process(here: Site, log: Path) -> AsyncIterator[None]:
    """The push endpoint in a process of its own, which may open 1,024 files."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, _FILES))

    put_in_force(here.state.root, here.root / "p" / "plant.toml")
    with log.open("wb") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ingest", "push", "--state", str(here.state.root)),
            env={"PYTHONPATH": str(CHECKOUT)},
            preexec_fn=limited,
            stderr=said,
        )
    try:
        await until(here.ready)
        yield
    finally:
        process.terminate()
        await process.wait()


async def test_a_gateway_is_heard_behind_half_open_requests(tmp_path: Path) -> None:
    here = site(tmp_path)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 3 * _HALF_OPEN), hard))
    log = tmp_path / "log"
    opened: list[asyncio.StreamWriter] = []
    async with push_process(here, log):

        async def half_open() -> None:
            _, writer = await asyncio.open_connection("127.0.0.1", here.plant.push.port)
            writer.write(b"POST /api/v2/write HTTP/1.1\r\nHost: plant\r\nX-")
            opened.append(writer)

        for _ in range(0, _HALF_OPEN, 100):
            await asyncio.gather(*(half_open() for _ in range(100)))
        begun = time.monotonic()
        async with asyncio.timeout(30):
            for n in range(10):
                assert (await here.push(b"boiler pressure=1 %d000" % (n + 1))).status == 204
        took = (time.monotonic() - begun) / 10
        before = log.stat().st_size
        await asyncio.sleep(2)
        written = log.stat().st_size - before
    for writer in opened:
        writer.close()
    print(f"a push took {took:.3f} s; {written * 30:,} bytes of log a minute, {log.stat().st_size:,} in all")
    assert took < 1.0
    assert log.stat().st_size < 20_000
