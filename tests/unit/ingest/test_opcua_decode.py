"""The notification decoder, against asyncua's codec, and against garbage."""

from __future__ import annotations

import struct
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from math import prod
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary
from hypothesis import given
from hypothesis import strategies as st

from core.errors import DecodeError
from core.timestamps import microseconds
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.decoded import FIRST_STRUCTURE, DataChange, DecodeRules
from ingest.opcua.decode.members import MemberChannel, StructureDecoder
from ingest.opcua.decode.message import publish_response

ARRIVAL = 1_790_000_000_123_456
V = ua.VariantType

_NUMBERS: dict[Any, st.SearchStrategy[Any]] = {
    V.Boolean: st.booleans(),
    V.SByte: st.integers(-128, 127),
    V.Byte: st.integers(0, 255),
    V.Int16: st.integers(-(2**15), 2**15 - 1),
    V.UInt16: st.integers(0, 2**16 - 1),
    V.Int32: st.integers(-(2**31), 2**31 - 1),
    V.UInt32: st.integers(0, 2**32 - 1),
    V.Int64: st.integers(-(2**53), 2**53),
    V.UInt64: st.integers(0, 2**53),
    V.Float: st.floats(width=32),
    V.Double: st.floats(),
}
_TIMES = st.none() | st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)).map(lambda t: t.replace(tzinfo=UTC))


@st.composite
def items(draw: st.DrawFn) -> tuple[int, Any]:
    kind = draw(st.sampled_from([*_NUMBERS, V.String, V.DateTime, V.Guid, None]))
    handle = draw(st.integers(0, 2**32 - 1))
    if kind is None:
        variant = None
    elif kind in _NUMBERS:
        array = draw(st.integers(0, 9)) == 0
        value = draw(st.lists(_NUMBERS[kind], min_size=1, max_size=3)) if array else draw(_NUMBERS[kind])
        variant = ua.Variant(value, kind)
    elif kind is V.String:
        variant = ua.Variant(draw(st.text()), kind)
    elif kind is V.DateTime:
        variant = ua.Variant(datetime(2020, 1, 1, tzinfo=UTC), kind)
    else:
        variant = ua.Variant(draw(st.uuids()), kind)
    status = draw(st.sampled_from([None, 0, 0x80050000, 0x40920000, 0x480]))
    value = ua.DataValue(
        variant,
        None if status is None else ua.StatusCode(status),
        SourceTimestamp=draw(_TIMES),
        ServerTimestamp=draw(_TIMES),
    )
    return handle, value


# Runs of alike items with something else between, as servers send them
SEQUENCES = st.lists(st.tuples(items(), st.integers(1, 90)), max_size=12).map(
    lambda parts: [item for item, times in parts for item in [item] * times]
)


def encode(sequence: list[tuple[int, Any]]) -> bytes:
    notification = ua.DataChangeNotification(
        MonitoredItems=[ua.MonitoredItemNotification(handle, value) for handle, value in sequence]
    )
    return bytes(struct_to_binary(notification))


def expected(handle: int, value: Any) -> tuple[int, Any, int, int]:
    time = (
        microseconds(value.SourceTimestamp or value.ServerTimestamp)
        if (value.SourceTimestamp or value.ServerTimestamp)
        else ARRIVAL
    )
    status = value.StatusCode.value if value.StatusCode is not None else 0
    return handle, value.Value, status, time


def rows(change: DataChange) -> list[tuple[int, bytes, int, int]]:
    if not change.handle:
        return []
    columns = [np.concatenate(c) for c in (change.handle, change.value, change.status, change.time)]
    return [(int(h), v.tobytes(), int(s), int(t)) for h, v, s, t in zip(*columns, strict=True)]


def text_of(variant: Any) -> str:
    value = variant.Value
    return f"{value:%Y-%m-%dT%H:%M:%S}Z" if variant.VariantType is V.DateTime else str(value)


@given(SEQUENCES)
def test_values_encoded_by_asyncua_are_decoded(sequence: list[tuple[int, Any]]) -> None:
    body = encode(sequence)
    change = data_change(b"xx" + body + b"yy", 2, 2 + len(body), ARRIVAL)
    numbers, texts, unsupported = [], [], []
    for handle, variant, status, time in (expected(*item) for item in sequence):
        if variant is None:
            numbers.append((handle, struct.pack("d", np.nan), status, time))
        elif variant.VariantType is V.String and not variant.is_array:
            texts.append((handle, variant.Value, status, time))
        elif variant.VariantType in _NUMBERS and not variant.is_array:
            numbers.append((handle, struct.pack("d", float(variant.Value)), status, time))
        elif variant.VariantType is V.Null:
            numbers.append((handle, struct.pack("d", np.nan), status or 0x80740000, time))
        elif not variant.is_array:
            texts.append((handle, text_of(variant), status, time))
        else:
            unsupported.append(handle)
    assert [u.handle for u in change.unsupported] == unsupported
    nan = struct.pack("d", np.nan)
    decoded = [(h, nan if np.isnan(np.frombuffer(v)[0]) else v, s, t) for h, v, s, t in rows(change)]
    assert decoded == [(h, nan if np.isnan(np.frombuffer(v)[0]) else v, s, t) for h, v, s, t in numbers]
    assert [(t.handle, t.text, t.status, t.time) for t in change.texts] == texts


@given(SEQUENCES, st.data())
def test_truncated_or_damaged_message_is_refused_or_decoded(
    sequence: list[tuple[int, Any]], data: st.DataObject
) -> None:
    body = bytearray(encode(sequence))
    for _ in range(data.draw(st.integers(0, 4))):
        if body:
            body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        change = data_change(cut, 0, len(cut), ARRIVAL)
    except DecodeError:
        return
    assert sum(map(len, change.handle)) + len(change.texts) <= len(cut)


@given(st.binary(max_size=300))
def test_garbage_is_refused_as_publish_response(body: bytes) -> None:
    with pytest.raises(DecodeError):
        publish_response(body)
        raise DecodeError("decoded")


def test_complete_publish_response_is_decoded() -> None:
    change = ua.DataChangeNotification(
        MonitoredItems=[ua.MonitoredItemNotification(3, ua.DataValue(ua.Variant(1.5, V.Double)))]
    )
    response = ua.PublishResponse()
    response.Parameters.SubscriptionId = 77
    response.Parameters.AvailableSequenceNumbers = [4, 5]
    response.Parameters.MoreNotifications = True
    response.Parameters.NotificationMessage.SequenceNumber = 5
    response.Parameters.NotificationMessage.NotificationData = [change]
    body = bytes(struct_to_binary(response))
    decoded = publish_response(body)
    assert (decoded.subscription_id, decoded.available, decoded.notification.more) == (77, frozenset({4, 5}), True)
    assert decoded.notification.sequence == 5
    ((start, end),) = decoded.notification.data_changes
    assert [row[:1] for row in rows(data_change(body, start, end, ARRIVAL))] == [(3,)]
    with pytest.raises(DecodeError):
        publish_response(body[:-30])


def test_an_array_length_beyond_the_message_allocates_nothing() -> None:
    with pytest.raises(DecodeError, match="an array of 2147483647 elements"):
        data_change(struct.pack("<i", 2**31 - 1) + bytes(40), 0, 44, ARRIVAL)


NODE = "nsu=urn:x;s=a"
FORMS = [
    (ua.Variant(ua.LocalizedText("Füllstand", "de"), V.LocalizedText), "Füllstand"),
    (ua.Variant(ua.LocalizedText(None), V.LocalizedText), ""),
    (ua.Variant(datetime(2026, 3, 9, 7, 5, 1, 250_000, tzinfo=UTC), V.DateTime), "2026-03-09T07:05:01.25Z"),
    (ua.Variant(UUID("72962b91-fa75-4ae6-8d28-b404dc7daf63"), V.Guid), "72962b91-fa75-4ae6-8d28-b404dc7daf63"),
    (ua.Variant(b"\x00\xff7", V.ByteString), "00ff37"),
    (ua.Variant(ua.XmlElement("<a>1</a>"), V.XmlElement), "<a>1</a>"),
    (ua.Variant(ua.NodeId(85, 0), V.NodeId), "i=85"),
    (ua.Variant(ua.NodeId(70000, 3), V.NodeId), "ns=3;i=70000"),
    (ua.Variant(ua.NodeId("a;b=c", 2), V.NodeId), "ns=2;s=a;b=c"),
    (
        ua.Variant(ua.NodeId(UUID("72962b91-fa75-4ae6-8d28-b404dc7daf63"), 1), V.NodeId),
        "ns=1;g=72962b91-fa75-4ae6-8d28-b404dc7daf63",
    ),
    (ua.Variant(ua.ExpandedNodeId("a", 0, NamespaceUri="urn:x"), V.ExpandedNodeId), NODE),
    (ua.Variant(ua.StatusCode(0x80050000), V.StatusCode), "0x80050000"),
    (ua.Variant(ua.QualifiedName("Level", 1), V.QualifiedName), "1:Level"),
    (ua.Variant("AUTO", V.String), "AUTO"),
    (ua.Variant(True, V.Boolean), "true"),
    (ua.Variant(-7, V.SByte), "-7"),
    (ua.Variant(0.1, V.Float), "0.1"),
    (ua.Variant(1 / 3, V.Double), "0.3333333333333333"),
    (ua.Variant(2**63 - 1, V.Int64), "9223372036854775807"),
    (ua.Variant(2**64 - 1, V.UInt64), "18446744073709551615"),
]


@pytest.mark.parametrize("status", [0, 0x80050000])
def test_each_scalar_type_has_a_text_form(status: int) -> None:
    values = [
        (i, ua.DataValue(v, ua.StatusCode(status), datetime(2026, 1, 1, tzinfo=UTC))) for i, (v, _) in enumerate(FORMS)
    ]
    body = encode(values)
    change = data_change(body, 0, len(body), ARRIVAL, DecodeRules(np.ones(1, bool)))
    assert [(t.handle, t.text, t.status) for t in change.texts] == [
        (i, text, status) for i, (_, text) in enumerate(FORMS)
    ]
    assert not rows(change)
    assert not change.unsupported


def test_numbers_are_exact_on_text_channels_only() -> None:
    large = 2**53 + 1
    body = encode([(handle, ua.DataValue(ua.Variant(large, V.Int64))) for handle in (0, 1, 2, 9)])
    change = data_change(body, 0, len(body), ARRIVAL, DecodeRules(np.array([False, True, False])))
    assert [(t.handle, t.text) for t in change.texts] == [(1, str(large))]
    assert [row[0] for row in rows(change)] == [0, 2, 9]
    assert np.concatenate(change.rounded).tolist() == [0, 2, 9]


@pytest.mark.parametrize("value", [2**53, 2**60, -(2**63), 0])
def test_integer_within_double_precision_is_not_reported_as_rounded(value: int) -> None:
    body = encode([(0, ua.DataValue(ua.Variant(value, V.Int64)))])
    assert not data_change(body, 0, len(body), ARRIVAL).rounded


@pytest.mark.parametrize(("value", "kind"), [(2**63 - 1, V.Int64), (2**64 - 1, V.UInt64), (-(2**53) - 1, V.Int64)])
def test_integer_beyond_double_precision_is_reported_as_rounded(value: int, kind: Any) -> None:
    body = encode([(4, ua.DataValue(ua.Variant(value, kind)))])
    assert [run.tolist() for run in data_change(body, 0, len(body), ARRIVAL).rounded] == [[4]]


_ARRAY_TYPES = {**_NUMBERS, V.String: st.text(), V.Guid: st.uuids(), V.ByteString: st.binary()}
_ARRAYS = st.sampled_from([*_ARRAY_TYPES]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(_ARRAY_TYPES[kind], max_size=5))
)


def wanting(*indexes: int | tuple[int, ...]) -> DecodeRules:
    """These elements, one of each handle from 0 on."""
    elements = [(index,) if isinstance(index, int) else index for index in indexes]
    return DecodeRules(element=np.array([*range(len(elements)), -1], np.int64), elements=elements)


def texts_and_numbers(change: DataChange) -> list[tuple[Any, ...]]:
    return [*rows(change), *((t.handle, t.text, t.status, t.time) for t in change.texts)]


@given(st.lists(st.tuples(_ARRAYS, st.integers(0, 6), st.booleans()), max_size=6), st.booleans())
def test_element_is_decoded_like_a_scalar(parts: list[tuple[tuple[Any, list[Any]], int, bool]], whole: bool) -> None:
    """Of whole arrays, and of the element alone; where the array ends before it, the value is Bad."""
    time = datetime(2026, 1, 1, tzinfo=UTC)
    arrays, scalars = [], []
    for handle, ((kind, array), index, _) in enumerate(parts):
        sent = array if whole else array[index : index + 1]
        arrays.append((handle, ua.DataValue(ua.Variant(sent, kind, is_array=True), SourceTimestamp=time)))
        beyond = ua.DataValue(StatusCode=ua.StatusCode(ua.StatusCodes.BadIndexRangeNoData), SourceTimestamp=time)
        value = ua.DataValue(ua.Variant(array[index], kind), SourceTimestamp=time) if index < len(array) else beyond
        scalars.append((handle, value))
    exact = np.array([*(text for _, _, text in parts), False])
    body = encode(arrays)
    found = data_change(
        body,
        0,
        len(body),
        ARRIVAL,
        replace(wanting(*(index for _, index, _ in parts)), exact=exact, whole_arrays=whole),
    )
    same = encode(scalars)
    assert texts_and_numbers(found) == texts_and_numbers(data_change(same, 0, len(same), ARRIVAL, DecodeRules(exact)))
    assert not found.unsupported


def test_element_of_a_whole_array_that_was_not_requested() -> None:
    """Some servers apply an IndexRange to their own variables only."""
    body = encode([(0, ua.DataValue(ua.Variant([1.0, 2.0, 3.0], V.Double)))])
    assert rows(data_change(body, 0, len(body), ARRIVAL, wanting(1)))[0][1] == struct.pack("d", 2.0)


@given(st.lists(st.integers(1, 3), min_size=2, max_size=3), st.sampled_from([V.Int32, V.String]), st.booleans())
def test_elements_of_a_matrix_share_an_item(lengths: list[int], kind: Any, as_text: bool) -> None:
    """The last dimension comes first; what the matrix does not have is Bad, an index of others is named."""
    values: list[Any] = [place if kind == V.Int32 else f"v{place}" for place in range(prod(lengths))]
    every = list(product(*(range(length + 1) for length in lengths)))
    wanted = [MemberChannel(handle, f"[{','.join(map(str, one))}]") for handle, one in enumerate(every)]
    decoder = StructureDecoder(
        "no structure", [*wanted, MemberChannel(len(every), "[0,0,0,0]"), MemberChannel(len(every) + 1, "Speed")]
    )
    time = datetime(2026, 1, 1, tzinfo=UTC)
    matrix = ua.DataValue(ua.Variant(values, kind, Dimensions=lengths, is_array=True), SourceTimestamp=time)
    after = ua.DataValue(ua.Variant(1.5, V.Double), SourceTimestamp=time)
    body = encode([(FIRST_STRUCTURE, matrix), (7000, after)])
    rules = DecodeRules(np.ones(1, bool) if as_text else None, structures={FIRST_STRUCTURE: decoder})
    change = data_change(body, 0, len(body), ARRIVAL, rules)
    found: dict[int, Any] = {t.handle: t.text for t in change.texts}
    assert {t.time for t in change.texts} <= {microseconds(time)}
    for handle, value, status, at in rows(change):
        found[handle] = struct.unpack("d", value)[0] if status == 0 else hex(status)
        assert at == microseconds(time)
    assert found.pop(7000) == ("1.5" if as_text else 1.5)
    inside = iter(map(str, values) if as_text else values)
    no_data = hex(ua.StatusCodes.BadIndexRangeNoData)
    assert found == {h: next(inside) if all(map(int.__lt__, i, lengths)) else no_data for h, i in enumerate(every)}
    array = f"an array of {kind.name} of {len(lengths)} dimensions"
    assert {u.handle: u.reason for u in change.unsupported} == {
        len(every): f"{array}: an element has an index of {len(lengths)} numbers, as in {','.join('0' * len(lengths))}",
        len(every) + 1: f"an array of {kind.name}, not a structure: clear the column member",
    }


@pytest.mark.parametrize("value", [ua.Variant(1.5, V.Double), ua.Variant("x", V.String)])
def test_value_that_is_no_matrix_is_named(value: Any) -> None:
    decoder = StructureDecoder("no structure", [MemberChannel(0, "[0,1]"), MemberChannel(1, "Speed")])
    body = encode([(FIRST_STRUCTURE, ua.DataValue(value)), (FIRST_STRUCTURE + 1, ua.DataValue(value))])
    change = data_change(body, 0, len(body), ARRIVAL, DecodeRules(structures={FIRST_STRUCTURE: decoder}))
    what = f"a {value.VariantType.name}, not "
    assert {u.handle: u.reason for u in change.unsupported if u.handle < 2} == {
        0: f"{what}an array: clear the column index",
        1: f"{what}a structure: clear the column member",
    }


def test_matrix_without_a_value_is_bad() -> None:
    decoder = StructureDecoder("no structure", [MemberChannel(0, "[0,1]"), MemberChannel(1, "[0,2]")])
    bad = ua.StatusCode(0x80050000)
    values = [ua.DataValue(StatusCode=bad), ua.DataValue(ua.Variant(None, V.Null), bad)]
    body = encode([(FIRST_STRUCTURE, value) for value in values])
    change = data_change(body, 0, len(body), ARRIVAL, DecodeRules(structures={FIRST_STRUCTURE: decoder}))
    assert [(row[0], row[2]) for row in rows(change)] == [(0, bad.value), (1, bad.value)] * 2


def test_values_that_are_no_arrays_or_have_no_elements_are_named() -> None:
    matrix = ua.Variant([[1.0, 2.0], [3.0, 4.0]], V.Double)
    values = [
        *(ua.Variant(1.0, V.Double), ua.Variant("x", V.String), matrix),
        *(ua.Variant([ua.Range()], V.ExtensionObject), ua.Variant([1.0], V.Double), matrix),
    ]
    body = encode([(handle, ua.DataValue(value)) for handle, value in enumerate(values)])
    change = data_change(body, 0, len(body), ARRIVAL, wanting(0, 0, 0, 0))
    assert {u.handle: u.reason for u in change.unsupported} == {
        0: "a Double, not an array: clear the column index",
        1: "a String, not an array: clear the column index",
        2: "an array of Double of 2 dimensions: an element has an index of 2 numbers, as in 0,0",
        3: "an array of structures: the column member reads a member of an element, as in [0].Speed",
        4: "an array of Double: the column index reads an element",
        5: "an array of Double of 2 dimensions: the column index reads an element, as in 0,0",
    }
    assert not rows(change)


@given(st.binary(max_size=60), st.integers(0, 9), st.booleans())
def test_array_of_garbage_is_refused_or_decoded(garbage: bytes, index: int, whole: bool) -> None:
    body = struct.pack("<iIB", 1, 0, 1) + garbage
    try:
        change = data_change(body, 0, len(body), ARRIVAL, replace(wanting(index), whole_arrays=whole))
    except DecodeError:
        return
    assert len(rows(change)) + len(change.texts) + len(change.unsupported) == 1


def test_rounded_element_is_reported() -> None:
    body = encode([(4, ua.DataValue(ua.Variant([0, 2**53 + 1], V.Int64)))])
    change = data_change(
        body, 0, len(body), ARRIVAL, DecodeRules(element=np.zeros(1, np.int64), elements=[(1,)], whole_arrays=True)
    )
    assert [run.tolist() for run in change.rounded] == [[4]]


@pytest.mark.parametrize("unsized", [False, True])
def test_bodies_without_a_length(unsized: bool) -> None:
    """Old servers say a length of -1 (OPC 10000-6, 5.2.2.15): the end of a body follows from its content."""

    def body(type_id: int, content: bytes) -> bytes:
        return b"\x01\x00" + struct.pack("<HBi", type_id, 1, -1 if unsized else len(content)) + content

    changes = [
        ua.DataChangeNotification(
            MonitoredItems=[
                ua.MonitoredItemNotification(n, ua.DataValue(ua.Variant(value), ua.StatusCode(0)))
                for n, value in enumerate(values)
            ],
            DiagnosticInfos=[ua.DiagnosticInfo(SymbolicId=3, AdditionalInfo="why")] if diagnostics else [],
        )
        for values, diagnostics in (([1.5, 2.5], True), (["text", [1, 2, 3], None, True], False), ([7], True))
    ]
    status = ua.StatusChangeNotification(Status=ua.StatusCode(0x80AA0000), DiagnosticInfo=ua.DiagnosticInfo())
    events = ua.EventNotificationList(Events=[ua.EventFieldList(4, [ua.Variant("alarm"), ua.Variant(500)])])
    contents = [(811, struct_to_binary(change)) for change in changes]
    contents += [(916, struct_to_binary(events)), (820, struct_to_binary(status))]
    header = b"\x01\x00" + struct.pack("<HqIIBiBBB", 829, 0, 1, 0, 0, 0, 0, 0, 0)
    message = header + struct.pack("<IiBIqi", 5, 0, 0, 9, 0, len(contents)) + b"".join(body(*one) for one in contents)
    found = publish_response(message + bytes(8)).notification
    assert [message[start:end] for start, end in found.data_changes] == [content for _, content in contents[:3]]
    assert [message[start:end] for start, end in found.events] == [contents[3][1]]
    assert found.status == 0x80AA0000
