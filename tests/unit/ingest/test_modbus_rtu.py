"""RTU frames, and the addresses that name the lines they are on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymodbus.framer.rtu import FramerRTU

from core.config.addresses.modbus_address import AddressError, ModbusAddress, parse
from core.config.sources import ModbusTag
from ingest.modbus.frame import Frame, response_size
from ingest.modbus.plan import Read, plan, unambiguous
from ingest.modbus.rtu import NO_TRANSACTION, OTHER_MASTER, RtuFramer, crc16

READ = Read("holding", 0x6B, 3, (), 17)
REQUEST = bytes.fromhex("1103006b00037687")  # the example of MODBUS Application Protocol V1.1b3, 6.3, for unit 17
PDU = bytes.fromhex("0306022b00000064")


def framed(unit: int, pdu: bytes) -> bytes:
    body = bytes((unit,)) + pdu
    return body + crc16(body).to_bytes(2, "little")


@given(st.binary(max_size=256))
def test_crc_is_that_of_pymodbus(data: bytes) -> None:
    assert crc16(data).to_bytes(2, "little") == FramerRTU.compute_CRC(data).to_bytes(2, "big")


def test_request_is_the_example_of_the_specification() -> None:
    assert RtuFramer().request(7, READ) == REQUEST


@given(st.integers(1, 20))
def test_response_is_found_in_any_pieces_and_whatever_the_pauses(size: int) -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    found: list[Frame] = []
    answer = framed(17, PDU)
    for at in range(0, len(answer), size):
        assert found == []
        found += [*framer.feed(answer[at : at + size]), *framer.silent()]
    assert found == [Frame(7, 17, PDU)]


@pytest.mark.parametrize(
    ("arrived", "late", "message"),
    [
        (framed(18, PDU), True, ""),
        (framed(17, PDU)[:-1] + b"x", False, "11 bytes arrived without a valid CRC"),
        (framed(17, b"\x03\x04\0\0\0\0"), True, "a response of 9 bytes with function 0x03 arrived, expected 11 bytes"),
        (framed(17, b"\x04" + PDU[1:]), True, "a response of 11 bytes with function 0x04 arrived, expected 11 bytes"),
        (b"\0" + framed(17, PDU), False, "12 bytes arrived without a valid CRC"),
        (framed(17, PDU)[:4], False, "4 bytes of a response arrived"),
        (bytes(300), False, "more than 256 bytes arrived without a valid CRC"),
        (b"\0", False, "1 byte arrived without a valid CRC"),
    ],
)
def test_what_is_no_response_is_dropped_with_the_next_silence(arrived: bytes, late: bool, message: str) -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    assert not list(framer.feed(arrived))
    assert [frame.transaction for frame in framer.silent()] == [NO_TRANSACTION] * late
    assert framer.unreadable.startswith(message) and bool(framer.unreadable) == bool(message)
    framer.abandon()
    list(framer.silent())
    assert not framer.unfinished
    framer.request(8, READ)
    assert list(framer.feed(framed(17, PDU))) == [Frame(8, 17, PDU)]


OTHER_REQUEST = framed(9, b"\x03\0\x6b\0\x03")


@pytest.mark.parametrize(
    ("arrived", "transactions"),
    [
        (OTHER_REQUEST, [OTHER_MASTER]),
        (framed(9, b"\x01\x03\0\0\x11"), [OTHER_MASTER]),  # as long as a response with 17 bits
        (OTHER_REQUEST + framed(9, PDU), [OTHER_MASTER, NO_TRANSACTION]),
        (framed(9, PDU) + OTHER_REQUEST + framed(9, b"\x83\x02"), [NO_TRANSACTION, OTHER_MASTER, NO_TRANSACTION]),
        (framed(9, b"\x06\0\x01\0\x02") * 2, [OTHER_MASTER] * 2),
        (framed(9, b"\x10\0\x01\0\x01\x02\0\0") + framed(9, b"\x10\0\x01\0\x01"), [OTHER_MASTER] * 2),
        (framed(9, b"\x2b\x0e\x01\0"), [OTHER_MASTER]),
        (framed(9, PDU), [NO_TRANSACTION]),
        (framed(9, b"\x2b\x0e\x01\0") + OTHER_REQUEST, [OTHER_MASTER] * 2),
        (OTHER_REQUEST + framed(9, PDU)[:-1], [OTHER_MASTER]),
        (framed(9, PDU)[1:] + OTHER_REQUEST, []),
    ],
)
def test_frames_of_another_master_are_known(arrived: bytes, transactions: list[int]) -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    assert not list(framer.feed(arrived))
    assert [frame.transaction for frame in framer.silent()] == transactions
    assert (framer.unreadable == "another master on the line asks unit 9") == (OTHER_MASTER in transactions)
    assert list(framer.feed(framed(17, PDU))) == [Frame(7, 17, PDU)], "another unit's"


@pytest.mark.parametrize(
    ("asked", "message"),
    [(framed(17, b"\x03\0\0\0\x03"), "another master on the line asks unit 17"), (REQUEST, "the line echoes requests")],
)
def test_response_is_not_taken_once_another_master_has_asked_the_unit(asked: bytes, message: str) -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    assert not list(framer.feed(asked))
    assert [frame.transaction for frame in framer.silent()] == [OTHER_MASTER]
    assert not framer.expects and framer.unreadable == message
    assert not list(framer.feed(framed(17, PDU)))


@given(st.lists(st.integers(0, 60), min_size=1, max_size=40, unique=True), st.integers(0, 8))
def test_no_response_on_a_line_is_as_long_as_a_request(registers: list[int], bridge: int) -> None:
    tags = [ModbusTag(name=f"c{i}", address=f"coil:{i}", type="bool") for i in registers]
    reads = [part for read in plan(tags, range(len(tags)), bridge, 125) for part in unambiguous(read, tags)]
    assert sorted(i for read in reads for i in read.tags) == list(range(len(tags)))
    assert all(response_size(read) != 3 for read in reads)
    assert all(read.start <= tags[i].register < read.start + read.count for read in reads for i in read.tags)


BROADCAST = framed(0, b"\x06\0\x01\0\x03")


@pytest.mark.parametrize(
    "before",
    [BROADCAST, BROADCAST + BROADCAST, framed(0, b"\x10\0\x01\0\x02\x04\0\x01\0\x02"), framed(9, PDU)],
)
def test_response_behind_what_was_sent_just_before_it_is_taken(before: bytes) -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    arrived = before + framed(17, PDU)
    assert not [*framer.feed(arrived[:13]), *framer.feed(arrived[13:])]
    *others, response = framer.silent()
    assert response == Frame(7, 17, PDU)
    assert {frame.transaction for frame in others} <= {OTHER_MASTER, NO_TRANSACTION}
    assert not framer.expects and not framer.unfinished


def test_longest_response_behind_a_broadcast_is_taken() -> None:
    framer, read = RtuFramer(), Read("holding", 0, 125, (), 17)
    framer.request(7, read)
    pdu = bytes((3, 250)) + bytes(250)
    assert not list(framer.feed(BROADCAST + framed(17, pdu)))
    assert list(framer.silent())[-1] == Frame(7, 17, pdu)


def test_noise_behind_a_response_is_dropped() -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    assert list(framer.feed(framed(17, PDU) + b"\xff")) == [Frame(7, 17, PDU)]
    assert framer.unfinished and not list(framer.silent())
    assert not framer.unfinished


def test_a_response_is_found_once() -> None:
    framer = RtuFramer()
    framer.request(7, READ)
    assert list(framer.feed(framed(17, b"\x83\x02"))) == [Frame(7, 17, b"\x83\x02")]
    assert not list(framer.feed(framed(17, PDU)))
    assert list(framer.silent()) == [Frame(NO_TRANSACTION, 17, PDU)]


@pytest.mark.parametrize(
    ("address", "parsed"),
    [
        ("tcp://PLC:502", ModbusAddress("tcp", "plc:502", "plc", 502)),
        ("tcp://[::1]:502", ModbusAddress("tcp", "[::1]:502", "::1", 502)),
        ("rtu+tcp://gw:4001", ModbusAddress("rtu+tcp", "gw:4001", "gw", 4001)),
        ("rtu+tcp://gw:4001?baud=1200", ModbusAddress("rtu+tcp", "gw:4001", "gw", 4001, baud=1200)),
        ("serial:///dev/ttyS0", ModbusAddress("serial", "/dev/ttyS0")),
        ("serial:///dev/ttyS0?parity=N", ModbusAddress("serial", "/dev/ttyS0", parity="N", stop=2)),
        ("serial:///dev/ttyS0?stop=1&parity=N&data=8", ModbusAddress("serial", "/dev/ttyS0", parity="N", stop=1)),
    ],
)
def test_address_has_the_defaults_of_the_specification(address: str, parsed: ModbusAddress) -> None:
    assert parse(address) == parsed


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("serial:///dev/ttyS0?data=7", "found 'data=7'; legal: data=8"),
        ("serial:///dev/ttyS0?parity=even", "found 'parity=even'; legal: parity=E or parity=O or parity=N"),
        (
            "serial:///dev/ttyS0?speed=9600",
            "found an unknown parameter 'speed'; legal: one of baud, parity, stop, data",
        ),
        ("serial:///dev/ttyS0?stop=1&stop=2", "found stop twice; legal: each parameter once"),
        ("rtu+tcp://gw:4001?parity=N", "found an unknown parameter 'parity'; legal: one of baud"),
        ("tcp://gw:70000", "found 'tcp://gw:70000'; legal: a host, and a port from 1 to 65535"),
    ],
)
def test_address_that_is_wrong_says_what_is_legal(address: str, message: str) -> None:
    with pytest.raises(AddressError, match="found") as caught:
        parse(address)
    assert str(caught.value) == message


def test_baud_rate_that_is_wrong_lists_the_legal_ones() -> None:
    with pytest.raises(AddressError, match=r"found 'baud=19201'; legal: baud=1200 or .* or baud=921600"):
        parse("serial:///dev/ttyS0?baud=19201")
