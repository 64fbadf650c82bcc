"""The table of a day's channels: what each id meant, by the sealed document, and where its samples are."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from core.timestamps import begin, microseconds
from history.archive.manifest import DayFolder
from history.archive.parquet_writers import table_of
from history.codec.row_groups import TIME

CHANNELS = pa.schema(
    [
        pa.field("channel_id", pa.int32(), nullable=False),
        pa.field("valid_from", TIME, nullable=False),
        pa.field("valid_to", TIME, nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("plant_unit", pa.string(), nullable=False),
        pa.field("unit", pa.string(), nullable=False),
        pa.field("kind", pa.string()),
        pa.field("source", pa.string()),
        pa.field("address", pa.string()),
        pa.field("range_lo", pa.float64()),
        pa.field("range_hi", pa.float64()),
        pa.field("attributes", pa.string()),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("file", pa.string()),
        pa.field("first_group", pa.int32()),
        pa.field("last_group", pa.int32()),
    ]
)
PLACE = ("channel_id", "samples", "file", "first_group", "last_group")
_MEANING = 12  # columns up to ``attributes``: what the sealed document says


@dataclass(frozen=True, slots=True)
class Place:
    """Number of a channel's samples of the day, and their place: in these row groups, from 0, of a file.

    Those that came later are not there, but in amendments; if all did, there is no file.
    """

    samples: int
    file: str | None = None  # path from the archive's root
    first_group: int = 0
    last_group: int = 0


def plant_unit(name: str) -> str:
    """The unit of the plant in a channel's name: all but its last part; empty for a name of one part."""
    return name.rpartition("/")[0]


def channel_table(document: str, folder: DayFolder, places: Mapping[int, Place]) -> Any:
    """An Arrow table with a row for each meaning of each channel, sorted by channel and time.

    ``document``: the sealed one (history/standalone.py). A channel that has samples and is not in it gets an empty
    name.
    """
    data = json.loads(document)
    sources = {source["id"]: source["name"] for source in data["sources"]}
    begins, ends = microseconds(begin(folder.day)), microseconds(begin(folder.day, 24))
    meanings: dict[int, list[dict[str, Any]]] = {number: [] for number in places}
    for meaning in data["channels"]:
        meanings.setdefault(meaning["id"], []).append(meaning)
    rows: list[tuple[Any, ...]] = []
    for number in sorted(meanings):
        of_channel = sorted(meanings[number], key=_valid_from) or [{"name": "", "unit": ""}]
        starts = [begins, *(_valid_from(meaning) for meaning in of_channel[1:])]
        place = places.get(number)
        where = (place.samples if place else 0, *_place_columns(place))
        for meaning, first, last in zip(of_channel, starts, [*starts[1:], ends], strict=True):
            described = [meaning.get(name) for name in ("kind", "address", "range_lo", "range_hi")]
            attributes = json.dumps(meaning.get("attributes", {}), ensure_ascii=False)
            name = meaning["name"], plant_unit(meaning["name"]), meaning["unit"]
            rows.append(
                (
                    number,
                    first,
                    last,
                    *name,
                    described[0],
                    sources.get(meaning.get("source")),
                    *described[1:],
                    attributes,
                    *where,
                )
            )
    return table_of(rows, CHANNELS)


def _place_columns(place: Place | None) -> tuple[str | None, int | None, int | None]:
    if place is None or place.file is None:
        return None, None, None
    return place.file, place.first_group, place.last_group


def _valid_from(meaning: Mapping[str, Any]) -> int:
    return int(meaning.get("valid_from", 0))


def same_meaning(table: Any, document: str, folder: DayFolder) -> bool:
    """Return whether a table says of its channels what the sealed document says."""
    expected = channel_table(document, folder, places_of(table))
    return bool(table.select(range(_MEANING)).equals(expected.select(range(_MEANING))))


def places_of(table: Any, channels: Collection[int] | None = None) -> dict[int, Place]:
    """Channel id → place of its samples, if any. ``table``: has the columns ``PLACE``. ``channels``: only these."""
    if channels is not None:
        table = table.filter(pc.is_in(table["channel_id"], pa.array(list(channels), pa.int32())))
    rows: Iterable[tuple[Any, ...]] = zip(*(table.column(name).to_pylist() for name in PLACE), strict=True)
    return {number: Place(n, file, first or 0, last or 0) for number, n, file, first, last in rows if n}


def write_channels(sink: Any, table: Any, metadata: Mapping[bytes, bytes]) -> None:
    """Write the table as Parquet."""
    with pq.ParquetWriter(sink, CHANNELS, compression="zstd") as writer:
        writer.add_key_value_metadata(dict(metadata))
        writer.write_table(table)
