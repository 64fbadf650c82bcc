"""Members of structures, against asyncua's encoder, and against garbage. Definitions and values are made up."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np
import pytest
from asyncua import ua
from asyncua.common.structures104 import make_structure
from asyncua.ua.ua_binary import struct_to_binary
from hypothesis import given
from hypothesis import strategies as st

from ingest.errors import DecodeError
from ingest.opcua.data_change import data_change
from ingest.opcua.decoded import FIRST_STRUCTURE, DataChange, Forms
from ingest.opcua.members import Picker, Wanted
from ingest.opcua.structure import STRUCTURE, Field, Structure
from ingest.timestamps import microseconds

V = ua.VariantType
TIME = datetime(2026, 1, 1, tzinfo=UTC)
ENCODING = ua.NodeId(5001, 2)
ABSENT, NO_ELEMENT, BAD_TYPE, BAD_DECODING = 0x80B10000, 0x80370000, 0x80740000, 0x80070000

_INTEGERS = {2: (-(2**7), 2**7), 3: (0, 2**8), 4: (-(2**15), 2**15), 5: (0, 2**16), 6: (-(2**31), 2**31)}
_INTEGERS |= {7: (0, 2**32), 8: (-(2**63), 2**63), 9: (0, 2**64)}
_VALUES: dict[int, st.SearchStrategy[Any]] = {
    1: st.booleans(),
    **{kind: st.integers(low, beyond - 1) for kind, (low, beyond) in _INTEGERS.items()},
    10: st.floats(width=32, allow_nan=False),
    11: st.floats(allow_nan=False),
    12: st.text(),
    13: st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)).map(lambda t: t.replace(microsecond=0, tzinfo=UTC)),
    14: st.uuids(),
    15: st.binary(max_size=5),
    20: st.builds(ua.QualifiedName, st.text(min_size=1), st.integers(0, 9)),
}
_FORMS: tuple[Literal["plain", "optional", "union"], ...] = ("plain", "plain", "optional", "union")
_TEXTS: dict[int, Callable[[Any], str]] = {
    1: lambda v: str(v).lower(),
    10: lambda v: str(np.float32(v)),
    13: lambda v: f"{v:%Y-%m-%dT%H:%M:%S}Z",
    15: lambda v: v.hex(),
    20: lambda v: f"{v.NamespaceIndex}:{v.Name}" if v.NamespaceIndex else v.Name,
}


@st.composite
def structures(draw: st.DrawFn, depth: int = 0) -> Structure:
    form = draw(st.sampled_from(_FORMS))
    fields = []
    for number in range(draw(st.integers(1, 5))):
        optional = form == "optional" and (number == 0 or draw(st.booleans()))
        inside = draw(structures(depth + 1)) if depth < 2 and draw(st.integers(0, 3)) == 0 else None
        kind = STRUCTURE if inside else draw(st.sampled_from(list(_VALUES)))
        dimensions = int(form != "union" and draw(st.integers(0, 4)) == 0)  # asyncua encodes no union with an array
        fields.append(Field(f"f{number}", kind, inside, dimensions, optional))
    return Structure("made", "ns=2;i=5001" if depth == 0 else "", form, fields)


class Theirs:
    """asyncua's classes of a structure and of those within. Their data types are registered anew for each example."""

    def __init__(self, structure: Structure, numbers: Iterator[int]) -> None:
        self.structure = structure
        self.inside = {one.name: Theirs(one.structure, numbers) for one in structure.fields if one.structure}
        self.data_type = ua.NodeId(next(numbers), 2)
        fields = [
            ua.StructureField(
                Name=one.name,
                DataType=self.inside[one.name].data_type if one.structure else ua.NodeId(one.type),
                ValueRank=1 if one.dimensions else -1,
                IsOptional=one.optional,
            )
            for one in structure.fields
        ]
        form = ua.StructureType(("plain", "optional", "union").index(structure.form))
        name = f"Made{self.data_type.Identifier}"
        definition = ua.StructureDefinition(StructureType=form, Fields=fields)
        self.made = make_structure(self.data_type, name, definition)[name]
        encoding = ENCODING if structure.encoding else ua.NodeId(self.data_type.Identifier + 1000, 2)
        ua.register_extension_object(name, encoding, self.made, self.data_type)

    def value(self, draw: Any) -> tuple[Any, dict[str, Any]]:
        """A value, and what its members are: values, or lists of them, or the members of a structure."""
        value, members = self.made(), {}
        names = [one.name for one in self.structure.fields]
        only = [draw(st.sampled_from(names))] if self.structure.form == "union" else names
        for one in self.structure.fields:
            if one.name not in only or (one.optional and draw(st.booleans())):
                continue
            if one.structure is None:
                values = _VALUES[one.type]
                theirs = draw(st.lists(values, max_size=4) if one.dimensions else values)
                members[one.name] = theirs
            elif one.dimensions:
                theirs = [self.inside[one.name].value(draw)[0] for _ in range(draw(st.integers(0, 3)))]
            else:
                theirs, members[one.name] = self.inside[one.name].value(draw)
            setattr(value, one.name, theirs)
        return value, members


def encode(values: Sequence[Any], handle: int = FIRST_STRUCTURE) -> bytes:
    items = [ua.DataValue(value, ua.StatusCode(0), SourceTimestamp=TIME) for value in values]
    return bytes(
        struct_to_binary(
            ua.DataChangeNotification(MonitoredItems=[ua.MonitoredItemNotification(handle, item) for item in items])
        )
    )


def wanted_of(structure: Structure) -> list[tuple[str, int | None, int]]:
    """(member, index, built-in type) of all that can be a channel."""
    found: list[tuple[str, int | None, int]] = []
    for name, one in structure.members():
        if one.structure is None:
            found += [(name, index, one.type) for index in ((0, 2) if one.dimensions else (None,))]
    return found


def expected(members: dict[str, Any], name: str, index: int | None) -> Any:
    """The value of a member, or the status code that says why there is none."""
    inside: Any = members
    for part in name.split("."):
        if part not in inside:
            return None, ABSENT
        inside = inside[part]
    if index is None:
        return inside, 0
    return (inside[index], 0) if index < len(inside) else (None, NO_ELEMENT)


def found(change: DataChange) -> dict[int, tuple[float | str, int, int]]:
    """Channel → value, status, µs."""
    columns = (
        [np.concatenate(c) for c in (change.handle, change.value, change.status, change.time)] if change.handle else []
    )
    numbers = {h: (v, s, t) for h, v, s, t in zip(*(c.tolist() for c in columns), strict=True)} if columns else {}
    texts = {t.handle: (t.text, t.status, t.time) for t in change.texts}
    assert not numbers.keys() & texts.keys()
    return numbers | texts


@given(structures(), st.data(), st.booleans())
def test_members_of_structures_that_asyncua_encodes(structure: Structure, data: st.DataObject, as_text: bool) -> None:
    value, members = Theirs(structure, iter(range(1, 1000))).value(data.draw)
    all_of_them = wanted_of(structure)
    some = data.draw(st.lists(st.sampled_from(all_of_them), max_size=6)) if all_of_them else []
    wanted = [Wanted(channel, member, index) for channel, (member, index, _) in enumerate(some)]
    exact = np.ones(1, bool) if as_text else None
    body = encode([ua.Variant(value, V.ExtensionObject)])
    change = data_change(body, 0, len(body), 0, Forms(exact, structures={FIRST_STRUCTURE: Picker(structure, wanted)}))
    rows = found(change)
    assert rows.keys() == set(range(len(some)))
    for channel, (member, index, kind) in enumerate(some):
        theirs, status = expected(members, member, index)
        assert rows[channel][1:] == (status, microseconds(TIME))
        if status:
            assert np.isnan(rows[channel][0])
        elif as_text or kind > 11:
            assert rows[channel][0] == _TEXTS.get(kind, str)(theirs)
        else:
            assert rows[channel][0] == float(theirs)
    assert not change.unsupported
    rounded = {handle for run in change.rounded for handle in run.tolist()}
    large = {
        c
        for c, (m, i, k) in enumerate(some)
        if k in (8, 9) and (v := expected(members, m, i)[0]) and int(float(v)) != v
    }
    assert rounded == (set() if as_text else large)


@given(structures(), st.data())
def test_damaged_structure_is_bad_or_decoded(structure: Structure, data: st.DataObject) -> None:
    """Whatever its bytes are, each member has one sample; bytes that are missing or left over make it Bad."""
    some = [Wanted(channel, member, index) for channel, (member, index, _) in enumerate(wanted_of(structure))]
    value, _ = Theirs(structure, iter(range(1, 1000))).value(data.draw)
    good = ua.ExtensionObject(TypeId=ENCODING, Body=bytes(struct_to_binary(value)))
    other = bytearray(good.Body)
    for _ in range(data.draw(st.integers(0, 3))):
        if other:
            other[data.draw(st.integers(0, len(other) - 1))] = data.draw(st.integers(0, 255))
    longer = ua.ExtensionObject(TypeId=ENCODING, Body=good.Body + b"\0")
    shorter = ua.ExtensionObject(TypeId=ENCODING, Body=good.Body[:-1])
    damaged = ua.ExtensionObject(TypeId=ENCODING, Body=bytes(other))
    calls: list[int] = []
    for body, must_fail in ((longer, True), (shorter, True), (damaged, False)):
        if must_fail and not some:
            continue
        calls.clear()
        picker = Picker(structure, some, lambda: calls.append(1))
        sent = encode([ua.Variant(body, V.ExtensionObject)] * 2)
        rows = found(data_change(sent, 0, len(sent), 0, Forms(structures={FIRST_STRUCTURE: picker})))
        assert rows.keys() == {one.channel for one in some}
        statuses = {status for _, status, _ in rows.values()}
        assert not must_fail or statuses == {BAD_DECODING}
        assert len(calls) == 2 * (BAD_DECODING in statuses), "for each value"


MOTOR = Structure("Motor", "ns=2;i=5002", "plain", [Field("Speeds", 11, dimensions=1), Field("Name", 12)])
DRIVE = Structure(
    "Drive",
    "ns=2;i=5001",
    "plain",
    [
        Field("On", 1),
        Field("Speed", 11),
        Field("Motor", STRUCTURE, MOTOR),
        Field("Any", 24),
        Field("Grid", 6, dimensions=2),
    ],
)


def drive(tail: bytes = b"\0" + struct.pack("<iiiii", 2, 1, 2, 7, 8), encoding: Any = ENCODING) -> Any:
    body = struct.pack("<?didi", True, 2.5, 1, 9.0, 2) + b"ab" + tail
    return ua.Variant(ua.ExtensionObject(TypeId=encoding, Body=body), V.ExtensionObject)


WANTED = [Wanted(0, "Speed"), Wanted(1, "Motor.Speeds", 0), Wanted(2, "Motor.Name"), Wanted(3, "On"), Wanted(4, "On")]


def decoded(value: Any, wanted: list[Wanted], status: int = 0) -> DataChange:
    notification = ua.MonitoredItemNotification(FIRST_STRUCTURE, ua.DataValue(value, ua.StatusCode(status), TIME))
    body = bytes(struct_to_binary(ua.DataChangeNotification(MonitoredItems=[notification])))
    return data_change(body, 0, len(body), 0, Forms(structures={FIRST_STRUCTURE: Picker(DRIVE, wanted)}))


def test_members_before_behind_and_twice() -> None:
    time = microseconds(TIME)
    rows = found(decoded(drive(), WANTED, 0x40920000))
    assert rows == {
        **{0: (2.5, 0x40920000, time), 1: (9.0, 0x40920000, time), 2: ("ab", 0x40920000, time)},
        **{3: (1.0, 0x40920000, time), 4: (1.0, 0x40920000, time)},
    }


@pytest.mark.parametrize(
    ("value", "status", "expected"),
    [
        (drive(encoding=ua.NodeId(5009, 2)), 0, BAD_TYPE),
        (drive(encoding=ua.NodeId(5001, 3)), 0, BAD_TYPE),
        (drive(encoding=ua.NodeId("5001", 2)), 0x80050000, 0x80050000),
        (drive(b"\0"), 0, BAD_DECODING),
        (drive(b"\0" + struct.pack("<iiiii", 2, 1, 2, 7, 8) + b"\0"), 0, BAD_DECODING),
        (drive(b"\0" + struct.pack("<iii", 2, 2**31 - 1, 2**31 - 1)), 0, BAD_DECODING),
        (ua.Variant(None, V.ExtensionObject), 0, BAD_TYPE),
        (None, 0x80050000, 0x80050000),
    ],
)
def test_what_is_not_the_structure_is_bad(value: Any, status: int, expected: int) -> None:
    rows = found(decoded(value, WANTED, status))
    assert {channel: status for channel, (_, status, _) in rows.items()} == dict.fromkeys(range(5), expected)
    assert all(np.isnan(number) for number, _, _ in rows.values())


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (ua.Variant(1.0, V.Double), "a Double, not a structure: clear the column member"),
        (ua.Variant("x", V.String), "a String, not a structure: clear the column member"),
        (ua.Variant([1.0], V.Double), "an array of Double, not a structure: clear the column member"),
    ],
)
def test_value_that_is_no_structure_is_named(value: Any, what: str) -> None:
    change = decoded(value, WANTED[:2])
    assert [(one.handle, one.what) for one in change.unsupported] == [(0, what), (1, what)]
    assert not found(change)


def test_members_that_cannot_be_read_are_named_and_others_are_read() -> None:
    wrong = {
        "Torque": "the structure Drive has no member Torque; it has On, Speed, Motor, Any, Grid",
        "Motor.Speed": "the structure Motor has no member Speed; it has Speeds, Name",
        "Speed.Value": "Speed is a Double, which has no member Value",
        "Motor": "a structure: the column member names one of its members: Speeds, Name",
        "Motor.Speeds": "an array of Double: the column index reads an element",
        "Any": "a Variant",
        "Grid": "an array of Int32 of 2 dimensions",
    }
    wanted = [Wanted(10 + number, member) for number, member in enumerate(wrong)]
    change = decoded(drive(), [*wanted, Wanted(20, "Speed", 1), *WANTED])
    assert {one.handle: one.what for one in change.unsupported} == {
        **{10 + number: reason for number, reason in enumerate(wrong.values())},
        20: "a Double, not an array: clear the column index",
    }
    assert found(change).keys() == set(range(5))


@given(st.binary(max_size=60))
def test_garbage_behind_the_type_of_a_structure_is_refused_or_bad(garbage: bytes) -> None:
    body = struct.pack("<iIB", 1, FIRST_STRUCTURE, 1) + bytes([STRUCTURE]) + garbage
    try:
        change = data_change(body, 0, len(body), 0, Forms(structures={FIRST_STRUCTURE: Picker(DRIVE, WANTED)}))
    except DecodeError:
        return
    assert found(change).keys() == set(range(5))
