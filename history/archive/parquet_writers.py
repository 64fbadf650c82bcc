"""Writers of Parquet files: exported samples, events and gaps. All calls of pyarrow (which has no types) are here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from core.samples import Samples
from history.standalone import METADATA, schema_of

SAMPLES, EVENTS, GAPS = (schema_of(table) for table in ("samples", "events", "gaps"))
INTERVAL_METADATA = b"plantlog.export"  # key of what an exported interval is, in the metadata of its files
EXPORT_METADATA = frozenset((METADATA, INTERVAL_METADATA))  # an export has one of these keys
_GROUP = 262_144  # rows: a channel is found without reading its neighbours
_DICTIONARY = ["channel_id", "channel", "unit", "status"]
_TIME_ENCODING = "DELTA_BINARY_PACKED"
_COMPRESSION = {"compression": "zstd", "compression_level": 3}
ENCODINGS: Mapping[str, Mapping[str, Any]] = {
    "dictionary": {
        "use_dictionary": [*_DICTIONARY, "value"],
        "dictionary_pagesize_limit": 4 * 1024**2,
        "column_encoding": {"time": _TIME_ENCODING},
    },
    "byte_stream_split": {
        "use_dictionary": _DICTIONARY,
        "column_encoding": {"time": _TIME_ENCODING, "value": "BYTE_STREAM_SPLIT"},
    },
}


class SampleFile:
    """Samples, sorted by channel and time, a row group at a time."""

    def __init__(self, path: Path | pa.BufferOutputStream, encoding: str) -> None:
        sink = str(path) if isinstance(path, Path) else path
        self._writer = pq.ParquetWriter(sink, SAMPLES, **ENCODINGS[encoding], **_COMPRESSION)
        self._waiting: list[Any] = []
        self._rows = 0

    def write(self, samples: Samples, channel: str, unit: str) -> None:
        """Add a channel's samples."""
        n = len(samples)
        self._waiting.append(
            pa.RecordBatch.from_arrays(
                [
                    pa.array(samples.time, pa.int64()).cast(SAMPLES.field("time").type),
                    pa.array(samples.channel),
                    _same(channel, n),
                    _same(unit, n),
                    pa.Array.from_buffers(pa.float64(), n, [None, pa.py_buffer(samples.value)]),
                    pa.array(samples.status, pa.uint32()),
                ],
                schema=SAMPLES,
            )
        )
        self._rows += n
        if self._rows >= _GROUP:
            self._flush(_GROUP)

    def _flush(self, least: int) -> None:
        table = pa.Table.from_batches(self._waiting, SAMPLES).unify_dictionaries()
        first = 0
        while table.num_rows - first >= least and first < table.num_rows:
            self._writer.write_table(table.slice(first, _GROUP), row_group_size=_GROUP)
            first += _GROUP
        rest = table.slice(first)
        self._waiting, self._rows = rest.to_batches(), rest.num_rows

    def close(self, metadata: Mapping[bytes, bytes] | None = None) -> None:
        """Write what waits and the end of the file, with the seal or what else the metadata hold."""
        if self._rows:
            self._flush(1)
        self._writer.add_key_value_metadata(dict(metadata or {}))
        self._writer.close()

    def abandon(self) -> None:
        """Close the file, complete or not."""
        self._writer.close()


def _same(text: str, n: int) -> Any:
    """A text, n times."""
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text], pa.string()))


def best_encoding(probe: Collection[Samples]) -> str:
    """The encoding that makes these samples smallest."""
    sizes = {}
    for encoding in ENCODINGS:
        sink = pa.BufferOutputStream()
        file = SampleFile(sink, encoding)
        for samples in probe:
            file.write(samples, "", "")
        file.close()
        sizes[encoding] = sink.getvalue().size
    return min(sizes, key=lambda name: sizes[name])


def table_of(rows: Iterable[tuple[Any, ...]], schema: Any) -> Any:
    """An Arrow table of rows; times are µs since 1970, or datetimes."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


class RowFile:
    """Rows of another table; times are µs since 1970."""

    def __init__(self, sink: Any, schema: Any) -> None:
        """``sink``: a path, or a file object of pyarrow."""
        self._schema = schema
        self._writer = pq.ParquetWriter(sink, schema, **_COMPRESSION)

    def write(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows."""
        self._writer.write_table(table_of(rows, self._schema))

    def close(self, metadata: Mapping[bytes, bytes]) -> None:
        """Write the end of the file, with the seal or what else the metadata hold."""
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def abandon(self) -> None:
        """Close the file, complete or not."""
        self._writer.close()
