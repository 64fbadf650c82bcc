"""Browse and read many nodes of a server in few calls, within its operation limits (OPC 10000-4, 5.9.2 and 5.11.2).

An answer is reduced to the fields that are needed as it arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from sys import intern
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from asyncua import Client, ua

from core.errors import DecodeError, SourceError
from core.opcua.binary import FieldReader, response_header
from core.opcua.service import REFUSED, Operations, checked, operation_limit, read, send

T = TypeVar("T")

_NODES_PER_CALL = 250  # large enough to be fast, small enough to be answered in time
_IN_FLIGHT = 3  # calls
_MAX_REFERENCES = 2_000_000  # a server that generates nodes on request never ends
_MAX_TYPE_DEPTH = 32  # levels of subtypes
_STUCK_PAGES = 100  # consecutive answers to BrowseNext without a new node, before a node is given up
_LIMITS = ua.ObjectIds
_NO_SUCH_TYPE = ("BadNodeIdUnknown", "BadNodeIdInvalid")
_RESULT_MASK = ua.BrowseResultMask.ReferenceTypeId | ua.BrowseResultMask.NodeClass | ua.BrowseResultMask.BrowseName
# The server has freed a continuation point for another call, or had none left. Alone, a call gets one.
_NO_POINT = ("BadNoContinuationPoints", "BadContinuationPointInvalid")


class Browser:
    """Calls of one session. ``progress`` is called after each answer with its number of nodes.

    ``max_references``: per node and answer; 0: no limit.
    """

    def __init__(
        self, client: Client, time_out: float, progress: Callable[[int], None], max_references: int = 0
    ) -> None:
        self._client = client
        self._time_out = time_out
        self._progress = progress
        self._max_references = max_references
        self._browsing = Operations(_NODES_PER_CALL, _IN_FLIGHT)
        self._reading = Operations(4 * _NODES_PER_CALL, _IN_FLIGHT)
        self._alone = Operations(1)
        self._references = 0
        self.refused: list[tuple[Any, str]] = []  # nodes with unknown references, and the reason

    async def prepare(self) -> None:
        """Read the server's operation limits."""
        name = "Server_ServerCapabilities_OperationLimits_MaxNodesPer"
        for operations, service in ((self._browsing, "Browse"), (self._reading, "Read")):
            limit = getattr(_LIMITS, f"{name}{service}")
            operations.limit(await operation_limit(self._client, limit, self._time_out))

    async def children(self, nodes: Sequence[Any], classes: int) -> list[list[Reference]]:
        """The references of each node, down the hierarchy, to nodes of ``classes``."""
        results = await self._browse(nodes, ua.ObjectIds.HierarchicalReferences, ua.BrowseDirection.Forward, classes)
        self.refused += [(node, result.fault) for node, result in zip(nodes, results, strict=True) if result.fault]
        return [result.references for result in results]

    async def supertypes(self, types: Sequence[Any]) -> list[Any | None]:
        """The node id of each type's supertype; None: it has none."""
        results = await self._browse(types, ua.ObjectIds.HasSubtype, ua.BrowseDirection.Inverse, 0)
        self.refused += [
            (node, result.fault)
            for node, result in zip(types, results, strict=True)
            if result.fault not in ("", *_NO_SUCH_TYPE)
        ]
        return [result.references[0].node if result.references else None for result in results]

    async def ancestors(self, types: Iterable[Any], is_known: Callable[[Any], bool]) -> dict[Any, Any | None]:
        """Each type → its nearest known supertype, or itself; None: there is none."""
        tops: dict[Any, Any | None] = {data_type: data_type for data_type in types}
        for _ in range(_MAX_TYPE_DEPTH):
            unknown = {data_type: top for data_type, top in tops.items() if top is not None and not is_known(top)}
            if not unknown:
                break
            tops |= zip(unknown, await self.supertypes(list(unknown.values())), strict=True)
        return {data_type: top if top is not None and is_known(top) else None for data_type, top in tops.items()}

    async def binary_encodings(self, types: Sequence[Any]) -> list[Any | None]:
        """The node id of each type's binary encoding (OPC 10000-3, 5.8.3)."""
        results = await self._browse(types, ua.ObjectIds.HasEncoding, ua.BrowseDirection.Forward, 0)
        named = [{reference.name: reference.node for reference in result.references} for result in results]
        return [names.get("Default Binary") for names in named]

    async def read(self, attributes: Sequence[tuple[Any, int]], take: Callable[[Any], T]) -> list[T]:
        """Read attributes: (node id, attribute) each. ``take`` makes a result of each DataValue."""

        async def read_some(portion: Sequence[tuple[Any, int]]) -> list[T]:
            values = await read(self._client, portion, self._seconds(portion), divisible=True)
            self._progress(len(portion))
            return [take(value) for value in values]

        return await self._reading.results(
            attributes, read_some, lambda code: take(ua.DataValue(StatusCode_=ua.StatusCode(code)))
        )

    async def _browse(self, nodes: Sequence[Any], references: int, direction: Any, classes: int) -> list[BrowseResult]:
        async def browse_some(portion: Sequence[Any]) -> list[BrowseResult]:
            request = ua.BrowseRequest()
            request.Parameters.RequestedMaxReferencesPerNode = self._max_references
            request.Parameters.NodesToBrowse = [
                ua.BrowseDescription(
                    NodeId=node,
                    BrowseDirection=direction,
                    ReferenceTypeId=ua.NodeId(references),
                    IncludeSubtypes=True,
                    NodeClassMask=classes,
                    ResultMask=_RESULT_MASK,
                )
                for node in portion
            ]
            body = bytes(await send(self._client, request, self._seconds(portion), divisible=True))
            results = checked(browse_results(body, ua.BrowseResponse), portion)
            self._count(results)
            self._progress(len(portion))
            return [await self._rest(*result) if result.point else result for result in results]

        browsed_nodes = await self._browsing.results(nodes, browse_some, _refused)
        failed = [i for i, result in enumerate(browsed_nodes) if result.fault in _NO_POINT]
        retried = await self._alone.results([nodes[i] for i in failed], browse_some, _refused)
        for i, browsed in zip(failed, retried, strict=True):
            browsed_nodes[i] = browsed
        return browsed_nodes

    async def _rest(self, references: list[Reference], point: bytes, fault: str) -> BrowseResult:
        """All references of a node, including those that did not fit into the first answer."""
        earlier, stuck = set(references), 0
        while point:
            request = ua.BrowseNextRequest()
            request.Parameters.ReleaseContinuationPoints = is_stuck = stuck == _STUCK_PAGES
            request.Parameters.ContinuationPoints = [point]
            try:
                body = bytes(await send(self._client, request, self._time_out))
            except (*REFUSED, ua.uaerrors.BadContinuationPointInvalid) as error:
                return BrowseResult(references, fault=type(error).__name__)
            if is_stuck:
                return BrowseResult(references, fault=f"{_STUCK_PAGES} answers to BrowseNext had nothing new")
            (result,) = results = checked(browse_results(body, ua.BrowseNextResponse), [point])
            self._count(results)
            more = [reference for reference in result.references if reference not in earlier]
            references += more
            earlier.update(more)
            stuck = 0 if more else stuck + 1
            point, fault = result.point, fault or result.fault
        return BrowseResult(references, fault=fault)

    def _count(self, results: Iterable[BrowseResult]) -> None:
        self._references += sum(len(result.references) for result in results)
        if self._references > _MAX_REFERENCES:
            raise SourceError(f"the server has more than {_MAX_REFERENCES:,} references: giving up")

    def _seconds(self, portion: Sequence[Any]) -> float:
        return self._time_out + len(portion) * 0.02


def _refused(code: int) -> BrowseResult:
    return BrowseResult([], fault=str(ua.StatusCode(code).name))


_RESPONSES = {ua.BrowseResponse: 530, ua.BrowseNextResponse: 536}  # binary encodings' node ids (OPC 10000-6, A.3)
_MIN_RESULT = 12  # bytes: status, continuation point, no references
_MIN_REFERENCE = 18


class Reference(NamedTuple):
    """A reference of a browsed node."""

    node: Any | None  # None: a node of another server
    name: str  # its browse name
    is_variable: bool
    is_property: bool


class BrowseResult(NamedTuple):
    """The references of a node. They are not all if there is a continuation point, or a fault."""

    references: list[Reference]
    point: bytes = b""
    fault: str = ""  # name of a status code that is not Good, or a sentence


def browse_results(body: bytes, response: type) -> list[BrowseResult]:
    """The result of each node, or continuation point, that was browsed. Raises DecodeError."""
    reader = FieldReader(body)
    response_header(reader, _RESPONSES[response])
    return [_result(reader) for _ in range(reader.count(_MIN_RESULT))]


def _result(reader: FieldReader) -> BrowseResult:
    status = ua.StatusCode(reader.uint32())
    point = reader.string()
    references = [_reference(reader) for _ in range(reader.count(_MIN_REFERENCE))]
    return BrowseResult(references, point, "" if status.is_good() else str(status.name))


def _reference(reader: FieldReader) -> Reference:
    is_property = reader.node_id() == ua.ObjectIds.HasProperty
    reader.skip(1)  # is it forward?
    node = _node(reader)
    reader.skip(2)  # namespace of the browse name
    name = _text(reader.string())
    reader.built_in(ua.VariantType.LocalizedText.value)  # display name
    is_variable = reader.int32() == ua.NodeClass.Variable
    reader.node_id()  # type definition
    return Reference(node, intern(name), is_variable, is_property)


def _node(reader: FieldReader) -> ua.NodeId | None:
    """A node of this server, whose identifier may be empty; None: one of another server."""
    encoding = reader.byte()
    namespace = 0
    identifier: int | str | UUID | bytes
    match encoding & 0x3F:
        case 0:
            identifier = reader.byte()
        case 1:
            namespace, identifier = reader.byte(), reader.uint16()
        case 2:
            namespace, identifier = reader.uint16(), reader.uint32()
        case 3:
            namespace, identifier = reader.uint16(), _text(reader.string())
        case 4:
            namespace, start = reader.uint16(), reader.at
            reader.skip(16)
            identifier = UUID(bytes_le=bytes(reader.body[start : reader.at]))
        case 5:
            namespace, identifier = reader.uint16(), reader.string()
        case unknown:
            raise DecodeError(f"node id of unknown encoding {unknown}")
    if encoding & 0x80:
        reader.string()  # namespace URI
    return None if encoding & 0x40 and reader.uint32() else ua.NodeId(identifier, namespace)


def _text(content: bytes) -> str:
    """Bytes that are not UTF-8 stay recognisable, as lone surrogates."""
    return content.decode(errors="surrogateescape")
