"""Answers of ``plantlog sql`` as files, and times of a zone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from core.errors import OperationError
from core.terminal import Console
from core.timestamps import begin, microseconds
from history.sql.file_output import begun, write
from history.sql.session import opened
from tests.integration.history.archive_maintenance import Maintained
from tests.integration.history.sealed_plant import DAY
from tests.integration.history.sql.asking import LIMITS, NEXT, archived_and_dropped

READERS: dict[str, Callable[[Path], Any]] = {
    ".parquet": pyarrow.parquet.read_table,
    ".arrow": lambda path: pa.ipc.open_file(path).read_all(),
    ".csv": pyarrow.csv.read_csv,
}
QUERY = (
    "CREATE TEMP VIEW v AS FROM samples; "
    f"SELECT time, channel_id, value FROM v WHERE time < '{NEXT}' ORDER BY ALL; -- all of them;"
)


def names(folder: Path) -> set[str]:
    """Those of its files of rows, whole or not."""
    return {path.name for path in folder.iterdir() if {*path.suffixes} & {*READERS, ".partial"}} - {"tags.csv"}


async def written(plant: Maintained, file: Path, query: str, time_zone: str = "UTC") -> int:
    def work() -> int:
        with ExitStack() as stack:
            partial = stack.enter_context(begun(file))
            session = stack.enter_context(opened(plant.site.plant.state, LIMITS, writable=partial, time_zone=time_zone))
            return write(session, query, file, partial, Console(stderr=True))

    return await asyncio.to_thread(work)


@pytest.mark.parametrize("ending", READERS)
async def test_rows_of_the_last_statement_are_written(plant: Maintained, tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"day{ending}"
    file.write_text("an earlier one")
    expected = sorted((time, channel) for channel, time in await plant.stored(DAY))
    await archived_and_dropped(plant)
    assert await written(plant, file, QUERY) == len(expected)
    table = READERS[ending](file)
    times = table["time"].cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_pylist()
    assert list(zip(times, table["channel_id"].to_pylist(), strict=True)) == expected
    assert names(tmp_path) == {file.name}


async def test_what_fails_leaves_the_earlier_file(plant: Maintained, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("an earlier one")
    other = tmp_path / "other.csv"
    for query, error in (
        ("SELECT nothing FROM samples", "nothing"),
        ("SELECT 1; SELECT 2", "statement 1 has rows; legal: rows of the last statement alone"),
        ("SELECT 1; CREATE TEMP VIEW v AS SELECT 1", "statement 1 has rows"),
        ("CREATE TEMP VIEW v AS SELECT 1", "statement 1 has no rows"),
        ("", "legal: a SELECT"),
        (f"COPY (SELECT 1) TO '{other}'; SELECT 1", "ermission"),
        (f"SELECT * FROM read_csv('{file}')", "ermission"),
    ):
        with pytest.raises(OperationError, match=error):
            await written(plant, file, query)
    assert file.read_text() == "an earlier one"
    assert names(tmp_path) == {"rows.csv"}
    for name, error in (
        ("rows.txt", "a name that ends with .parquet, .csv, .arrow"),
        ("none/rows.csv", "none/rows.csv: "),
    ):
        with pytest.raises(OperationError, match=error):
            await written(plant, tmp_path / name, "SELECT 1")


async def test_days_and_times_are_those_of_the_zone(plant: Maintained, tmp_path: Path) -> None:
    midnight = f"{DAY} 00:00"
    query = (
        f"SELECT date_trunc('day', time) AS day, count(*) AS n FROM samples WHERE time >= '{midnight}' "
        f"AND time < TIMESTAMPTZ '{midnight}' + INTERVAL 1 DAY GROUP BY day"
    )
    file = tmp_path / "n.parquet"
    assert await written(plant, file, query, "Asia/Tokyo") == 1
    [row] = pyarrow.parquet.read_table(file).to_pylist()
    next_midnight = microseconds(begin(DAY, 15))  # in Tokyo
    stored = [time for _, time in await plant.stored(DAY)]
    assert row["day"] == begin(DAY, -9)
    assert row["n"] == sum(time < next_midnight for time in stored) > 0
    with pytest.raises(OperationError, match="--time-zone: found 'Nowhere'; legal: a name of the IANA"):
        await written(plant, file, "SELECT 1", "Nowhere")
