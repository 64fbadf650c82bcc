"""The usual block of a CSV file, read by pyarrow (which has no types): four times as fast as line by line.

What is unusual or wrong is left to :mod:`history.imports.csv_file`, which names the line.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from core.batch import Float64s, Int32s, Int64s
from history.imports.bad_input import BadField
from history.imports.csv_layout import CsvLayout
from history.imports.fields import EXACT, parse_statuses
from history.imports.portion import Portion, WideColumn, wide_portion


def usual_portion(
    block: str, layout: CsvLayout, ids: Mapping[str, int], wide: Mapping[int, int], before: int, bytes_read: int
) -> Portion | None:
    """The samples of whole lines, ``before`` of which precede them. None: some are unusual or wrong.

    ``ids``: text of a channel → place of its name. ``wide``: column → place of its channel's name.
    """
    text = block.replace("\r\n", "\n")
    if '"' in text or "\r" in text or layout.decimal != "." or layout.times.ambiguous == "order":
        return None
    try:
        columns = _columns(text, layout)
        if columns.num_rows != text.count("\n"):
            return None  # empty lines
        time = _times(columns[layout.time_at], layout)
        if time is None:
            return None
        number = np.arange(before + 1, before + len(time) + 1)
        if layout.channel_at is None:
            return wide_portion(_cells(columns, wide), time, number, bytes_read)
        coded = columns[layout.channel_at].dictionary_encode()
        places = np.array([ids[name] for name in coded.dictionary.to_pylist()], np.int32)
        status = np.zeros(len(time), np.uint32)
        if layout.status_at is not None:
            statuses = columns[layout.status_at].dictionary_encode()
            status = parse_statuses(statuses.dictionary.to_pylist(), layout.codes)[statuses.indices.to_numpy()]
        channel: Int32s = places[coded.indices.to_numpy()]
        return Portion(channel, time, _numbers(columns[layout.value_at]), status, number, bytes_read)
    except (pa.ArrowInvalid, BadField):
        return None


def _columns(text: str, layout: CsvLayout) -> Any:
    """A record batch of texts, with a column for each one of the file."""
    names = [str(place) for place in range(len(layout.header))]
    content = text.encode()
    table = pyarrow.csv.read_csv(
        pa.BufferReader(content),
        pyarrow.csv.ReadOptions(column_names=names, use_threads=False, block_size=len(content) + 1),
        pyarrow.csv.ParseOptions(delimiter=layout.delimiter, quote_char=False, ignore_empty_lines=False),
        pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
    )
    return table.combine_chunks().to_batches()[0]


def _times(column: Any, layout: CsvLayout) -> Int64s | None:
    """µs. None: they are not of one length, or not all as usual."""
    n = len(column)
    _, offsets, content = column.buffers()
    at = np.frombuffer(offsets, np.int32, n + 1)
    width = int(at[1] - at[0])
    if width == 0 or (np.diff(at) != width).any():
        return None
    chars: NDArray[np.uint8] = np.frombuffer(content, np.uint8, n * width).reshape(n, width)
    return layout.times.parse_fixed(chars)


def _numbers(column: Any) -> Float64s:
    """Raises ArrowInvalid or BadField."""
    numbers: Float64s = column.cast(pa.float64()).to_numpy()
    if not np.isfinite(numbers).all():
        raise BadField(int(np.argmin(np.isfinite(numbers))), "", "a finite number")
    zeros = column.filter(pa.array(numbers == 0))
    if (np.abs(numbers) >= EXACT).any() or pc.any(pc.match_substring_regex(zeros, "[1-9]")).as_py():
        raise BadField(0, "", "as the text says it")  # it may be rounded
    return numbers


def _cells(columns: Any, wide: Mapping[int, int]) -> list[WideColumn]:
    """The cells of a wide file; empty ones are no samples. Raises ArrowInvalid or BadField."""
    found = []
    for place, channel in wide.items():
        column = columns[place]
        full = np.flatnonzero(pc.binary_length(column).to_numpy())
        values = _numbers(column if len(full) == len(column) else column.take(pa.array(full)))
        found.append(WideColumn(channel, full, values, np.zeros(len(full), np.uint32)))
    return found
