"""HistoryRead of raw values (OPC 10000-11, 6.5.3) of some nodes in an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from asyncua import Client, ua

from ingest.config.sources import OpcuaSource
from ingest.opcua.binary import Reader
from ingest.opcua.data_change import DataChange, history_data
from ingest.opcua.message import response_header
from ingest.timestamps import microseconds, utc

_HISTORY_READ_RESPONSE = 667  # binary encodings' node ids (OPC 10000-6, A.3)
_HISTORY_DATA = 658
_LEAST_RESULT = 11  # bytes of one result: status, continuation point, empty extension object
_BAD = 0x8000_0000
_STUCK_PAGES = 100  # consecutive pages without progress before a node is given up
_VALUES = 1000  # per node and answer: small enough not to delay live data


@dataclass(frozen=True, slots=True)
class Page:
    """A part of one node's history."""

    tag: int
    change: DataChange | None  # None: no history (see ``status``), or no progress
    status: int
    last: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one node in a HistoryReadResponse."""

    tag: int
    status: int
    point: bytes  # continuation point; empty: complete
    change: DataChange | None  # None: no history


async def server_start(client: Client) -> int:
    """The server's start time (µs); 0: unknown (OPC 10000-5, 6.3.1 and 12.10)."""
    return await _time(client, ua.ObjectIds.Server_ServerStatus_StartTime)


async def server_time(client: Client) -> int:
    """The server's current time (µs); 0: unknown."""
    return await _time(client, ua.ObjectIds.Server_ServerStatus_CurrentTime)


async def _time(client: Client, node: int) -> int:
    try:
        value = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return 0
    if not isinstance(value, datetime):
        return 0
    return microseconds(value.replace(tzinfo=value.tzinfo or UTC))


async def read_history(
    client: Client, source: OpcuaSource, tags: Sequence[int], from_time: int, to_time: int
) -> AsyncIterator[Page]:
    """Yield raw values of ``tags`` (indices) from ``from_time`` to ``to_time`` (µs), with bounds, page by page.

    Raises ua.UaError, OSError, TimeoutError or DecodeError.
    """
    points: dict[int, bytes | None] = dict.fromkeys(tags)
    reached: dict[int, int] = {}
    stuck: Counter[int] = Counter()
    while points:
        requested = list(points)
        request = ua.HistoryReadRequest()
        request.Parameters.HistoryReadDetails = ua.ReadRawModifiedDetails(
            IsReadModified=False,
            StartTime=utc(from_time),
            EndTime=utc(to_time),
            NumValuesPerNode=_VALUES,
            ReturnBounds=True,
        )
        request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
        request.Parameters.ReleaseContinuationPoints = False
        request.Parameters.NodesToRead = [
            ua.HistoryReadValueId(
                NodeId=ua.NodeId.from_string(source.tags[i].address), ContinuationPoint=points[i] or None
            )
            for i in requested
        ]
        body = bytes(await client.uaclient.protocol.send_request(request, 2 * source.time_out))
        for answer in answers(
            body, requested, to_time, frozenset(i for i in requested if source.tags[i].kind == "text")
        ):
            change = answer.change
            if change is not None and answer.point and not _makes_progress(answer.tag, change, reached, stuck):
                change = None
            points[answer.tag] = answer.point
            if change is None or not answer.point:
                del points[answer.tag]
            yield Page(answer.tag, change, answer.status, answer.tag not in points)


def _makes_progress(tag: int, change: DataChange, reached: dict[int, int], stuck: Counter[int]) -> bool:
    """Whether there is progress: ``reached`` (µs) grows now and then; ``stuck`` counts the pages in between."""
    latest = max([int(times.max()) for times in change.time] + [text.time for text in change.texts], default=None)
    if latest is not None and latest > reached.get(tag, latest - 1):
        reached[tag], stuck[tag] = latest, 0
    else:
        stuck[tag] += 1
    return stuck[tag] < _STUCK_PAGES


def answers(body: bytes, requested: Sequence[int], arrival: int, texts: Set[int] = frozenset()) -> Iterator[Answer]:
    """One answer per tag of ``requested``, in order; Bad if the server omitted it. Raises DecodeError.

    Numbers of tags in ``texts`` are returned as exact text.
    """
    reader = Reader(body)
    response_header(reader, _HISTORY_READ_RESPONSE)
    count = reader.count(_LEAST_RESULT)
    for tag in requested[:count]:
        status = reader.uint32()
        point = reader.string()
        type_id, start, end = reader.extension_object()
        bad = status & _BAD or type_id != _HISTORY_DATA
        yield Answer(tag, status, point, None if bad else history_data(body, start, end, tag, arrival, tag in texts))
    for tag in requested[count:]:
        yield Answer(tag, _BAD, b"", None)
