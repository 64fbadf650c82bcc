"""The wires of the appliance: a relay on each, so that it can be cut, silenced (no RST, no answer) and garbled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from simulator.relay import Relay

_HOST = "127.0.0.1"


@asynccontextmanager
async def wired(ports: Mapping[str, tuple[int, int]]) -> AsyncIterator[dict[str, Relay]]:
    """By name a relay from the first port to the second, passing bytes inside the block."""
    relays: dict[str, Relay] = {}
    try:
        for name, (listen, to) in ports.items():
            relays[name] = Relay()
            await relays[name].start((_HOST, listen), (_HOST, to))
        yield relays
    finally:
        await asyncio.gather(*(relay.stop() for relay in relays.values()))


async def whole(relay: Relay) -> None:
    """As if nothing had ever been done to it."""
    relay.silence(False)
    await relay.accept()
