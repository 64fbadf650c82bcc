"""Two appliances write into one database without knowing of each other, each with a plant and a state folder."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.installation import installation_of
from core.timestamps import now_us
from dashboards.viewer.library import Library
from ops.postgres.server import Server
from simulator.compare import compare
from simulator.compare_samples import Comparison
from tests.e2e.appliance import Appliance, running
from tests.pair import own_server
from tests.ports import free_ports
from tests.waiting import PATIENCE, until

SECOND = 1_000_000  # µs
_OWN = "SELECT s.id FROM plant.source AS s WHERE s.installation_id = '{}'"
_NEWEST = f"""
SELECT (extract(epoch FROM min(n.newest)) * 1000000)::int8
FROM (SELECT max(b.last_time) AS newest FROM plant.ingest_batch AS b
      WHERE b.kind = 'samples' AND b.source_id IN ({_OWN}) GROUP BY b.source_id) AS n
"""
_STORED = f"""
SELECT count(*) FROM plant.samples_raw AS r JOIN plant.channel AS c ON c.id = r.channel_id WHERE c.source_id IN ({_OWN})
"""
_ROLLUPS = """
SELECT count(*) FROM plant.job_run AS r
WHERE r.job = 'rollups' AND r.outcome = 'ok' AND r.installation_id = '{}' AND r.started_at > to_timestamp({} / 1e6)
"""


def _channels(appliance: Appliance) -> dict[str, int]:
    """Plant → number of channels, as this appliance's dashboards show them."""
    output = appliance.plantlog("up")
    (address,) = [line.split()[1] for line in output.splitlines() if line.split()[:1] == ["dashboards"]]
    (size,) = (panel["id"] for panel in Library().dashboard("plantlog-plant").panels() if panel["title"] == "Size")
    times = {"since": (now_us() - 60 * SECOND) // 1000, "until": now_us() // 1000}

    def columns(what: str, **question: object) -> list[list[object]]:
        body = json.dumps({"dashboard": "plantlog-plant", **times, **question}).encode()
        request = urllib.request.Request(f"{address}api/{what}", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            (frame,) = json.load(answer).values()
            return frame["columns"]  # type: ignore[no-any-return]

    plants, ids, _ = columns("variable", variable="installation")
    chosen = {"area": ["$__all"]}
    return {
        str(plant): int(str(columns("query", panel=size, variables=chosen | {"installation": [id_]})[0][0]))
        for plant, id_ in zip(plants, ids, strict=True)
    }


async def _until_stored(appliance: Appliance, us: int) -> None:
    """Every source of this appliance has samples later than ``us``."""

    async def stored() -> bool:
        newest = await appliance.fetchval(_NEWEST.format(installation_of(appliance.root)))
        return (newest or 0) > us and appliance.oldest_waiting() > us

    await until(stored, 180, 0.2, lambda: appliance.plantlog("status", "--once"))


async def _compared(appliance: Appliance, from_us: int, to_us: int) -> Comparison:
    await _until_stored(appliance, to_us + SECOND)
    dsn = (appliance.root / "secrets" / "reader.dsn").read_text().strip()
    total = Comparison()
    for source in appliance.status()["sources"]:
        found = await compare(appliance.root / "simulator" / "truth", dsn, from_us, to_us, source["name"])
        total.add(found["all"])
    assert (total.duplicated, total.invented, total.altered, total.missing_silent) == (0, 0, 0, 0)
    return total


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with own_server(tmp_path, monkeypatch) as server:
        yield server


@pytest.mark.usefixtures("server")
async def test_two_appliances_share_a_database(tmp_path: Path) -> None:
    ports = free_ports(60)
    with (
        running(tmp_path / "one", "--port", str(ports)) as one,
        running(tmp_path / "two", "--channels", "40", "--hz", "2", "--port", str(ports + 30)) as two,
    ):
        start = now_us() + SECOND
        ids = {appliance: installation_of(appliance.root) for appliance in (one, two)}
        for appliance in (one, two):
            await _until_stored(appliance, start + 5 * SECOND)
        assert {one.status()["plant"], two.status()["plant"]} == {"demo", "load"}
        for appliance, other in ((one, two), (two, one)):
            [shared] = appliance.status()["database"]["others"]
            assert f"installation {ids[other]} of plant" in shared
            assert set(_channels(appliance)) == {"demo", "load"}
            assert _channels(appliance)["load"] == 40
            assert "recorded (load)" in appliance.plantlog("status", "--once", "--installation", "load")
        keys = [appliance.plantlog("evidence", "seal", "--public-key") for appliance in (one, two)]
        assert keys[0] != keys[1], "each seals with its own"
        stopped = now_us()
        one.plantlog("down")
        await _until_stored(two, now_us() + 3 * SECOND)

        async def maintained() -> bool:
            return bool(await two.fetchval(_ROLLUPS.format(ids[two], stopped)))

        await until(maintained, every=0.5)
        one.plantlog("up")
        end = now_us() + SECOND
        assert (await _compared(two, start, end)).missing == 0
        assert (await _compared(one, start, end)).stored > 100
        before = await one.fetchval(_STORED.format(ids[two]))
        two.plantlog("down", "--wipe", "--yes")
        await _until_stored(one, now_us() + 3 * SECOND)
        assert (await _compared(one, end, now_us() - SECOND)).missing == 0
        assert await one.fetchval(_STORED.format(ids[two])) >= before
        assert "shared with installation" in one.plantlog("status", "--once")
