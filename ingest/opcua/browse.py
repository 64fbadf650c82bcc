"""Browse and read many nodes of a server in few calls, within its operation limits (OPC 10000-4, 5.9.2 and 5.11.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from asyncua import Client, ua

from ingest.errors import SourceError
from ingest.opcua.service import call, chunks, operation_limit

T = TypeVar("T")

_NODES_PER_CALL = 250  # large enough to be fast, small enough to be answered in time
_IN_FLIGHT = 3  # calls
_MAX_REFERENCES = 2_000_000  # a server that generates nodes on request never ends
_MAX_TYPE_DEPTH = 32  # levels of subtypes
_LIMITS = ua.ObjectIds


class Browser:
    """Calls of one session. ``progress`` is called after each answer with its number of nodes.

    ``most_references``: per node and answer; 0: no limit.
    """

    def __init__(
        self, client: Client, time_out: float, progress: Callable[[int], None], most_references: int = 0
    ) -> None:
        self._client = client
        self._time_out = time_out
        self._progress = progress
        self._most_references = most_references
        self._in_flight = asyncio.Semaphore(_IN_FLIGHT)
        self._per_browse = self._per_read = _NODES_PER_CALL
        self._references = 0
        self.refused: list[tuple[Any, str]] = []  # nodes that could not be browsed, with the status

    async def prepare(self) -> None:
        """Read the server's operation limits."""
        name = "Server_ServerCapabilities_OperationLimits_MaxNodesPer"
        browse, read = getattr(_LIMITS, f"{name}Browse"), getattr(_LIMITS, f"{name}Read")
        self._per_browse = min(_NODES_PER_CALL, await operation_limit(self._client, browse))
        self._per_read = min(4 * _NODES_PER_CALL, await operation_limit(self._client, read))

    async def children(self, nodes: Sequence[Any], classes: int) -> list[list[Any]]:
        """The ReferenceDescriptions of each node, down the hierarchy, to nodes of ``classes``."""
        return await self._browse(nodes, ua.ObjectIds.HierarchicalReferences, ua.BrowseDirection.Forward, classes)

    async def supertypes(self, types: Sequence[Any]) -> list[Any | None]:
        """The node id of each one's supertype."""
        found = await self._browse(types, ua.ObjectIds.HasSubtype, ua.BrowseDirection.Inverse, 0)
        return [references[0].NodeId if references else None for references in found]

    async def ancestors(self, types: Iterable[Any], is_known: Callable[[Any], bool]) -> dict[Any, Any | None]:
        """Each type → the nearest known one above it, or itself; None: there is none."""
        above: dict[Any, Any | None] = {one: one for one in types}
        for _ in range(_MAX_TYPE_DEPTH):
            unknown = {one: top for one, top in above.items() if top is not None and not is_known(top)}
            if not unknown:
                break
            for one, top in zip(unknown, await self.supertypes(list(unknown.values())), strict=True):
                above[one] = None if top is None else local(top)
        return {one: top if top is not None and is_known(top) else None for one, top in above.items()}

    async def binary_encodings(self, types: Sequence[Any]) -> list[Any | None]:
        """The node id of each type's binary encoding (OPC 10000-3, 5.8.3)."""
        found = await self._browse(types, ua.ObjectIds.HasEncoding, ua.BrowseDirection.Forward, 0)
        named = [{r.BrowseName.Name: local(r.NodeId) for r in references} for references in found]
        return [names.get("Default Binary") for names in named]

    async def read(self, wanted: Sequence[tuple[Any, int]]) -> list[Any]:
        """The DataValues of (node id, attribute)."""

        async def call_one(chunk: Sequence[tuple[Any, int]]) -> list[Any]:
            request = ua.ReadRequest()
            request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Neither
            request.Parameters.NodesToRead = [ua.ReadValueId(NodeId=n, AttributeId=a) for n, a in chunk]
            answer: Any = await self._call(request, ua.ReadResponse, len(chunk))
            return _checked(answer.Results, chunk)

        return await self._all(wanted, self._per_read, call_one)

    async def _browse(self, nodes: Sequence[Any], references: int, direction: Any, classes: int) -> list[list[Any]]:
        async def call_one(chunk: Sequence[Any]) -> list[list[Any]]:
            request = ua.BrowseRequest()
            request.Parameters.RequestedMaxReferencesPerNode = self._most_references
            request.Parameters.NodesToBrowse = [
                ua.BrowseDescription(
                    NodeId=node,
                    BrowseDirection=direction,
                    ReferenceTypeId=ua.NodeId(references),
                    IncludeSubtypes=True,
                    NodeClassMask=classes,
                    ResultMask=ua.BrowseResultMask.All,
                )
                for node in chunk
            ]
            answer: Any = await self._call(request, ua.BrowseResponse, len(chunk))
            results = _checked(answer.Results, chunk)
            again = {i for i, result in enumerate(results) if _too_many(result)} if len(chunk) > 1 else set()
            found = []
            for i, (node, result) in enumerate(zip(chunk, results, strict=True)):
                if i not in again and direction == ua.BrowseDirection.Forward and not result.StatusCode.is_good():
                    self.refused.append((node, result.StatusCode.name))
                found.append([] if i in again else await self._rest(result))
            for i in again:  # the server limits continuation points; they are free again now
                found[i] = (await call_one([chunk[i]]))[0]
            return found

        return await self._all(nodes, self._per_browse, call_one)

    async def _rest(self, result: Any) -> list[Any]:
        """All references of a result, including those that did not fit into the first answer."""
        found = list(result.References or [])
        self._count(len(found))
        point = result.ContinuationPoint
        while point:
            request = ua.BrowseNextRequest()
            request.Parameters.ReleaseContinuationPoints = False
            request.Parameters.ContinuationPoints = [point]
            answer: Any = await self._call(request, ua.BrowseNextResponse, 0)
            (result,) = _checked(answer.Parameters.Results, [point])
            result.StatusCode.check()
            found += result.References or []
            self._count(len(result.References or []) or 1)
            point = result.ContinuationPoint
        return found

    async def _all(self, items: Sequence[Any], size: int, call_one: Callable[[Sequence[Any]], Any]) -> list[Any]:
        async def bounded(chunk: Sequence[Any]) -> list[Any]:
            async with self._in_flight:
                found: list[Any] = await call_one(chunk)
            self._progress(len(chunk))
            return found

        parts = await asyncio.gather(*(bounded(chunk) for chunk in chunks(items, size)))
        return [item for part in parts for item in part]

    async def _call(self, request: Any, response: type[T], nodes: int) -> T:
        return await call(self._client, request, response, self._time_out + nodes * 0.02)

    def _count(self, references: int) -> None:
        self._references += references
        if self._references > _MAX_REFERENCES:
            raise SourceError(f"the server has more than {_MAX_REFERENCES:,} references: giving up")


def _too_many(result: Any) -> bool:
    return bool(result.StatusCode.value == ua.StatusCodes.BadNoContinuationPoints)


def _checked(results: list[Any] | None, requested: Sequence[Any]) -> list[Any]:
    """The results, checked to be one per request. Raises SourceError."""
    if len(results or []) != len(requested):
        raise SourceError(f"the server returned {len(results or [])} results for {len(requested)} operations")
    return results or []


def local(node: Any) -> Any | None:
    """A node id of this server without URI and server; None: of another server."""
    if getattr(node, "ServerIndex", 0):
        return None
    if isinstance(node, ua.ExpandedNodeId):
        return ua.NodeId(node.Identifier, node.NamespaceIndex, node.NodeIdType)
    return node
