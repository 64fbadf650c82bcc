"""What the simulator's server remembers of its own values (OPC 10000-11): raw, the newest of each node, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import Any

from asyncua import ua
from asyncua.common.utils import Buffer
from asyncua.server.history import HistoryManager


class History(HistoryManager):  # type: ignore[misc]
    """Answers HistoryRead of raw values, with bounds and continuation points. Other nodes have no history."""

    def __init__(self, iserver: Any, kept: int, most: int = 500) -> None:
        """``kept`` values of a node are remembered, ``most`` are in an answer."""
        super().__init__(iserver)
        self._kept, self._most = kept, most
        self._values: dict[Any, deque[Any]] = {}  # by node id, in order of time

    def historize(self, node_id: Any) -> None:
        """Remember what is published from now on."""
        self._values[node_id] = deque(maxlen=self._kept)

    def published(self, node_id: Any, value: Any) -> None:
        """One value; one that is older than the last has no place here."""
        values = self._values.get(node_id)
        if values is not None and (not values or values[-1].SourceTimestamp < value.SourceTimestamp):
            values.append(value)

    async def _read_history(self, details: Any, rv: Any) -> Any:
        result = ua.HistoryReadResult()
        values = self._values.get(rv.NodeId)
        if not isinstance(details, ua.ReadRawModifiedDetails) or details.IsReadModified or values is None:
            result.StatusCode = ua.StatusCode(ua.StatusCodes.BadHistoryOperationUnsupported)
            return result
        kept = list(values)
        times = [value.SourceTimestamp for value in kept]
        end = bisect_left(times, details.EndTime)
        if rv.ContinuationPoint:
            at = bisect_left(times, ua.ua_binary.Primitives.DateTime.unpack(Buffer(rv.ContinuationPoint)))
            found = kept[at:end]
        else:
            at = bisect_left(times, details.StartTime)
            found = kept[at:end]
            if details.ReturnBounds and (at == len(times) or times[at] != details.StartTime):
                found = [kept[at - 1] if at else _no_bound(details.StartTime), *found]
        most = min(self._most, details.NumValuesPerNode or self._most)
        if len(found) > most:
            result.ContinuationPoint = ua.ua_binary.Primitives.DateTime.pack(found[most].SourceTimestamp)
            found = found[:most]
        elif details.ReturnBounds:
            found = [*found, kept[end] if end < len(kept) else _no_bound(details.EndTime)]
        result.HistoryData = ua.HistoryData(DataValues=found)
        return result


def _no_bound(time: Any) -> Any:
    return ua.DataValue(
        ua.Variant(None), ua.StatusCode(ua.StatusCodes.BadBoundNotFound), SourceTimestamp=time, ServerTimestamp=time
    )
