"""The archive benchmark: both places give the same answers, and the archive takes no more bytes than documented."""

from __future__ import annotations

from pathlib import Path

from core.paths import State
from lab.bench.archive import QUERIES, SERIES, measure
from tests.database import Database

_MOST = {"transmitter": 0.6, "noisy": 6.8}  # bytes a sample
_MOST_PACKED = {"transmitter": 1.8, "noisy": 8.6}  # in the database
_PAGES = 0.5  # few channels do not fill the pages that a relation has at least


async def test_archive_benchmark_asks_every_query_of_both(database: Database, tmp_path: Path) -> None:
    state, archive, lines = State(tmp_path / "state"), tmp_path / "archive", list[str]()
    (state.root / "secrets").mkdir(parents=True)
    archive.mkdir()
    for role in ("owner", "reader"):
        state.dsn_file(role).write_text(getattr(database, f"{role}_dsn"))
    figures = await measure(database.owner_dsn, state, archive, 3, lines.append)
    assert [(one.series, one.samples) for one in figures.series] == [(series, 3 * 86_400) for series in SERIES]
    assert {one.series: one.archive_bytes for one in figures.series if one.archive_bytes > _MOST[one.series]} == {}
    packed = {one.series: one.packed_bytes for one in figures.series}
    assert {series: b for series, b in packed.items() if b > _MOST_PACKED[series] + _PAGES} == {}
    assert [query.query for query in figures.queries] == [*QUERIES]
    assert {query.query: query.samples for query in figures.queries} == {
        **dict.fromkeys(QUERIES, 3 * 86_400),
        "hour_by_minute": 3 * 3600,
        "one_by_minute": 86_400,
    }
    assert all(query.database_cpu_ns > 0 and query.archive_cpu_ns > 0 for query in figures.queries)
    assert len(lines) == 2 * len(SERIES) + 1 + len(QUERIES)
