"""Members of structures, against asyncua's encoder, and against garbage. Definitions and values are made up."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import product
from math import prod
from typing import Any, Literal

import numpy as np
import pytest
from asyncua import ua
from asyncua.common.structures104 import make_structure
from asyncua.ua.ua_binary import struct_to_binary
from hypothesis import given
from hypothesis import strategies as st

from core.config.addresses.value_path import parse
from core.errors import DecodeError
from core.opcua.structure import STRUCTURE, Field, Structure
from core.timestamps import microseconds
from ingest.opcua.decode.data_change import data_change
from ingest.opcua.decode.decoded import FIRST_STRUCTURE, DataChange, DecodeRules
from ingest.opcua.decode.members import MemberChannel, StructureDecoder

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
        self.inside = {field.name: Theirs(field.structure, numbers) for field in structure.fields if field.structure}
        self.data_type = ua.NodeId(next(numbers), 2)
        fields = [
            ua.StructureField(
                Name=field.name,
                DataType=self.inside[field.name].data_type if field.structure else ua.NodeId(field.type),
                ValueRank=1 if field.dimensions else -1,
                IsOptional=field.optional,
            )
            for field in structure.fields
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
        names = [field.name for field in self.structure.fields]
        only = [draw(st.sampled_from(names))] if self.structure.form == "union" else names
        for field in self.structure.fields:
            if field.name not in only or (field.optional and draw(st.booleans())):
                continue
            if field.structure is None:
                values = _VALUES[field.type]
                theirs = draw(st.lists(values, max_size=4) if field.dimensions else values)
                members[field.name] = theirs
            elif field.dimensions:
                both = [self.inside[field.name].value(draw) for _ in range(draw(st.integers(0, 3)))]
                theirs, members[field.name] = [it for it, _ in both], [inside for _, inside in both]
            else:
                theirs, members[field.name] = self.inside[field.name].value(draw)
            setattr(value, field.name, theirs)
        return value, members


def encode(values: Sequence[Any], handle: int = FIRST_STRUCTURE) -> bytes:
    items = [ua.DataValue(value, ua.StatusCode(0), SourceTimestamp=TIME) for value in values]
    return bytes(
        struct_to_binary(
            ua.DataChangeNotification(MonitoredItems=[ua.MonitoredItemNotification(handle, item) for item in items])
        )
    )


def wanted_of(structure: Structure, within: str = "") -> Iterator[tuple[str, int]]:
    """(path, built-in type) of all that can be a channel: of an array the elements 0 and 2."""
    for field in structure.fields:
        for path in (f"{within}{field.name}{index}" for index in (("[0]", "[2]") if field.dimensions else ("",))):
            if field.structure:
                yield from wanted_of(field.structure, f"{path}.")
            else:
                yield path, field.type


def expected(value: Any, path: str) -> Any:
    """The value of a member, or the status code that says why there is none."""
    for step in parse(path):
        if isinstance(step, str):
            if step not in value:
                return None, ABSENT
            value = value[step]
        elif step[0] >= len(value):
            return None, NO_ELEMENT
        else:
            value = value[step[0]]
    return value, 0


def values_by_channel(change: DataChange) -> dict[int, tuple[float | str, int, int]]:
    """Channel → value, status, µs."""
    columns = (
        [np.concatenate(c) for c in (change.handle, change.value, change.status, change.time)] if change.handle else []
    )
    numbers = {h: (v, s, t) for h, v, s, t in zip(*(c.tolist() for c in columns), strict=True)} if columns else {}
    texts = {t.handle: (t.text, t.status, t.time) for t in change.texts}
    assert not numbers.keys() & texts.keys()
    return numbers | texts


@given(structures(), st.data(), st.booleans(), st.booleans())
def test_members_of_structures_that_asyncua_encodes(
    structure: Structure, data: st.DataObject, as_text: bool, is_array: bool
) -> None:
    """Of one, or of the elements 0 and 2 of an array."""
    theirs = Theirs(structure, iter(range(1, 1000)))
    made = [theirs.value(data.draw) for _ in range(data.draw(st.integers(0, 4)) if is_array else 1)]
    value: Any = [members for _, members in made] if is_array else made[0][1]
    every = [(e + path, kind) for e in (("[0].", "[2].") if is_array else ("",)) for path, kind in wanted_of(structure)]
    some = data.draw(st.lists(st.sampled_from(every), max_size=6))
    wanted = [MemberChannel(channel, path) for channel, (path, _) in enumerate(some)]
    exact = np.ones(1, bool) if as_text else None
    sent = [one for one, _ in made] if is_array else made[0][0]
    body = encode([ua.Variant(sent, V.ExtensionObject, is_array=is_array)])
    change = data_change(
        body, 0, len(body), 0, DecodeRules(exact, structures={FIRST_STRUCTURE: StructureDecoder(structure, wanted)})
    )
    rows = values_by_channel(change)
    assert rows.keys() == set(range(len(some)))
    for channel, (path, kind) in enumerate(some):
        there, status = expected(value, path)
        assert rows[channel][1:] == (status, microseconds(TIME))
        if status:
            assert np.isnan(rows[channel][0])
        elif as_text or kind > 11:
            assert rows[channel][0] == _TEXTS.get(kind, str)(there)
        else:
            assert rows[channel][0] == float(there)
    assert not change.unsupported
    rounded = {handle for run in change.rounded for handle in run.tolist()}
    large = {c for c, (p, k) in enumerate(some) if k in (8, 9) and (v := expected(value, p)[0]) and int(float(v)) != v}
    assert rounded == (set() if as_text else large)


@given(structures(), st.data())
def test_damaged_structure_is_bad_or_decoded(structure: Structure, data: st.DataObject) -> None:
    """Whatever its bytes are, each member has one sample; bytes that are missing or left over make it Bad."""
    some = [MemberChannel(channel, path) for channel, (path, _) in enumerate(wanted_of(structure))]
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
        decoder = StructureDecoder(structure, some, lambda: calls.append(1))
        sent = encode([ua.Variant(body, V.ExtensionObject)] * 2)
        rows = values_by_channel(data_change(sent, 0, len(sent), 0, DecodeRules(structures={FIRST_STRUCTURE: decoder})))
        assert rows.keys() == {member_channel.channel for member_channel in some}
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
        Field("Axes", STRUCTURE, MOTOR, dimensions=1),
    ],
)
GRID = struct.pack("<iiiii", 2, 1, 2, 7, 8)
AXES = struct.pack("<iidi1sii", 2, 1, 5.0, 1, b"x", 0, -1)


def drive(tail: bytes = b"\0" + GRID + AXES, encoding: Any = ENCODING, speed: float = 2.5) -> Any:
    body = struct.pack("<?didi", True, speed, 1, 9.0, 2) + b"ab" + tail
    return ua.Variant(ua.ExtensionObject(TypeId=encoding, Body=body), V.ExtensionObject)


WANTED = [
    MemberChannel(0, "Speed"),
    MemberChannel(1, "Motor.Speeds[0]"),
    MemberChannel(2, "Motor.Name"),
    MemberChannel(3, "On"),
    MemberChannel(4, "On"),
]


def decoded(value: Any, wanted: list[MemberChannel], status: int = 0) -> DataChange:
    notification = ua.MonitoredItemNotification(FIRST_STRUCTURE, ua.DataValue(value, ua.StatusCode(status), TIME))
    body = bytes(struct_to_binary(ua.DataChangeNotification(MonitoredItems=[notification])))
    return data_change(
        body, 0, len(body), 0, DecodeRules(structures={FIRST_STRUCTURE: StructureDecoder(DRIVE, wanted)})
    )


def test_members_before_behind_and_twice() -> None:
    time = microseconds(TIME)
    rows = values_by_channel(decoded(drive(), WANTED, 0x40920000))
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
        (drive(b"\0" + GRID + AXES + b"\0"), 0, BAD_DECODING),
        (drive(b"\0" + struct.pack("<iii", 2, 2**31 - 1, 2**31 - 1)), 0, BAD_DECODING),
        (drive(b"\0" + struct.pack("<iiiii", 3, 1, 1, 1, 7) + AXES), 0, BAD_DECODING),
        (drive(b"\0" + GRID + struct.pack("<i", 2**31 - 1)), 0, BAD_DECODING),
        (ua.Variant(None, V.ExtensionObject), 0, BAD_TYPE),
        (None, 0x80050000, 0x80050000),
    ],
)
def test_what_is_not_the_structure_is_bad(value: Any, status: int, expected: int) -> None:
    rows = values_by_channel(decoded(value, WANTED, status))
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
    assert [(member.handle, member.reason) for member in change.unsupported] == [(0, what), (1, what)]
    assert not values_by_channel(change)


def test_members_that_cannot_be_read_are_named_and_others_are_read() -> None:
    wrong = {
        "Torque": "the structure Drive has no member Torque; it has On, Speed, Motor, Any, Grid, Axes",
        "Motor.Speed": "the structure Motor has no member Speed; it has Speeds, Name",
        "Speed.Value": "Speed is a Double, which has no member Value",
        "Motor": "a structure: the column member names one of its members: Speeds, Name",
        "Motor.Speeds": "an array of Double: the column index reads an element",
        "Any": "a Variant",
        "Grid": "an array of Int32 of 2 dimensions: the column index reads an element, as in 0,0",
        "Grid[1]": "an array of Int32 of 2 dimensions: an element has an index of 2 numbers, as in 0,0",
        "Motor.Speeds[0,1]": "an array of Double: an element has an index of 1 number, as in 0",
        "Motor[1].Name": "Motor is a structure, not an array",
        "Axes": "an array of structures: the column member reads a member of an element, as in Axes[0].Speed",
        "Axes.Name": (
            "Axes is an array of structures: the column member reads a member of an element, as in Axes[0].Name"
        ),
        "Axes[1]": "a structure: the column member names one of its members: Speeds, Name",
        "Axes[1].Speed": "the structure Motor has no member Speed; it has Speeds, Name",
    }
    wanted = [MemberChannel(10 + number, member) for number, member in enumerate(wrong)]
    change = decoded(drive(), [*wanted, MemberChannel(30, "Speed[1]"), *WANTED])
    assert {one.handle: one.reason for one in change.unsupported} == {
        **{10 + number: reason for number, reason in enumerate(wrong.values())},
        30: "a Double, not an array: clear the column index",
    }
    assert values_by_channel(change).keys() == set(range(5))


@given(st.binary(max_size=60))
def test_garbage_behind_the_type_of_a_structure_is_refused_or_bad(garbage: bytes) -> None:
    body = struct.pack("<iIB", 1, FIRST_STRUCTURE, 1) + bytes([STRUCTURE]) + garbage
    try:
        change = data_change(
            body, 0, len(body), 0, DecodeRules(structures={FIRST_STRUCTURE: StructureDecoder(DRIVE, WANTED)})
        )
    except DecodeError:
        return
    assert values_by_channel(change).keys() == set(range(5))


def test_elements_in_a_structure() -> None:
    """Of a matrix, and of an array of structures; one that is not there is Bad."""
    paths = ["Grid[0,1]", "Grid[1,0]", "Grid[0,2]", "Axes[0].Speeds[0]", "Axes[0].Name", "Axes[1].Speeds[0]", "On"]
    wanted = [MemberChannel(channel, path) for channel, path in enumerate([*paths, "Axes[2].Name"])]
    values = {channel: row[:2] for channel, row in values_by_channel(decoded(drive(), wanted)).items()}
    missing = {channel: values.pop(channel)[1] for channel in (1, 2, 5, 7)}
    assert values == {0: (8.0, 0), 3: (5.0, 0), 4: ("x", 0), 6: (1.0, 0)}
    assert missing == dict.fromkeys((1, 2, 5, 7), NO_ELEMENT)
    empty = decoded(drive(b"\0" + struct.pack("<i", -1) + struct.pack("<i", -1)), wanted)
    assert {c for c, (_, status, _) in values_by_channel(empty).items() if status == 0} == {6}


@given(st.lists(st.integers(0, 3), min_size=2, max_size=3), st.sampled_from([6, 12, STRUCTURE]))
def test_matrix_in_a_structure(lengths: list[int], kind: int) -> None:
    """Every element, and those just beyond; its lengths precede it, and the last dimension comes first."""
    point = Structure("Point", "", "plain", [Field("Name", 12), Field("Place", 6)])
    grid = Field("Grid", kind, point if kind == STRUCTURE else None, dimensions=len(lengths))
    structure = Structure("Made", "ns=2;i=5001", "plain", [grid, Field("Behind", 4)])
    body = struct.pack(f"<{len(lengths) + 1}i", len(lengths), *lengths)
    for place in range(prod(lengths)):
        number, text = struct.pack("<i", place), struct.pack("<i3s", 3, b"%03d" % place)
        body += {6: number, 12: text, STRUCTURE: text + number}[kind]
    every = list(product(*(range(length + 1) for length in lengths)))
    wanted = [MemberChannel(channel, f"Grid[{','.join(map(str, one))}]") for channel, one in enumerate(every)]
    if kind == STRUCTURE:
        wanted = [MemberChannel(member_channel.channel, f"{member_channel.path}.Place") for member_channel in wanted]
    value = ua.ExtensionObject(TypeId=ENCODING, Body=body + b"\7\0")
    sent = encode([ua.Variant(value, V.ExtensionObject)])
    decoder = StructureDecoder(structure, [*wanted, MemberChannel(len(every), "Behind")])
    rows = values_by_channel(data_change(sent, 0, len(sent), 0, DecodeRules(structures={FIRST_STRUCTURE: decoder})))
    assert rows.pop(len(every))[0] == 7
    places = iter(range(prod(lengths)))
    for channel, one in enumerate(every):
        if any(index == length for index, length in zip(one, lengths, strict=True)):
            assert rows[channel][1] == NO_ELEMENT
        else:
            assert rows[channel][:2] == (f"{next(places):03d}" if kind == 12 else next(places), 0)


def drives(*speeds: float, dimensions: Sequence[int] = (), other: Sequence[int] = ()) -> bytes:
    """A notification of an array of drives, of which ``other`` are of another data type."""
    one_by_one = [drive(speed=v, encoding=ua.NodeId(7, 2) if k in other else ENCODING) for k, v in enumerate(speeds)]
    array = ua.Variant([variant.Value for variant in one_by_one], V.ExtensionObject, is_array=True)
    body = encode([array])
    if not dimensions:
        return body
    behind = len(body) - len(encode([ua.Variant(1, V.Byte)])) + 2  # the value
    kind, end = 4 + 4 + 1, 4 + 4 + 1 + behind
    lengths = struct.pack(f"<{len(dimensions) + 1}i", len(dimensions), *dimensions)
    return body[:kind] + bytes([STRUCTURE | 0xC0]) + body[kind + 1 : end] + lengths + body[end:]


def of_elements(body: bytes, *paths: str) -> tuple[dict[int, Any], dict[int, str]]:
    """The values, or status codes, and the reasons of the channels of these paths."""
    decoder = StructureDecoder(DRIVE, [MemberChannel(channel, path) for channel, path in enumerate(paths)])
    change = data_change(body, 0, len(body), 0, DecodeRules(structures={FIRST_STRUCTURE: decoder}))
    values = {
        channel: value if not status else hex(status)
        for channel, (value, status, _) in values_by_channel(change).items()
    }
    return values, {member.handle: member.reason for member in change.unsupported}


def test_elements_of_an_array_of_structures() -> None:
    paths = "[1].Speed", "[0].Speed", "[2].Speed", "[1].Motor.Name", "[1].Axes[0].Name", "Speed", "[0,1].Speed"
    array = "an array of structures"
    assert of_elements(drives(1.0, 2.0), *paths) == (
        {0: 2.0, 1: 1.0, 2: hex(NO_ELEMENT), 3: "ab", 4: "x"},
        {
            5: f"{array}: the column member reads a member of an element, as in [0].Speed",
            6: f"{array}: an element has an index of 1 number, as in 0",
        },
    )
    assert of_elements(drives(1.0, 2.0, other=[0]), *paths[:2]) == ({0: 2.0, 1: hex(BAD_TYPE)}, {})
    assert of_elements(drives(), *paths[:2], paths[6]) == (dict.fromkeys(range(3), hex(NO_ELEMENT)), {})
    no_array = "a structure, not an array: the column member begins with the name of a member"
    assert of_elements(encode([drive()]), *paths[:2], "On") == ({2: 1.0}, {0: no_array, 1: no_array})


def test_elements_of_a_matrix_of_structures() -> None:
    body = drives(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, dimensions=(2, 3))
    assert of_elements(body, "[1,0].Speed", "[0,2].Speed", "[1].Speed", "[1,3].Speed") == (
        {0: 3.0, 1: 2.0, 3: hex(NO_ELEMENT)},
        {2: "an array of structures of 2 dimensions: an element has an index of 2 numbers, as in 0,0"},
    )
    assert of_elements(drives(0.0, dimensions=(2, 3)), "[1,0].Speed") == ({0: hex(NO_ELEMENT)}, {})
