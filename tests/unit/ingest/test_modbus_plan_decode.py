"""Planning and decoding, against an encoder that is written the slow and obvious way."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.config.sources import ModbusTag
from core.errors import DecodeError
from ingest.modbus.blocks import PollPace, Schedule
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import Read, plan, split
from tests.modbus_wire import ORDERS, TYPES, bits_of, encoded


def registers(kind: str, order: str, value: float) -> list[int]:
    """The registers that hold ``value``: ABCD, then words and bytes moved as the order's name says."""
    image = encoded(kind, value)
    words = [image[i : i + 2] for i in range(0, len(image), 2)]
    if order in ("CDAB", "DCBA"):
        words.reverse()
    if order in ("BADC", "DCBA"):
        words = [word[::-1] for word in words]
    return [int.from_bytes(word) for word in words]


def numbers(kind: str) -> st.SearchStrategy[float]:
    """Numbers of a type; of integers, those that a float64 holds exactly."""
    if kind.startswith("float"):
        return st.floats(width=32 if bits_of(kind) == 32 else 64)
    if kind.startswith("uint"):
        return st.integers(0, min(2 ** bits_of(kind) - 1, 2**53))
    return st.integers(max(-(2 ** (bits_of(kind) - 1)), -(2**53)), min(2 ** (bits_of(kind) - 1) - 1, 2**53))


@st.composite
def layouts(draw: st.DrawFn) -> list[tuple[ModbusTag, Any]]:
    """Tags with their values, not overlapping, in any tables, in any order."""
    layout = []
    for table in ("holding", "input"):
        register = draw(st.integers(0, 50))
        for _ in range(draw(st.integers(0, 30))):
            kind = draw(st.sampled_from(TYPES))
            tag = ModbusTag(
                name=f"{table}/{register}",
                address=f"{table}:{register}",
                type=kind,
                word_order=draw(st.sampled_from(ORDERS)),
            )
            layout.append((tag, draw(numbers(kind))))
            register += tag.width + draw(st.sampled_from([0, 0, 0, 1, 7, 9, 60, 200]))
    for table in ("coil", "discrete"):
        for bit in draw(st.sets(st.integers(0, 6000), max_size=20)):
            tag = ModbusTag(name=f"{table}/{bit}", address=f"{table}:{bit}", type="bool")
            layout.append((tag, draw(st.integers(0, 1))))
    return draw(st.permutations(layout))


@given(layouts(), st.integers(0, 20), st.integers(4, 125))
def test_every_tag_is_read_once_within_limits_and_decoded(
    layout: list[tuple[ModbusTag, Any]], bridge: int, max_registers: int
) -> None:
    tags = [tag for tag, _ in layout]
    image = {table: np.zeros(70_000, np.uint16) for table in ("coil", "discrete", "input", "holding")}
    for tag, value in layout:
        words = [value] if tag.type == "bool" else registers(tag.type, tag.word_order, value)
        image[tag.table][tag.register : tag.register + len(words)] = words
    seen: dict[int, float] = {}
    reads = plan(tags, range(len(tags)), bridge, max_registers)
    for read in reads:
        assert read.count <= (2000 if read.table in ("coil", "discrete") else max_registers)
        decoder = Decoder(read, tags)
        values = decoder.numbers(image[read.table][read.start : read.start + read.count])
        for i, value in zip(decoder.tags.tolist(), values.tolist(), strict=True):
            assert i not in seen
            seen[i] = value
    assert sorted(seen) == list(range(len(tags)))
    for i, (tag, value) in enumerate(layout):
        expected = float(value)
        assert (
            math.isnan(seen[i]) if math.isnan(expected) else struct.pack("d", seen[i]) == struct.pack("d", expected)
        ), tag
    if not reads:
        return
    joined = Decoder.combined([Decoder(read, tags) for read in reads])
    raw = np.concatenate([image[read.table][read.start : read.start + read.count] for read in reads])
    for i, of, value in zip(joined.tags.tolist(), joined.read.tolist(), joined.numbers(raw).tolist(), strict=True):
        assert i in reads[of].tags
        assert struct.pack("d", value) == struct.pack("d", seen.pop(i))
    assert not seen
    covered = zip(joined.covered.tolist(), joined.covered_by.tolist(), strict=True)
    assert list(covered) == [(i, of) for of, read in enumerate(reads) for i in read.tags]


def tag(address: str, value_type: str = "int16", **more: Any) -> ModbusTag:
    return ModbusTag(name=address.replace(":", "/"), address=address, type=value_type, **more)


def test_unused_registers_up_to_the_bridge_are_read_through() -> None:
    tags = [tag("holding:0"), tag("holding:9"), tag("holding:19")]
    assert [(r.start, r.count) for r in plan(tags, range(3), 8, 125)] == [(0, 10), (19, 1)]
    assert [(r.start, r.count) for r in plan(tags, range(3), 9, 125)] == [(0, 20)]


def test_split_block_is_minimal_and_loses_no_tag() -> None:
    tags = [tag("holding:0"), tag("holding:5"), tag("holding:100", "float64")]
    (read,) = plan(tags, range(3), 100, 125)
    assert split(read, tags) == [Read("holding", 0, 1, (0,)), Read("holding", 5, 99, (1, 2))]
    assert split(Read("holding", 0, 1, (0,)), tags) == [Read("holding", 0, 1, (0,))]


def test_tenths_are_exact_with_a_divisor() -> None:
    tags = [tag("input:0", divisor=10.0), tag("input:1", scale=2.0, offset=-40.0), tag("input:2", "bool", bit=3)]
    (read,) = plan(tags, range(3), 0, 125)
    decoder = Decoder(read, tags)
    values = dict(zip(decoder.tags.tolist(), decoder.numbers(np.array([3, 21, 8], np.uint16)).tolist(), strict=True))
    assert values == {0: 0.3, 1: 2.0, 2: 1.0}


@pytest.mark.parametrize(
    ("value_type", "no_data", "words", "expected"),
    [
        ("uint16", "0xFFFF", (0xFFFF,), None),
        ("uint16", "65535", (0xFFFE,), 65534),
        ("int16", "0x8000; 0x7FFF", (0x8000,), None),
        ("int16", "0x8000; 0x7FFF", (0x7FFF,), None),
        ("int16", "32760..32767", (32763,), None),
        ("int16", "-1", (0xFFFF,), None),
        ("uint32", "0x80000000", (0x8000, 0), None),
        ("int32", "0x80000000", (0x8000, 0), None),
        ("int48", "0x800000000000", (0x8000, 0, 0), None),
        ("uint48", "0x800000000000", (0x8000, 0, 0), None),
        ("uint48", "0xFFFFFFFFFFFF", (0xFFFF, 0xFFFF, 0xFFFE), 2**48 - 2),
        ("int32", "0x80000000", (0x8000, 1), -(2**31) + 1),
        ("float32", "1e30", (0x7149, 0xF2CA), None),
        ("float32", "", (0x7FC0, 0), None),
        ("float32", "", (0x7F80, 0), math.inf),
    ],
)
def test_values_that_mean_no_value(
    value_type: str, no_data: str, words: tuple[int, ...], expected: float | None
) -> None:
    """They are raw: the scale and the offset do not count."""
    tags = [
        tag("holding:0", value_type, no_data=no_data, scale=0.5, offset=7.0),
        tag("holding:10", "uint16", no_data="5"),
        tag("holding:11", "uint16"),
    ]
    raw = np.array(words, np.uint16)
    alone = Decoder(plan(tags[:1], [0], 0, 125)[0], tags[:1]).numbers(raw)
    decoder = Decoder.combined([Decoder(read, tags) for read in plan(tags, range(3), 0, 125)])
    together = decoder.numbers(np.append(raw, [5, 0xFFFF]).astype(np.uint16))
    by_tag = dict(zip(decoder.tags.tolist(), together.tolist(), strict=True))
    assert math.isnan(by_tag[1]) and by_tag[2] == 65535
    scaled = math.nan if expected is None else expected * 0.5 + 7
    assert np.array_equal([alone[0], by_tag[0]], [scaled, scaled], equal_nan=True)


def test_consecutive_answers_are_decoded_independently() -> None:
    tags = [
        tag("holding:0", divisor=10.0),
        tag("holding:1", "string", length=2, kind="text", word_order="CDAB"),
        tag("input:5", "uint64", word_order="CDAB"),
        tag("input:9", "uint64", kind="text", word_order="CDAB"),
        tag("input:13", scale=2.0, offset=1.0),
    ]
    decoder = Decoder.combined([Decoder(read, tags) for read in plan(tags, range(5), 0, 125)])
    large = registers("uint64", "CDAB", 2**64 - 1)
    raw = np.array([*large, *large, 21, 3, 0x4F4B, 0], np.uint16)
    assert dict(zip(decoder.tags.tolist(), decoder.numbers(raw).tolist(), strict=True)) == {0: 0.3, 2: 2.0**64, 4: 43.0}
    assert decoder.texts(raw) == [(3, 0, str(2**64 - 1)), (1, 1, "OK")]
    assert decoder.rounded(raw) == [(2, 0)]


def test_strings_and_bits_with_swapped_bytes() -> None:
    tags = [tag("holding:0", "string", length=3, kind="text"), tag("holding:3", "bool", bit=0, word_order="BADC")]
    (read,) = plan(tags, range(2), 0, 125)
    decoder = Decoder(read, tags)
    raw = np.array([0x4155, 0x544F, 0x0000, 0x0100], np.uint16)
    assert decoder.texts(raw) == [(0, 0, "AUTO")]
    assert decoder.numbers(raw).tolist() == [1.0]


def test_a_short_answer_is_refused() -> None:
    tags = [tag("holding:0"), tag("holding:1")]
    (read,) = plan(tags, range(2), 0, 125)
    with pytest.raises(DecodeError, match="short response: 1 of 2 registers"):
        Decoder(read, tags).numbers(np.zeros(1, np.uint16))


@given(st.floats(0.01, 100), st.lists(st.floats(0, 1000), max_size=30))
def test_due_times_stay_on_the_grid(interval: float, polls: list[float]) -> None:
    """However long polls take: each due time is made or given up, and the last one before now is made."""
    schedule = Schedule(interval, 0.0)
    now = missed = 0.0
    for made, took in enumerate(polls):
        now = max(now, schedule.due)
        missed += schedule.skip(now)
        assert schedule.due == pytest.approx((made + missed) * interval)
        assert now - interval <= schedule.due <= now or schedule.due in (
            pytest.approx(now - interval),
            pytest.approx(now),
        )
        schedule.poll_done()
        now += took


def test_pace_is_the_interval_unless_polls_are_late_in_a_row() -> None:
    pace, now = PollPace(1.0), 0.0

    def polls(apart: float, count: int) -> list[float]:
        nonlocal now
        told = []
        for _ in range(count):
            now += apart
            if pace.poll_started(now):
                told.append(round(pace.seconds, 3))
        return told

    assert polls(1.0, 5) == [] and not pace.stretched
    assert polls(5.0, 2) == [] and polls(1.0, 5) == [], "one late poll, or two, are gaps"
    assert polls(2.1, 20) == [2.1] and pace.stretched
    assert polls(2.3, 5) == [], "is much the same"
    assert polls(4.0, 10) == [4.0]
    assert polls(1.0, 5) == [1.0] and not pace.stretched
    assert polls(2.1, 3) == [2.1]
    pace.interrupted()
    assert polls(50.0, 1) == [] and polls(1.0, 5) == [1.0]
    assert polls(1.2, 5) == [1.2], "also where not each poll leaves another out"


def test_pace_tells_a_slow_device_from_a_slow_machine() -> None:
    pace, now, waited = PollPace(1.0), 0.0, 0.0

    def polls(apart: float, answers: float, count: int = 10) -> str:
        nonlocal now, waited
        for _ in range(count):
            now, waited = now + apart, waited + answers
            pace.poll_started(now, waited)
        return str(pace)

    assert polls(1.0, 0.9) == "polls take 1 s, interval 1 s" and "slow" not in pace.figures()
    assert polls(2.4, 2.3) == "polls take 2.4 s, interval 1 s: the device answers in 2.3 s"
    assert pace.figures() == {
        "interval_seconds": 1.0, "pace_seconds": 2.4, "slow": "device", "answers_seconds": 2.3
    }  # fmt: skip
    machine_clocks = "polls take 2.4 s, interval 1 s: this machine is overloaded, the device answers in 0.1 s"
    assert polls(2.4, 0.1) == machine_clocks, "at the same pace"
    pace.interrupted()
    assert polls(2.4, 0.1, 2) == machine_clocks, "is known until another is"
    assert polls(1.0, 0.1) == "polls take 1 s, interval 1 s"
