"""What the simulator's server remembers of its own values (OPC 10000-11): raw, the newest of each node, in memory."""

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

    def __init__(self, iserver: Any, kept: int, most: int = 500) -> None:
        """``kept`` values of a node are remembered, ``most`` are in an answer."""
        super().__init__(iserver)
        self._kept, self._most = kept, most
        self._values: dict[Any, _Values] = {}  # by node id

    def historize(self, node_id: Any) -> None:
        """Remember what is published from now on."""
        self._values[node_id] = _Values(self._kept)

    def published(self, node_id: Any, value: Any) -> None:
        """One value, also one that is older than the last: a source's clock may jump."""
        values = self._values.get(node_id)
        if values is not None:
            values.add(value)

    async def _read_history(self, details: Any, rv: Any) -> Any:
        result = ua.HistoryReadResult()
        values = self._values.get(rv.NodeId)
        if not isinstance(details, ua.ReadRawModifiedDetails) or details.IsReadModified or values is None:
            result.StatusCode = ua.StatusCode(ua.StatusCodes.BadHistoryOperationUnsupported)
            return result
        kept, times = values.kept, values.times
        end = bisect_left(times, details.EndTime)
        if rv.ContinuationPoint:
            at = bisect_left(times, ua.ua_binary.Primitives.DateTime.unpack(Buffer(rv.ContinuationPoint)))
            found = kept[at:end]
        else:
            at = bisect_left(times, details.StartTime)
            found = kept[at:end]
            if details.ReturnBounds and (at == len(times) or times[at] != details.StartTime):
                known = at and not values.forgot_since(details.StartTime)
                found = [kept[at - 1] if known else _no_bound(details.StartTime), *found]
        most = min(self._most, details.NumValuesPerNode or self._most)
        if len(found) > most:
            result.ContinuationPoint = ua.ua_binary.Primitives.DateTime.pack(found[most].SourceTimestamp)
            found = found[:most]
        elif details.ReturnBounds:
            found = [*found, kept[end] if end < len(kept) else _no_bound(details.EndTime)]
        result.HistoryData = ua.HistoryData(DataValues=found)
        return result


class _Values:
    """The newest values of a node, in order of their times; the first to come is the first to be forgotten."""

    def __init__(self, most: int) -> None:
        self.kept: list[Any] = []
        self.times: list[datetime] = []
        self._most = most
        self._arrived: deque[datetime] = deque()
        self._forgotten = datetime.min  # the latest time of a value that is no longer kept

    def add(self, value: Any) -> None:
        """One more; of two with one time the last one counts."""
        time = value.SourceTimestamp
        at = bisect_left(self.times, time)
        if at < len(self.times) and self.times[at] == time:
            self.kept[at] = value
            return
        self.times.insert(at, time)
        self.kept.insert(at, value)
        self._arrived.append(time)
        if len(self._arrived) > self._most:
            oldest = self._arrived.popleft()
            at = bisect_left(self.times, oldest)
            del self.times[at], self.kept[at]
            self._forgotten = max(self._forgotten, oldest)

    def forgot_since(self, time: datetime) -> bool:
        """Whether a value later than ``time`` is no longer kept: then there is no telling what came behind it."""
        return self._forgotten >= time


def _no_bound(time: Any) -> Any:
    return ua.DataValue(
        ua.Variant(None), ua.StatusCode(ua.StatusCodes.BadBoundNotFound), SourceTimestamp=time, ServerTimestamp=time
    )
