"""Drawing of channels of an archive, by the rules of drawings of answers (history/questions/drawing.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.status_codes import BAD
from core.timestamps import microseconds, utc
from history.archive.meanings import Meanings
from history.archive.parquet_writers import table_of
from history.codec.row_groups import TIME
from history.notebook.archive import Archive
from history.questions.drawing import Drawing, named_channels, names_without_curve

_CURVES = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("name", "unit")),
        pa.field("time", TIME),
        *(pa.field(name, pa.float64()) for name in ("min", "avg", "max")),
    ]
)


def drawing(
    archive: Archive, channels: Sequence[int | str], answer: Any | None, since: datetime, until: datetime
) -> Drawing:
    """Drawing of channels, or of those that an answer names, with its marks. Raises OperationError."""
    kinds = archive.kinds(channels if answer is None else "*", since, until)
    rows = pa.table({"channel": [name for name in kinds if kinds[name] != "text"]}) if answer is None else answer
    title = f"{since:%Y-%m-%d %H:%M:%S} to {until:%Y-%m-%d %H:%M:%S} UTC"
    names, left_out = named_channels(rows)
    without_curve = names_without_curve([*names, *left_out], kinds)
    return Drawing.of(_ArchiveCurves(archive), title, rows, [(since, until)], without_curve)


@dataclass(frozen=True, slots=True)
class _ArchiveCurves:
    archive: Archive

    def curves(self, names: Sequence[str], since: datetime, until: datetime, step: timedelta) -> Any:
        buckets = self.archive.buckets(names, since, until, step // timedelta(microseconds=1))
        good = buckets.filter(pc.is_finite(buckets["avg"])).drop_columns(["time", "last"])
        is_lost = pc.fill_null(pc.not_equal(buckets["last"], buckets["last_good"]), fill_value=True)
        lost = buckets.filter(is_lost).select(["name", "unit", "last"])
        parts = good.rename_columns({"first_good": "time"}), lost.rename_columns({"last": "time"})
        curves = pa.concat_tables(parts, promote_options="default").select(_CURVES.names).cast(_CURVES)
        return curves.sort_by([("name", "ascending"), ("time", "ascending")])

    def held(self, names: Sequence[str], since: datetime, at: datetime) -> Any:
        gaps = self.gaps(names, since, at).filter(~pc.field("backfilled"))
        last_gaps = dict(zip(gaps["name"].to_pylist(), gaps["from_time"].to_pylist(), strict=True))  # they are by time
        held = [
            (name, unit, at, value, value, value)
            for name, unit, time, value, status in self._last_samples(names, since, at)
            if status < BAD and np.isfinite(value) and last_gaps.get(name, since) < time
        ]
        return table_of(held, _CURVES)

    def _last_samples(
        self, names: Sequence[str], since: datetime, until: datetime
    ) -> Iterator[tuple[str, str, datetime, float, int]]:
        """Name, unit, time, value and status of the last sample of each channel."""
        missing = {*names}
        for day in reversed(self.archive.days_between(since, until)):
            if not missing:
                return
            table = self.archive.channels_of(day, sorted(missing))
            channels, meanings = {row["channel_id"]: row["name"] for row in table.to_pylist()}, Meanings.of_day(table)
            for number, samples in self.archive.samples_of(
                day, [*channels], (microseconds(since), microseconds(until))
            ):
                if len(samples):
                    name, last = channels[number], samples.part(slice(-1, None))
                    unit = meanings.columns(last.channel, last.time)["unit"][0].as_py()
                    missing.discard(name)
                    yield name, unit, utc(last.time[0]), float(last.value[0]), int(last.status[0])

    def gaps(self, names: Sequence[str], since: datetime, until: datetime) -> Any:
        return self.archive.gaps(names, since, until)
