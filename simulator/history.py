"""History of the simulator's server (OPC 10000-11): the newest raw values of each node, in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from datetime import datetime
from typing import Any

from asyncua import ua
from asyncua.common.utils import Buffer
from asyncua.server.history import HistoryManager


class History(HistoryManager):  # type: ignore[misc]
    """Answers HistoryRead of raw values, with bounds and continuation points. Other nodes have no history."""

    def __init__(self, iserver: Any, size: int, max_values: int = 500) -> None:
        """``values``: values stored per node; ``max_values``: values per answer."""
        super().__init__(iserver)
        self._size, self._max_values = size, max_values
        self._values: dict[Any, _Values] = {}  # by node id

    def historize(self, node_id: Any) -> None:
        """Start storing published values."""
        self._values[node_id] = _Values(self._size)

    def published(self, node_id: Any, value: Any) -> None:
        """Store one value, which may be older than the last one: a source's clock may jump."""
        values = self._values.get(node_id)
        if values is not None:
            values.add(value)

    async def _read_history(self, details: Any, rv: Any) -> Any:
        result = ua.HistoryReadResult()
        values = self._values.get(rv.NodeId)
        if not isinstance(details, ua.ReadRawModifiedDetails) or details.IsReadModified or values is None:
            result.StatusCode = ua.StatusCode(ua.StatusCodes.BadHistoryOperationUnsupported)
            return result
        stored, times = values.values, values.times
        end = bisect_left(times, details.EndTime)
        if rv.ContinuationPoint:
            at = bisect_left(times, ua.ua_binary.Primitives.DateTime.unpack(Buffer(rv.ContinuationPoint)))
            values_read = stored[at:end]
        else:
            at = bisect_left(times, details.StartTime)
            values_read = stored[at:end]
            if details.ReturnBounds and (at == len(times) or times[at] != details.StartTime):
                has_value = at and not values.forgot_since(details.StartTime)
                values_read = [stored[at - 1] if has_value else _no_bound(details.StartTime), *values_read]
        max_values = min(self._max_values, details.NumValuesPerNode or self._max_values)
        if len(values_read) > max_values:
            result.ContinuationPoint = ua.ua_binary.Primitives.DateTime.pack(values_read[max_values].SourceTimestamp)
            values_read = values_read[:max_values]
        elif details.ReturnBounds:
            values_read = [*values_read, stored[end] if end < len(stored) else _no_bound(details.EndTime)]
        result.HistoryData = ua.HistoryData(DataValues=values_read)
        return result


class _Values:
    """The newest values of a node in order of time; dropped in order of arrival."""

    def __init__(self, max_values: int) -> None:
        self.values: list[Any] = []
        self.times: list[datetime] = []
        self._max_values = max_values
        self._arrived: deque[datetime] = deque()
        self._forgotten: datetime | None = None  # the latest time of a dropped value

    def add(self, value: Any) -> None:
        """Add a value; of two with the same time the last one counts."""
        time = value.SourceTimestamp
        at = bisect_left(self.times, time)
        if at < len(self.times) and self.times[at] == time:
            self.values[at] = value
            return
        self.times.insert(at, time)
        self.values.insert(at, value)
        self._arrived.append(time)
        if len(self._arrived) > self._max_values:
            oldest = self._arrived.popleft()
            at = bisect_left(self.times, oldest)
            del self.times[at], self.values[at]
            self._forgotten = oldest if self._forgotten is None else max(self._forgotten, oldest)

    def forgot_since(self, time: datetime) -> bool:
        """Return whether a value later than ``time`` was dropped: then what followed ``time`` is unknown."""
        return self._forgotten is not None and self._forgotten >= time


def _no_bound(time: Any) -> Any:
    return ua.DataValue(
        ua.Variant(None), ua.StatusCode(ua.StatusCodes.BadBoundNotFound), SourceTimestamp=time, ServerTimestamp=time
    )
