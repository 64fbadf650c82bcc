"""Browsing servers that refuse, run out of continuation points, or never end; the server is one function that answers
requests."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from asyncua import ua
from asyncua.common.utils import Buffer
from asyncua.ua.ua_binary import struct_to_binary

from core.opcua import service
from core.opcua.browse import Browser

_ROOT = ua.NodeId("root", 2)


def reference(name: str, kind: int = ua.ObjectIds.Organizes) -> Any:
    return ua.ReferenceDescription(
        ReferenceTypeId=ua.NodeId(kind),
        IsForward=True,
        NodeId=ua.ExpandedNodeId(name, 2),
        BrowseName=ua.QualifiedName(name, 2),
        DisplayName=ua.LocalizedText(name),
        NodeClass=ua.NodeClass.Variable,
        TypeDefinition=ua.ExpandedNodeId(ua.ObjectIds.BaseDataVariableType),
    )


class Server:
    """Folder ``f`` has the children ``f.0`` to ``f.N-1``; a Browse or BrowseNext gives ``page`` of them."""

    def __init__(self, children: int = 25, page: int = 10, points: int = 100, largest: int = 1000) -> None:
        self.children, self.page, self.points, self.largest = children, page, points, largest
        self.open: dict[
            bytes, tuple[str, int]
        ] = {}  # continuation points: the oldest is freed where there are too many
        self.calls = 0
        self.refuse: Callable[[], bool] = lambda: False
        self.denied: set[str] = set()
        self.endless = False
        self._points = 0

    @property
    def client(self) -> Any:
        return SimpleNamespace(uaclient=SimpleNamespace(protocol=SimpleNamespace(send_request=self.answer)))

    async def answer(self, request: Any, _: float) -> Buffer:
        self.calls += 1
        asked = request.Parameters
        operations: Sequence[Any] = getattr(asked, "NodesToBrowse", None) or getattr(asked, "NodesToRead", None) or ()
        if len(operations) > self.largest or self.refuse():
            raise ua.UaStatusCodeError(ua.StatusCodes.BadTooManyOperations)
        if isinstance(request, ua.ReadRequest):
            values = [ua.DataValue(ua.Variant(read.NodeId.Identifier)) for read in operations]
            return Buffer(struct_to_binary(ua.ReadResponse(Results=values)))
        if isinstance(request, ua.BrowseRequest):
            results = [self.result(node.NodeId.Identifier, 0) for node in operations]
            return Buffer(struct_to_binary(ua.BrowseResponse(Results=results)))
        (point,) = asked.ContinuationPoints
        folder = self.open.pop(point, None)
        if folder is None:
            result = ua.BrowseResult(StatusCode=ua.StatusCode(ua.StatusCodes.BadContinuationPointInvalid))
        else:
            result = self.result(*folder)
        response = ua.BrowseNextResponse()
        response.Parameters.Results = [result]
        return Buffer(struct_to_binary(response))

    def result(self, folder: str, start: int) -> Any:
        if folder in self.denied:
            return ua.BrowseResult(StatusCode=ua.StatusCode(ua.StatusCodes.BadUserAccessDenied))
        end = min(start + self.page, self.children)
        result = ua.BrowseResult(References=[reference(f"{folder}.{n}") for n in range(start, end)])
        if end < self.children or self.endless:
            if len(self.open) >= self.points:  # OPC 10000-4, 5.9.3: for a new request, those from before are freed
                self.open.pop(next(iter(self.open)))
            self._points += 1
            result.ContinuationPoint = str(self._points).encode()
            self.open[result.ContinuationPoint] = folder, end
        return result


async def children(server: Server, folders: int) -> tuple[list[list[str]], list[tuple[str, str]]]:
    """The names of the children of ``f0`` …, and the folders that were not seen whole."""
    browser = Browser(server.client, 5.0, lambda _: None)
    found = await browser.children([ua.NodeId(f"f{n}", 2) for n in range(folders)], 0)
    return [[one.name for one in some] for some in found], [(n.Identifier, why) for n, why in browser.refused]


def whole(server: Server, folders: int) -> list[list[str]]:
    return [[f"f{n}.{child}" for child in range(server.children)] for n in range(folders)]


@pytest.mark.parametrize("points", [1, 2, 100])
async def test_all_is_browsed_with_few_continuation_points(points: int) -> None:
    server = Server(points=points)
    assert await children(server, 600) == (whole(server, 600), [])


async def test_smaller_calls_where_the_server_refuses_large_ones() -> None:
    server = Server(largest=100)
    assert await children(server, 600) == (whole(server, 600), [])
    browser = Browser(server.client, 5.0, lambda _: None)
    wanted = [(ua.NodeId(f"n{n}", 2), 13) for n in range(3000)]
    assert await browser.read(wanted, lambda value: value.Value.Value) == [f"n{n}" for n in range(3000)]


async def test_refused_calls_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PAUSE", 0.0)
    server, dice = Server(), random.Random(7)
    server.refuse = lambda: dice.random() < 0.1
    assert await children(server, 600) == (whole(server, 600), [])
    assert server.calls < 3000, "a chance refusal does not make all calls small"


async def test_what_is_not_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_PAUSE", 0.0)
    server = Server()
    server.denied = {"f3"}
    found, refused = await children(server, 5)
    assert (found[3], refused) == ([], [("f3", "BadUserAccessDenied")])
    server.refuse = lambda: True
    assert await children(server, 2) == ([[], []], [("f0", "BadTooManyOperations"), ("f1", "BadTooManyOperations")])


async def test_an_endless_browse_next_ends() -> None:
    server = Server()
    server.endless = True
    found, refused = await children(server, 1)
    assert found == whole(server, 1)
    assert refused == [("f0", "100 answers to BrowseNext had nothing new")]
    assert server.calls < 110


async def test_a_node_without_an_identifier_does_not_hide_the_others() -> None:
    """A null string is none of asyncua's node ids."""
    server = Server(children=3)
    request = ua.BrowseRequest(Parameters=ua.BrowseParameters(NodesToBrowse=[ua.BrowseDescription(NodeId=_ROOT)]))
    identifier = b"\x06\0\0\0root.1"
    body = bytes(await server.answer(request, 0)).replace(identifier, b"\xff\xff\xff\xff", 1)

    async def answer(*_: Any) -> bytes:
        return body

    client: Any = SimpleNamespace(uaclient=SimpleNamespace(protocol=SimpleNamespace(send_request=answer)))
    (found,) = await Browser(client, 5.0, lambda _: None).children([_ROOT], 0)
    assert [one.node for one in found] == [ua.NodeId(name, 2) for name in ("root.0", "", "root.2")]
