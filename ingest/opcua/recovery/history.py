"""HistoryRead of raw values (OPC 10000-11, 6.5.3) of some nodes in an interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

import numpy as np
from asyncua import Client, ua

from core.config.addresses.value_path import parse_index
from core.config.sources import OpcuaSource, OpcuaTag
from core.opcua.binary import FieldReader, response_header
from core.opcua.service import call, index_range_of, read_value, send
from core.status_codes import BAD
from core.timestamps import microseconds, utc
from ingest.opcua.decode.data_change import history_data
from ingest.opcua.decode.decoded import FIRST_STRUCTURE, PLAIN, DataChange, DecodeRules
from ingest.opcua.decode.members import MemberChannel, StructureDecoder
from ingest.opcua.decode.structures import Structures

_HISTORY_READ_RESPONSE = 667  # binary encodings' node ids (OPC 10000-6, A.3)
_HISTORY_DATA = 658
_LEAST_RESULT = 11  # bytes of one result: status, continuation point, empty extension object
# Refusals of timestamps that a server does not keep
_ONLY_SOURCE = (
    *(ua.uaerrors.BadTimestampsToReturnInvalid, ua.uaerrors.BadTimestampNotSupported),
    ua.uaerrors.BadInvalidTimestampArgument,
)
_ONLY_SOURCE_CODES = frozenset(error.code for error in _ONLY_SOURCE)
_STUCK_PAGES = 100  # consecutive pages without progress before a node is given up
BOUND_NOT_FOUND = 0x80D7_0000
NO_DATA = (BOUND_NOT_FOUND, 0x809B_0000, 0x00A5_0000)  # BadNoData, GoodNoData: the server has no values of that time
NO_RULES: Mapping[int, DecodeRules] = MappingProxyType({})
_VALUES = 1000  # per node and answer: small enough not to delay live data


@dataclass(frozen=True, slots=True)
class Page:
    """A part of one node's history."""

    tag: int
    change: DataChange | None  # None: no history (see ``status``), or no progress
    status: int
    last: bool


@dataclass(frozen=True, slots=True)
class NodeHistory:
    """The result of one node in a HistoryReadResponse."""

    tag: int
    status: int
    point: bytes  # continuation point; empty: complete
    change: DataChange | None  # None: no history


async def server_start(client: Client, source: OpcuaSource) -> int:
    """The server's start time (µs); 0: unknown (OPC 10000-5, 6.3.1 and 12.10)."""
    try:
        return _microseconds(await read_value(client, ua.ObjectIds.Server_ServerStatus_StartTime, source.time_out))
    except ua.UaStatusCodeError:
        return 0


async def server_time(client: Client, source: OpcuaSource) -> int:
    """Time at which the server answers a read (µs), by its own clock; 0: unknown (OPC 10000-4, 7.34).

    The variable CurrentTime may be a second old.
    """
    request = ua.ReadRequest()
    request.Parameters.NodesToRead = [ua.ReadValueId(ua.NodeId(ua.ObjectIds.Server_ServerStatus_State))]
    answer = await call(client, request, ua.ReadResponse, source.time_out)
    return _microseconds(answer.ResponseHeader.Timestamp)


def _microseconds(value: object) -> int:
    if not isinstance(value, datetime) or value.year == 1601:  # the least DateTime stands for none
        return 0
    return microseconds(value.replace(tzinfo=value.tzinfo or UTC))


async def read_history(
    client: Client,
    source: OpcuaSource,
    tags: Mapping[int, ua.NodeId],
    from_time: int,
    to_time: int,
    whole_arrays: bool = False,
    structures: Structures | None = None,
) -> AsyncIterator[Page]:
    """Yield raw values of ``tags`` (index → node id) from ``from_time`` to ``to_time`` (µs), with bounds, page by page.

    ``whole_arrays``: the server does not support IndexRange; ``structures``: of this session. A server, or a node, that
    has only source timestamps is read again with these. Some servers (asyncua's) say nothing of what is behind as many
    values as were requested: they are asked for that, too.

    Raises ua.UaError, OSError, TimeoutError or DecodeError.
    """
    structures = structures or Structures()
    members = {source.tags[i].address: node for i, node in tags.items() if source.tags[i].member}
    await structures.read(client, source.time_out, members)
    rules = {i: _rules(i, source.tags[i], whole_arrays, structures) for i in tags}
    remaining = list(tags)
    for timestamps in (ua.TimestampsToReturn.Both, ua.TimestampsToReturn.Source):
        unfinished: list[int] = []
        upcoming = dict.fromkeys(remaining, (from_time, b""))  # begin and continuation point of the next request
        reached: dict[int, int] = {}
        stuck: Counter[int] = Counter()
        while upcoming:
            begin, _ = next(iter(upcoming.values()))
            requested = [i for i in upcoming if upcoming[i][0] == begin]
            request = ua.HistoryReadRequest()
            request.Parameters.HistoryReadDetails = ua.ReadRawModifiedDetails(
                IsReadModified=False,
                StartTime=utc(begin),
                EndTime=utc(to_time),
                NumValuesPerNode=_VALUES,
                ReturnBounds=begin == from_time,
            )
            request.Parameters.TimestampsToReturn = timestamps
            request.Parameters.ReleaseContinuationPoints = False
            request.Parameters.NodesToRead = [
                ua.HistoryReadValueId(
                    NodeId=tags[i],
                    ContinuationPoint=upcoming[i][1] or None,
                    IndexRange=None if whole_arrays else index_range_of(source.tags[i]),
                )
                for i in requested
            ]
            is_last = timestamps == ua.TimestampsToReturn.Source
            try:
                body = bytes(await send(client, request, 2 * source.time_out, divisible=True))
            except _ONLY_SOURCE:
                if is_last:
                    raise
                unfinished += upcoming
                break
            for answer in answers(body, requested, to_time, rules):
                tag, change = answer.tag, answer.change
                del upcoming[tag]
                if answer.status in _ONLY_SOURCE_CODES and not is_last:
                    unfinished.append(tag)
                    continue
                if change is None and begin > from_time and (answer.status in NO_DATA or not answer.status & BAD):
                    continue
                if change is not None and (answer.point or _is_cut(change, to_time)):
                    if not _makes_progress(tag, change, reached, stuck):
                        change = None
                    elif answer.point:
                        upcoming[tag] = begin, answer.point
                    else:
                        upcoming[tag] = max(begin, reached[tag]) + 1, b""
                yield Page(tag, change, answer.status, tag not in upcoming)
        remaining = unfinished


def _makes_progress(tag: int, change: DataChange, reached: dict[int, int], stuck: Counter[int]) -> bool:
    """Return whether there is progress: ``reached`` (µs) grows now and then; ``stuck`` counts the pages in between."""
    latest = _latest(change)
    if latest is not None and latest > reached.get(tag, latest - 1):
        reached[tag], stuck[tag] = latest, 0
    else:
        stuck[tag] += 1
    return stuck[tag] < _STUCK_PAGES


def _latest(change: DataChange) -> int | None:
    """Time (µs) of the latest value; None: there is none."""
    return max([int(times.max()) for times in change.time] + [text.time for text in change.texts], default=None)


def _is_cut(change: DataChange, to_time: int) -> bool:
    """Return whether there may be more values behind these: there are as many as were requested, or more by bounds."""
    latest = _latest(change)
    return sum(map(len, change.time)) + len(change.texts) >= _VALUES and latest is not None and latest < to_time


def _rules(i: int, tag: OpcuaTag, whole_arrays: bool, structures: Structures) -> DecodeRules:
    exact = np.ones(1, bool) if tag.kind == "text" else None
    if tag.reads_whole:
        decoder = StructureDecoder(structures.structure(tag.address), [MemberChannel(i, tag.path)])
        return DecodeRules(exact, structures={FIRST_STRUCTURE + i: decoder})
    if tag.index is None:
        return DecodeRules(exact)
    return DecodeRules(exact, np.zeros(1, np.int64), [parse_index(tag.index)], whole_arrays)


def answers(
    body: bytes, requested: Sequence[int], arrival: int, rules: Mapping[int, DecodeRules] = NO_RULES
) -> Iterator[NodeHistory]:
    """One answer per tag of ``requested``, in order; Bad if the server omitted it. Raises DecodeError.

    ``rules``: of the values, by tag.
    """
    reader = FieldReader(body)
    response_header(reader, _HISTORY_READ_RESPONSE)
    count = reader.count(_LEAST_RESULT)
    for tag in requested[:count]:
        status = reader.uint32()
        point = reader.string()
        type_id, start, end = reader.extension_object({_HISTORY_DATA: lambda: _skip_history_data(reader)})
        bad = status & BAD or type_id != _HISTORY_DATA
        rule = rules.get(tag, PLAIN)
        handle = FIRST_STRUCTURE + tag if rule.structures else tag
        change = None if bad else history_data(body, start, end, handle, arrival, rule)
        yield NodeHistory(tag, status, point, change)
    for tag in requested[count:]:
        yield NodeHistory(tag, BAD, b"", None)


def _skip_history_data(reader: FieldReader) -> None:
    """Skip history data in a body whose length is not known."""
    for _ in range(reader.count(1)):
        reader.data_value()
