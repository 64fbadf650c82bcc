"""Bad input, property by property: what is real and then damaged, and what encoders make at random."""

from __future__ import annotations

import gzip
import struct
import zlib
from dataclasses import replace
from typing import Any

import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary, variant_to_binary
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import DecodeError, SpoolCorrupt
from core.opcua.binary import FieldReader
from ingest.modbus.failures import FramingError
from ingest.modbus.frame import Frame, TcpFramer
from ingest.opcua.recovery.history import answers
from ingest.push.body import BodyRefused, GzipReader
from ingest.spool.format import BatchKind, decode, encode
from tests.fuzz.targets import NAMES, inputs, target
from tests.samples import batch

V = ua.VariantType


@st.composite
def damaged(draw: st.DrawFn, name: str) -> bytes:
    """A kept input of a target with a few bytes changed, removed, repeated or put in."""
    data = bytearray(draw(st.sampled_from([*inputs(name).values()])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["set", "cut", "repeat", "insert"])):
            case "set":
                data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
            case "cut":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case _:
                data[at:at] = draw(st.sampled_from(target(name).words) | st.binary(min_size=1, max_size=8))
    return bytes(data)


@pytest.mark.parametrize("name", NAMES)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data())
def test_valid_messages_and_damaged_copies_of_them(name: str, data: st.DataObject) -> None:
    target(name).check(data.draw(damaged(name)))


FRAMES = st.lists(st.builds(Frame, st.integers(0, 0xFFFF), st.integers(0, 0xFF), st.binary(min_size=1, max_size=253)))


def wire(frame: Frame) -> bytes:
    return struct.pack(">HHHB", frame.transaction, 0, len(frame.pdu) + 1, frame.unit_id) + frame.pdu


@given(FRAMES, st.integers(1, 300), st.binary(max_size=6))
def test_frames_are_reassembled_from_any_fragments(frames: list[Frame], size: int, rest: bytes) -> None:
    stream = b"".join(map(wire, frames)) + rest
    framer = TcpFramer()
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert [frame for piece in pieces for frame in framer.feed(piece)] == frames


@given(FRAMES, st.binary(min_size=7).filter(lambda b: b[2:4] != b"\0\0" or not 2 <= int.from_bytes(b[4:6]) <= 254))
def test_invalid_frame_ends_the_stream_after_the_valid_ones(frames: list[Frame], other: bytes) -> None:
    got: list[Frame] = []
    with pytest.raises(FramingError):
        got.extend(TcpFramer().feed(b"".join(map(wire, frames)) + other))
    assert got == frames


NODE_IDS = st.one_of(
    st.builds(ua.NodeId, st.integers(0, 2**32 - 1), st.integers(0, 2**16 - 1)),
    st.builds(ua.NodeId, st.text(max_size=9), st.integers(0, 2**16 - 1)),
    st.builds(ua.NodeId, st.uuids(), st.integers(0, 2**16 - 1)),
    st.builds(
        lambda uri, index: ua.ExpandedNodeId(7, 0, ua.NodeIdType.Numeric, uri, index),
        st.text(min_size=1, max_size=9),
        st.integers(1, 2**32 - 1),
    ),
)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    V.Boolean: st.booleans(),
    V.Byte: st.integers(0, 255),
    V.Int64: st.integers(-(2**63), 2**63 - 1),
    V.Float: st.floats(width=32),
    V.String: st.none() | st.text(st.characters(codec="utf-8")),
    V.ByteString: st.none() | st.binary(),
    V.Guid: st.uuids(),
    V.NodeId: NODE_IDS,
    V.ExpandedNodeId: NODE_IDS,
    V.StatusCode: st.integers(0, 2**32 - 1).map(ua.StatusCode),
    V.QualifiedName: st.builds(ua.QualifiedName, st.text(max_size=9), st.integers(0, 2**15 - 1)),
    V.LocalizedText: st.builds(ua.LocalizedText, st.text(max_size=9), st.none() | st.text(max_size=3)),
    V.ExtensionObject: st.builds(ua.Range, st.floats(), st.floats()),
}


def one_of(kinds: dict[Any, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    return st.one_of(
        [st.builds(ua.Variant, values, st.just(kind)) for kind, values in kinds.items()]
        + [
            st.builds(ua.Variant, st.lists(values, min_size=1, max_size=3), st.just(kind))
            for kind, values in kinds.items()
        ]
    )


VARIANTS = st.recursive(
    one_of(SCALARS),
    lambda inner: one_of({V.Variant: inner, V.DataValue: st.builds(ua.DataValue, inner)}),
    max_leaves=5,
)


@settings(max_examples=40)  # each is cut at each of its bytes
@given(VARIANTS, st.binary(max_size=5))
def test_variant_is_skipped_to_exactly_its_last_byte(variant: Any, behind: bytes) -> None:
    encoded = bytes(variant_to_binary(variant))
    reader = FieldReader(encoded + behind)
    reader.variant()
    assert reader.at == len(encoded)
    for end in range(len(encoded)):
        with pytest.raises(DecodeError):
            FieldReader(encoded[:end]).variant()


@pytest.mark.parametrize(
    ("encoded", "why"),
    [
        (b"\x80\xff\xff\xff\x7f", "array of null variants"),
        (b"\x98\xff\xff\xff\x7f", "an array of 2147483647 elements"),
        (b"\x8b\xff\xff\xff\x7f", "an array of 2147483647 elements"),
        (b"\x18" * 1000, "nested too deep"),
        (b"\x19" + b"\x40" * 1000, "nested too deep"),
        (b"\x17\x01" * 1000, "nested too deep"),
        (b"\x28", "unknown type 40"),
    ],
)
def test_oversized_input_is_refused_at_once(encoded: bytes, why: str) -> None:
    with pytest.raises(DecodeError, match=why):
        FieldReader(encoded).variant()


@given(st.lists(st.lists(st.floats(), max_size=9), max_size=4))
def test_history_results_are_kept_apart_by_node(histories: list[list[float]]) -> None:
    response = ua.HistoryReadResponse()
    response.Results = [
        ua.HistoryReadResult(
            ua.StatusCode(0),
            b"more",
            ua.HistoryData(DataValues=[ua.DataValue(ua.Variant(v, V.Double)) for v in values]),
        )
        for values in histories
    ]
    asked = [7, 5, 6]
    got = list(answers(bytes(struct_to_binary(response)), asked, 0))
    assert [answer.tag for answer in got] == asked
    for answer, values in zip(got, histories, strict=False):
        assert answer.change is not None
        assert answer.point == b"more"
        assert [value for run in answer.change.value for value in run.tolist()] == pytest.approx(values, nan_ok=True)
        assert {handle for run in answer.change.handle for handle in run.tolist()} <= {answer.tag}
    assert all(answer.change is None and answer.status == 0x8000_0000 for answer in got[len(histories) :])


def inflated(pieces: list[bytes], limit: int) -> bytes | int:
    inflate = GzipReader(limit)
    try:
        content = b"".join([inflate.feed(piece) for piece in pieces])
        inflate.finish()
    except BodyRefused as refused:
        return refused.status
    return content


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=5), st.integers(1, 99), st.integers(0, 500))
def test_gzip_is_inflated_to_the_limit_and_no_further(members: list[bytes], size: int, limit: int) -> None:
    packed = b"".join(gzip.compress(member, mtime=0) for member in members)
    content = b"".join(members)
    expected = content if len(content) <= limit else 413
    assert inflated([packed[at : at + size] for at in range(0, len(packed), size)], limit) == expected
    assert inflated([packed], limit) == expected


@given(st.binary(max_size=200), st.data())
def test_truncated_gzip_is_never_accepted(content: bytes, data: st.DataObject) -> None:
    packed = gzip.compress(content, mtime=0)
    assert inflated([packed[: data.draw(st.integers(0, len(packed) - 1))]], 10_000) == 400


@given(st.sampled_from(["samples", "events", "gaps"]), st.integers(-3, 9), st.binary(max_size=100) | st.just(b"[]"))
def test_spool_row_with_wrong_kind_or_count_is_corrupt(kind: BatchKind, rows: int, body: bytes) -> None:
    record = replace(encode(batch([(1, 0, 1.0, 0)])), kind=kind, rows=rows, body=body, crc32=zlib.crc32(body))
    if kind == "samples" and rows >= 1 and len(body) == 24 * rows:
        assert len(decode(record)) == rows
    else:
        with pytest.raises(SpoolCorrupt):
            decode(record)
