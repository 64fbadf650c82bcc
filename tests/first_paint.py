"""Time that an operator waits for each dashboard of a plant with 20,000 channels: ``python -m tests.first_paint``.

A private server, the viewer and headless Chromium; each dashboard is opened several times in a fresh browser, as by
somebody who opens it first. Prints the first contentful paint and when the last panel was drawn.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import asyncpg
import numpy as np

from core.config.model import ViewerOptions
from core.copy_stream import COLUMNS, copy_stream
from core.samples import Samples
from core.timestamps import microseconds
from dashboards.viewer.library import Library
from dashboards.viewer.reader import ReaderPool
from dashboards.viewer.server import serve
from ops.postgres.bootstrap import bootstrap
from ops.postgres.server import Server
from tests.database import PASSWORDS, Database, logins_of
from tests.integration.dashboards.viewer.browser_page import running_browser
from tests.integration.dashboards.viewer.sample_plant import CHANNEL, UNIT, fill
from tests.ports import free_ports

CHANNELS = 20_000
MINUTES = 10  # of all of them, at 1 Hz
_SHOWN = {
    "plantlog-unit": f"&var-unit={UNIT}",
    "plantlog-channel": f"&var-unit={UNIT}&var-channel={CHANNEL}",
}
_PLANT = """
INSERT INTO plant.channel (name, source_id, address, kind, unit, range_lo, range_hi, attributes)
SELECT format('area%s/unit%s/tag%s', n % 10, n % 200, n), (SELECT min(s.id) FROM plant.source AS s), n::text, 'analog',
       'bar', 0, 100, '{"expected_interval": 1, "alarm_hi": 90}'
FROM generate_series(1, $1::int) AS n
RETURNING id
"""
_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_DRAWN = """
document.querySelector('.panel') && [...document.querySelectorAll('.panel')].every((panel) => {
  const { top } = panel.getBoundingClientRect();
  return top > innerHeight || (panel.dataset.state !== 'waiting' && !panel.classList.contains('asking'));
})
"""


async def _fill(database: Database) -> None:
    await fill(database)
    connection = await asyncpg.connect(database.owner_dsn)
    ids = np.array([row["id"] for row in await connection.fetch(_PLANT, CHANNELS)], np.int32)
    end = datetime.now(UTC).replace(second=0, microsecond=0)
    random = np.random.default_rng(3)
    for second in range(-60 * MINUTES, 0, 20):
        times = microseconds(end) + (second + np.arange(20, dtype=np.int64)) * 1_000_000
        n = 20 * CHANNELS
        stream = copy_stream(
            Samples(np.tile(ids, 20), np.repeat(times, CHANNELS), random.normal(50, 10, n), np.zeros(n, np.uint32))
        )
        await connection.copy_to_table(
            "samples_raw", schema_name="plant", columns=COLUMNS, source=cast(Any, stream), format="binary"
        )
    await connection.execute(
        "INSERT INTO plant.rollup_dirty (from_time, to_time, channels) VALUES ($1, $2, $3::int[])",
        *(end - timedelta(minutes=MINUTES), end, ids.tolist()),
    )
    await connection.execute("CALL plant.refresh_rollups()")
    await connection.execute("ANALYZE")
    await connection.close()


async def measure(database: Database, folder: Path, times: int, say: Callable[[str], None]) -> list[dict[str, Any]]:
    """A row a dashboard, milliseconds."""
    say(f"making {CHANNELS:,} channels with {MINUTES} minutes at 1 Hz")
    await bootstrap(database.owner_dsn, PASSWORDS)
    await _fill(database)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "reader.dsn").write_text(database.reader_dsn)
    reader, library = ReaderPool(folder), Library()
    rows = []
    async with serve(ViewerOptions(port=free_ports(1)), folder, reader, library) as port, running_browser() as browser:
        for dashboard in library:
            paint, drawn = [], []
            for _ in range(times):
                context = await browser.new_context(viewport={"width": 1400, "height": 900})
                page = await context.new_page()
                page.set_default_timeout(120_000)
                query = f"from=now-{MINUTES}m&to=now&refresh=off{_SHOWN.get(dashboard.uid, '')}"
                await page.goto(f"http://127.0.0.1:{port}/d/{dashboard.uid}?{query}")
                while not await page.evaluate(_DRAWN):
                    await page.wait_for_timeout(10)
                drawn.append(await page.evaluate("performance.now()"))
                paint.append(await page.evaluate(_PAINT))
                await context.close()
            row: dict[str, Any] = {"dashboard": dashboard.uid}
            row |= {f"paint_p{p}": float(np.percentile(paint, p)) for p in (50, 95)}
            row |= {f"drawn_p{p}": float(np.percentile(drawn, p)) for p in (50, 95)}
            rows.append(row)
            say(
                f"{dashboard.uid}: first contentful paint {row['paint_p50']:.0f} ms (p95 {row['paint_p95']:.0f}), "
                f"all in sight drawn {row['drawn_p50']:.0f} ms (p95 {row['drawn_p95']:.0f})"
            )
    await reader.close()
    return rows


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20, help="how often each dashboard is opened")
    parser.add_argument("--json", action="store_true", help="print JSON at the end")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Server(Path(folder) / "server") as server:
        database = logins_of(server.owner_dsn)
        rows = asyncio.run(measure(database, Path(folder), options.times, lambda line: print(line, flush=True)))
    if options.json:
        print(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
