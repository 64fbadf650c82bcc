"""TCP relays in front of the appliance's peers. They can cut, black-hole and garble connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from simulator.relay import Relay

_HOST = "127.0.0.1"


@asynccontextmanager
async def running_relays(
    ports: Mapping[str, tuple[int, int]], hosts: Mapping[str, str] | None = None
) -> AsyncIterator[dict[str, Relay]]:
    """Relays by name, each from the first port to the second, passing bytes inside the block.

    ``hosts``: addresses that some listen at, in place of 127.0.0.1.
    """
    relays: dict[str, Relay] = {}
    try:
        for name, (listen, to) in ports.items():
            relays[name] = Relay()
            await relays[name].start(((hosts or {}).get(name, _HOST), listen), (_HOST, to))
        yield relays
    finally:
        await asyncio.gather(*(relay.stop() for relay in relays.values()))


async def restore(relay: Relay) -> None:
    """Restore it as if nothing had ever been done to it."""
    relay.silence(False)
    await relay.accept()
