"""HistoryRead of raw values (OPC 10000-11, 6.5.3): what a server remembers of some nodes in an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from asyncua import Client, ua

from ingest.config.model import OpcuaSource
from ingest.opcua.binary import Reader
from ingest.opcua.data_change import DataChange, history_data
from ingest.opcua.message import response_header

_HISTORY_READ_RESPONSE = 667  # binary encodings' node ids (OPC 10000-6, A.3)
_HISTORY_DATA = 658
_LEAST_RESULT = 11  # bytes of one result: status, point, empty extension object
_BAD = 0x8000_0000
_STUCK_PAGES = 100  # one after another that bring a node no further: it is given up
_VALUES = 1000  # of a node, an answer: small enough that live data does not wait for it
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of one node's history."""

    tag: int
    change: DataChange | None  # None: the server has no history of it (``status`` says why), or comes to no end
    status: int
    last: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What one HistoryReadResponse says of one node."""

    tag: int
    status: int
    point: bytes  # where to go on; empty: there is no more
    change: DataChange | None  # None: no history in it


async def server_start(client: Client) -> int:
    """Since when (µs) the server runs; 0: it does not say (OPC 10000-5, 6.3.1 and 12.10)."""
    return await _time(client, ua.ObjectIds.Server_ServerStatus_StartTime)


async def server_time(client: Client) -> int:
    """The server's clock (µs); 0: it does not say."""
    return await _time(client, ua.ObjectIds.Server_ServerStatus_CurrentTime)


async def _time(client: Client, node: int) -> int:
    try:
        said = await client.get_node(ua.NodeId(node)).read_value()
    except ua.UaStatusCodeError:
        return 0
    if not isinstance(said, datetime):
        return 0
    return (said.replace(tzinfo=said.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)


async def read_history(
    client: Client, source: OpcuaSource, tags: Sequence[int], from_time: int, to_time: int
) -> AsyncIterator[Page]:
    """Raw values of ``tags`` (indices) from ``from_time`` to ``to_time`` (µs), with bounds, page by page.

    Raises ua.UaError, OSError, TimeoutError or DecodeError.
    """
    points: dict[int, bytes | None] = dict.fromkeys(tags)
    reached: dict[int, int] = {}
    stuck: Counter[int] = Counter()
    while points:
        asked = list(points)
        request = ua.HistoryReadRequest()
        request.Parameters.HistoryReadDetails = ua.ReadRawModifiedDetails(
            IsReadModified=False,
            StartTime=_EPOCH + timedelta(microseconds=from_time),
            EndTime=_EPOCH + timedelta(microseconds=to_time),
            NumValuesPerNode=_VALUES,
            ReturnBounds=True,
        )
        request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Both
        request.Parameters.ReleaseContinuationPoints = False
        request.Parameters.NodesToRead = [
            ua.HistoryReadValueId(
                NodeId=ua.NodeId.from_string(source.tags[i].address), ContinuationPoint=points[i] or None
            )
            for i in asked
        ]
        body = bytes(await client.uaclient.protocol.send_request(request, 2 * source.time_out))
        for answer in answers(body, asked, to_time, frozenset(i for i in asked if source.tags[i].kind == "text")):
            change = answer.change
            if change is not None and answer.point and not _went_on(answer.tag, change, reached, stuck):
                change = None
            points[answer.tag] = answer.point
            if change is None or not answer.point:
                del points[answer.tag]
            yield Page(answer.tag, change, answer.status, answer.tag not in points)


def _went_on(tag: int, change: DataChange, reached: dict[int, int], stuck: Counter[int]) -> bool:
    """Whether there is an end in sight: ``reached`` (µs) grows now and then, and ``stuck`` counts the pages between."""
    latest = max([int(times.max()) for times in change.time] + [text.time for text in change.texts], default=None)
    if latest is not None and latest > reached.get(tag, latest - 1):
        reached[tag], stuck[tag] = latest, 0
    else:
        stuck[tag] += 1
    return stuck[tag] < _STUCK_PAGES


def answers(body: bytes, asked: Sequence[int], arrival: int, texts: Set[int] = frozenset()) -> Iterator[Answer]:
    """One answer for each tag of ``asked``, in order; what the server left out is Bad. Raises DecodeError.

    Numbers of those tags that are ``texts`` come in their exact text form.
    """
    reader = Reader(body)
    response_header(reader, _HISTORY_READ_RESPONSE)
    count = reader.count(_LEAST_RESULT)
    for tag in asked[:count]:
        status = reader.uint32()
        point = reader.string()
        type_id, start, end = reader.extension_object()
        bad = status & _BAD or type_id != _HISTORY_DATA
        yield Answer(tag, status, point, None if bad else history_data(body, start, end, tag, arrival, tag in texts))
    for tag in asked[count:]:
        yield Answer(tag, _BAD, b"", None)
