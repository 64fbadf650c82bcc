"""The codec: what is encoded comes back to the bit, in the form of packed hours and in that of the archive."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.copy_stream import HEADER, TRAILER
from core.timestamps import POSTGRES_EPOCH_US, timestamp
from history.codec import row_groups
from history.codec.packed_hours import COLUMNS, copy_stream, pack, samples_of
from history.codec.segments import Segments
from tests.codec_samples import HOUR_US, Hour, bits, hours

_DAY_US = 1_773_014_400_000_000
_KINDS = {"hour": ">q", "start": ">q", "step": ">q", "base": ">d", "divisor": ">d", "single": ">?"}


def rows(stream: bytes) -> Iterator[dict[str, Any]]:
    """Rows of a COPY stream as a query of the server returns them: scalars decoded, arrays as they are sent."""
    assert stream.startswith(HEADER) and stream.endswith(TRAILER)
    place = len(HEADER)
    while place < len(stream) - len(TRAILER):
        row: dict[str, Any] = {}
        place += 2
        for name in COLUMNS:
            [size] = struct.unpack_from(">i", stream, place)
            place += 4
            content = stream[place : place + max(0, size)] if size >= 0 else None
            place += max(0, size)
            is_array = name[1:].isdigit() or name in ("float4s", "float8s", "statuses")
            row[name] = content if is_array else struct.unpack(_KINDS.get(name, ">i"), content or b"")[0]
        row["start"] = timestamp(row["start"] + POSTGRES_EPOCH_US)
        yield row | {kind: [row[f"{kind}{place}"] for place in range(4)] for kind in ("t", "v")}


@settings(max_examples=50, deadline=None)
@given(st.lists(hours(), min_size=1, max_size=3))
@example([[(0, 0, 0)], [(0, bits(0.1), 0)], [(0, 0x7FF0000000000001, 0)]])  # a signalling NaN beside float4s
@example([[(0, 0, 0), (253, 0, 0)]])  # 0.000253 * 1e6 > 253
@example([[(i * 253, bits(1.5), 0) for i in range(4000)], [(i * 1_000_000, bits(i / 10), 0) for i in range(3600)]])
@example([[(i * 10_000, bits(i / 7), 0) for i in range(50)] + [(HOUR_US - 1, bits(0.5), 3)]])
def test_samples_come_back_to_the_bit(of_channels: list[Hour]) -> None:
    lengths = [len(of_channel) for of_channel in of_channels]
    channel = np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths)
    columns = list(zip(*(sample for of_channel in of_channels for sample in of_channel), strict=True))
    time, value = np.array(columns[0], np.int64) + _DAY_US, np.array(columns[1], np.uint64)
    status = np.array(columns[2], np.uint32)

    sent = list(rows(copy_stream(pack(channel, time, value, status.view(np.int32)))))
    back = samples_of(sent)
    assert [(row["channel_id"], row["n"]) for row in sent] == list(enumerate(lengths, 1))
    segments = Segments.of_lengths(np.array(lengths))
    for decoded, encoded in zip(
        (back.channel, back.time, back.bits, back.status), (channel, time, value, status), strict=True
    ):
        np.testing.assert_array_equal(decoded, encoded)

    for i, j in zip(segments.begins, segments.ends, strict=True):
        again = row_groups.samples_of([row_groups.decoded(row_groups.record_batch(back.part(slice(i, j))))])
        for name in ("channel", "time", "bits", "status"):
            np.testing.assert_array_equal(getattr(again, name), getattr(back, name)[i:j])


_RANDOM = np.random.default_rng(6)
_WALK = (5000 + np.cumsum(np.rint(_RANDOM.normal(0, 25, 3600)))) / 100
_SECONDS = np.arange(3600) * 1_000_000
_JITTERED = _SECONDS + _RANDOM.integers(0, 250, 3600) * 1000


@pytest.mark.parametrize(
    ("time", "value", "planes", "floats"),
    [
        (_SECONDS, _WALK, (0, 2), ()),
        (_JITTERED, _WALK, (1, 2), ()),
        (_SECONDS, np.full(3600, 12.5), (0, 0), ()),
        (_SECONDS, np.rint(_WALK), (0, 1), ()),
        (_SECONDS, _RANDOM.normal(50, 10, 3600), (0, 0), ("float8s",)),
        (_SECONDS, _RANDOM.normal(50, 10, 3600).astype(np.float32).astype(np.float64), (0, 0), ("float4s",)),
        (_SECONDS, np.where(np.arange(3600) % 50 == 0, np.nan, _WALK), (0, 2), ("float8s",)),
    ],
)
def test_hour_takes_its_smallest_form(time: Any, value: Any, planes: tuple[int, int], floats: tuple[str, ...]) -> None:
    """Bytes of a time and of a value, and arrays of values that have no shorter form."""
    channel, status = np.ones(3600, np.int32), np.zeros(3600, np.int32)
    [row] = rows(copy_stream(pack(channel, time + _DAY_US, value.view(np.uint64), status)))
    assert tuple(sum(plane is not None for plane in row[kind]) for kind in ("t", "v")) == planes
    assert tuple(name for name in ("float4s", "float8s", "statuses") if row[name] is not None) == floats
