"""Whatever fails, at whatever server: each value that it published is in the table once, or within a gap."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from rich.console import Console

from tests.matrix import FAULTS, SHORT, FaultScene, cells, scene, table
from tests.peers import KINDS


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[FaultScene]:
    async with scene(tmp_path_factory.mktemp("matrix"), SHORT) as up:
        yield up


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("fault", FAULTS)
async def test_nothing_is_lost_without_a_gap(stage: FaultScene, fault: str) -> None:
    found = await cells(stage, fault)
    Console(width=120).print(table(found))
    assert not [(cell.peer, cell.found) for cell in found if cell.wrong]
    assert all(cell.found.published > 0 for cell in found)
    if fault in ("stop", "overflow"):
        assert [c.peer for c in found if KINDS[c.peer].node and not c.found.missing_recorded] == []  # it did overflow
