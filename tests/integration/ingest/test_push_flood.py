"""Gateways push ten times what is taken, whatever they are answered: what is taken is on disk."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from core.batch import SampleBatch
from core.config import token_file
from core.config.load import load
from lab.bench.overload.flood import LINES, Flood, source
from ops.registration.register import register
from tests.database import Database
from tests.integration.core.test_http_flood import push_process
from tests.integration.ingest.test_push import Site
from tests.ports import free_port, free_ports
from tests.states import claimed

_GATEWAYS = 4
_SECONDS = 4.0


async def flooded(folder: Path, database: Database) -> Site:
    """A plant whose gateways create their channels."""
    config = folder / "p"
    config.mkdir()
    text = f'[plant]\nname = "demo"\n[health]\nport = {free_ports(5)}\n[push]\nport = {free_port()}\n'
    for name in map(source, range(_GATEWAYS)):
        token_file.write(config / f"{name}.token", f"token-of-{name}")
        text += f'[[source]]\nname = "{name}"\nkind = "push"\ntoken_file = "{name}.token"\nmax_rate = 10000000\n'
        text += f'channel = "{name}/{{measurement}}"\nunknown = "create"\n'
    (config / "plant.toml").write_text(text)
    state = claimed(folder / "state")
    plant = load(config / "plant.toml")
    await register(plant, database.owner_dsn, state)
    return Site(folder, plant, state, database.ingest_dsn)


@pytest.mark.slow
async def test_what_is_taken_in_a_flood_is_durable(database: Database, tmp_path: Path) -> None:
    site = await flooded(tmp_path, database)
    flood = Flood(site.url, [f"token-of-{name}" for name in map(source, range(_GATEWAYS))])
    async with push_process(site, tmp_path / "log"):
        await flood.create_channels()
        holds = await flood.capacity(_SECONDS / 2, lambda: flood.answers["taken"])
        before = Counter(flood.answers)
        async with flood.at(10 * holds):
            await asyncio.sleep(_SECONDS)
        told = flood.answers - before
    print(f"{holds:,.0f} lines/s before; in {_SECONDS:g} s of ten times as much: {dict(told)}")
    assert (told["wrong"], told["taken"] > 0) == (0, True)
    assert flood.accepted <= stored(site), "what was answered with 204 is on disk"


def stored(site: Site) -> set[int]:
    """The whole bodies in the spool, by the value of their first line."""
    created = json.loads((site.state.root / "push.json").read_text())["created"]
    firsts = [channels[f"{name}/c0000"] for name, channels in created.items()]
    batches = [batch for batch in site.spooled() if isinstance(batch, SampleBatch) and len(batch) == LINES]
    return {int(batch.samples.value[np.isin(batch.samples.channel, firsts)][0]) for batch in batches}
