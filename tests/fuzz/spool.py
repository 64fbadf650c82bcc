"""Spool: a record of the spool file is the batch that its columns speak of, or SpoolCorrupt.

- A body that is not the one whose checksum was written is always SpoolCorrupt.
- A batch has as many rows as its record says, at least one; its times are those of a column, and encoded again and
  decoded again it is the same.

Input: kind (and whether the checksum is the body's); rows, as two bytes; the body.
"""

from __future__ import annotations

import zlib
from dataclasses import replace

from core.batch import CountBatch, Event, EventBatch, Gap, GapBatch, SampleBatch
from core.errors import SpoolCorrupt
from ingest.spool.format import BatchKind, Record, decode, encode
from tests.samples import T0, batch, count_batch

MAX_LEN = 1024
WORDS = (
    b'"type": "text"',
    b'"time": ',
    b'"channel_id": null',
    b'"channel_ids": [',
    b'"detail": {}',
    b'"from_time": ',
    b'"backfilled": true',
    b'{"types": ["a"], "digest": null}',
    b"NaN",
    b"1e999",
    b"null",
    b"{",
    b"[",
)

_KINDS: tuple[BatchKind, ...] = ("samples", "events", "gaps", "counts")
_TYPES = {"samples": SampleBatch, "events": EventBatch, "gaps": GapBatch, "counts": CountBatch}
_DAMAGED = 0x80
_LIMITS = (-(2**63), 2**63 - 1)


def check(data: bytes) -> None:
    """Raises AssertionError where the contract does not hold for ``data``."""
    if len(data) < 3:
        return
    kind = _KINDS[(data[0] & ~_DAMAGED) % len(_KINDS)]
    rows = int.from_bytes(data[1:3], "little", signed=True)
    body = data[3:]
    crc32 = zlib.crc32(body) ^ (1 if data[0] & _DAMAGED else 0)
    record = Record(1, kind, rows, T0, T0, T0, crc32, body)
    try:
        decoded = decode(record)
    except SpoolCorrupt:
        return
    assert not data[0] & _DAMAGED, "a damaged body was taken"
    assert len(decoded) == rows >= 1
    assert isinstance(decoded, _TYPES[kind])
    again = encode(decoded)
    assert (again.kind, again.rows) == (kind, rows)
    assert _LIMITS[0] <= again.first_time <= again.last_time <= _LIMITS[1] or kind == "gaps"
    assert encode(decode(again)) == again
    if kind == "samples":
        assert again.body == body


def seeds() -> dict[str, bytes]:
    """Records of every kind by the encoder, whole and damaged."""
    events = (
        Event("text", T0, 7, 0, "AUTO"),
        Event("channel_state", T0 + 1, 7, 0x80050000, "bad", {"reason": "no answer within 1 s"}),
        Event("restart", T0 + 2),
    )
    gaps = (
        Gap(T0, None, "disconnected"),
        Gap(T0, T0 + 5, "overflow", (1, 2, 3), "the server's queue was full", True),
    )
    found = {}
    for stored in (
        batch([(1, 0, 1.5, 0), (2, -1, float("nan"), 0x80050000)]),
        EventBatch(1, T0, events),
        GapBatch(1, T0, gaps),
        count_batch([(0, "pulses.n", 7, 3), (-1, "alarms.high", 0, 0)], digest=-7),
    ):
        record = encode(stored)
        for name, flag, one in (
            ("", 0, record),
            ("-damaged", _DAMAGED, record),
            ("-cut", 0, replace(record, body=record.body[:-5])),
            ("-too-many", 0, replace(record, rows=record.rows + 1)),
        ):
            number = _KINDS.index(one.kind) | flag
            found[f"{one.kind}{name}"] = bytes((number,)) + one.rows.to_bytes(2, "little") + one.body
    found["samples-as-events"] = b"\1" + found["samples"][1:]
    found["events-as-gaps"] = b"\2" + found["events"][1:]
    return found
