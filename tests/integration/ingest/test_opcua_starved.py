"""The OPC UA collector on a machine that lets neither it nor the server run: nobody is dead for that."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.ingest.test_opcua_collector import SERVERS, collecting
from tests.peers import opcua_tags, peer


@pytest.mark.slow
@pytest.mark.parametrize("name", SERVERS)
async def test_session_survives_suspension_of_either_side(name: str, tmp_path: Path) -> None:
    """We: longer than keep-alive and time-out together. The server: for less than the time-out."""
    tags = opcua_tags(name, 10)
    options: dict[str, Any] = {"insecure": True, "keep_alive": 0.5, "time_out": 5.0}
    async with peer(name, tmp_path / "peer", 10, "200") as server:
        address = f"opc.tcp://127.0.0.1:{server.port}"
        async with collecting(address, tags, tmp_path / "pki", **options) as (spool, status):
            await spool.until(lambda: len(spool.samples(0)) >= 5)
            n = len(spool.samples(0))
            asyncio.get_running_loop().call_soon(time.sleep, 6.5)
            await spool.until(lambda: len(spool.samples(0)) >= n + 25)
            os.kill(server.pid, signal.SIGSTOP)
            await asyncio.sleep(2.0)  # four times the keep-alive: the length is what is tested
            os.kill(server.pid, signal.SIGCONT)
            n = len(spool.samples(0))
            await spool.until(lambda: len(spool.samples(0)) >= n + 5)
            assert status.reconnects == 0 and not spool.gaps()
            assert not [e for e in spool.events("source_state") if e.text == "disconnected"]
        truth = sorted(time for channel, time in server.published() if channel == tags[0].name)
        stored = {time for time, _, _ in spool.samples(0)}
        between = [time for time in truth if min(stored) <= time <= max(stored)]
        assert stored.issuperset(between), "nothing was lost, and nothing had to be sent again"
