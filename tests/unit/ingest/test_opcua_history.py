"""Reading history to its end, and giving up where there is none; the server is one function that answers requests."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from asyncua import ua
from asyncua.ua.ua_binary import struct_to_binary

from core.config.sources import OpcuaSource, OpcuaTag
from core.timestamps import microseconds
from ingest.opcua.recovery.history import Page, read_history

START = datetime(2026, 9, 21, tzinfo=UTC)
SOURCE = OpcuaSource(
    name="s",
    kind="opcua",
    address="opc.tcp://h:4840",
    tags=tuple(OpcuaTag(name=f"t{i}", address=f"ns=2;s=t{i}") for i in range(2)),
)

Answer = Callable[[int, str, bytes | None], tuple[list[int], bytes | None]]  # (request's number, node, point)


async def pages(answer: Answer, at_most: int, unsized: bool = False) -> list[Page]:
    """Pages of both tags from a server that has, for a node, the values at these seconds, and a continuation point.

    ``unsized``: it does not say how long its bodies are.
    """
    number = 0

    async def send_request(request: Any, _: float) -> bytes:
        nonlocal number
        number += 1
        assert number <= at_most, "it is read for ever"
        response, bodies = ua.HistoryReadResponse(), []
        for node in request.Parameters.NodesToRead:
            seconds, point = answer(number, node.NodeId.Identifier, node.ContinuationPoint)
            values = [ua.DataValue(ua.Variant(float(s)), SourceTimestamp=START + timedelta(seconds=s)) for s in seconds]
            history = ua.HistoryData(DataValues=values)
            bodies.append(struct_to_binary(history))
            response.Results.append(ua.HistoryReadResult(ua.StatusCode(0), point, history))
        encoded = bytes(struct_to_binary(response))
        for body in bodies if unsized else ():
            encoded = encoded.replace(struct.pack("<i", len(body)) + body, b"\xff\xff\xff\xff" + body, 1)
        return encoded

    client: Any = SimpleNamespace(uaclient=SimpleNamespace(protocol=SimpleNamespace(send_request=send_request)))
    start = microseconds(START)
    nodes = {i: ua.NodeId(f"t{i}", 2) for i in range(2)}
    return [page async for page in read_history(client, SOURCE, nodes, start, start + 10**9)]


def values(found: list[Page], tag: int) -> list[float]:
    changes = [page.change for page in found if page.tag == tag and page.change is not None]
    return [value for change in changes for run in change.value for value in run.tolist()]


@pytest.mark.parametrize("unsized", [False, True])
async def test_every_history_page_is_read(unsized: bool) -> None:
    def answer(number: int, node: str, point: bytes | None) -> tuple[list[int], bytes | None]:
        assert point == (None if number == 1 else str(number - 1).encode())
        last = number == (3 if node == "t0" else 150)
        return ([number] if number % 2 else []), None if last else str(number).encode()

    found = await pages(answer, 150, unsized)
    assert values(found, 0) == [1, 3]
    assert values(found, 1) == list(range(1, 150, 2))
    assert [page.tag for page in found if page.last] == [0, 1]


async def test_endless_history_is_given_up() -> None:
    def answer(number: int, node: str, point: bytes | None) -> tuple[list[int], bytes | None]:
        return ([1, 2] if node == "t0" else []), b"more"

    found = await pages(answer, 200)
    last = {page.tag: page for page in found}
    assert all(page.last and page.change is None for page in last.values())
    assert len(last) == 2
    assert set(values(found, 0)) == {1, 2}


@pytest.mark.parametrize("fault", [True, False])
async def test_history_of_a_server_with_source_timestamps_alone(fault: bool) -> None:
    """It refuses the call, or one of its nodes."""
    requests = 0

    async def send_request(request: Any, _: float) -> bytes:
        nonlocal requests
        requests += 1
        refused = request.Parameters.TimestampsToReturn != ua.TimestampsToReturn.Source
        if fault and refused:
            raise ua.UaStatusCodeError(ua.StatusCodes.BadTimestampsToReturnInvalid)
        response = ua.HistoryReadResponse()
        for node in request.Parameters.NodesToRead:
            if refused and node.NodeId.Identifier == "t0":
                code = ua.StatusCode(ua.StatusCodes.BadTimestampNotSupported)
                response.Results.append(ua.HistoryReadResult(code, None, None))
            else:
                history = ua.HistoryData(DataValues=[ua.DataValue(ua.Variant(1.5), SourceTimestamp=START)])
                response.Results.append(ua.HistoryReadResult(ua.StatusCode(0), None, history))
        return bytes(struct_to_binary(response))

    client: Any = SimpleNamespace(uaclient=SimpleNamespace(protocol=SimpleNamespace(send_request=send_request)))
    start, nodes = microseconds(START), {i: ua.NodeId(f"t{i}", 2) for i in range(2)}
    found = [page async for page in read_history(client, SOURCE, nodes, start, start + 10**9)]
    assert (values(found, 0), values(found, 1), requests) == ([1.5], [1.5], 2)
    assert all(page.change is not None for page in found)


@pytest.mark.parametrize("whole_arrays", [False, True])
async def test_elements_of_arrays_are_requested_and_decoded(whole_arrays: bool) -> None:
    async def send_request(request: Any, _: float) -> bytes:
        (node,) = request.Parameters.NodesToRead
        assert node.IndexRange == (None if whole_arrays else "1")
        arrays = [[n, n + 0.5] if whole_arrays else [n + 0.5] for n in (1.0, 2.0)]
        values = [ua.DataValue(ua.Variant(array), SourceTimestamp=START) for array in arrays]
        results = [ua.HistoryReadResult(ua.StatusCode(0), None, ua.HistoryData(DataValues=values))]
        return bytes(struct_to_binary(ua.HistoryReadResponse(Results=results)))

    client: Any = SimpleNamespace(uaclient=SimpleNamespace(protocol=SimpleNamespace(send_request=send_request)))
    tags = (OpcuaTag(name="t", address="ns=2;s=t", index="1"),)
    source = OpcuaSource(name="s", kind="opcua", address="opc.tcp://h:4840", tags=tags)
    start = microseconds(START)
    found = [
        page async for page in read_history(client, source, {0: ua.NodeId("t", 2)}, start, start + 1, whole_arrays)
    ]
    assert values(found, 0) == [1.5, 2.5]
