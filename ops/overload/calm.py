"""After a strain: whether all is as before, and how long that took. What is stored is not asked."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ingest.errors import OperationError
from ops import health
from ops.deployment import Running
from ops.overload.measure import Waiting, waits
from ops.overload.state import BEHIND
from ops.paths import State

_LOOK_SECONDS = 0.5
_LOOKS = 6  # in a row that are as before
_LATE_SECONDS = 1.0  # that a poll is late which goes on
_AGE_SECONDS = 1.5  # behind its interval the newest sample of a source may be
_PUSH = "push"  # whose sources are as silent as their gateways


@dataclass(frozen=True, slots=True)
class Seen:
    """What the processes of an appliance say at a time, and what waits in its spools."""

    at: float  # monotonic
    now: float  # s since 1970
    said: dict[str, dict[str, Any] | None]  # process → its report; None: it does not answer
    waits: dict[str, Waiting]  # by spool

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Of all collectors that answer."""
        return [source for report in self.said.values() if report for source in report.get("sources", ())]

    @property
    def read(self) -> list[dict[str, Any]]:
        """The sources that are polled or subscribed to."""
        return [source for source in self.sources if source["kind"] != _PUSH]

    @property
    def lag(self) -> float:
        """Seconds for which the oldest batch of those that are read waits."""
        return max((wait.seconds for spool, wait in self.waits.items() if not spool.startswith(_PUSH)), default=0.0)

    @property
    def pace(self) -> float:
        """Seconds between two polls of the source whose polls are furthest apart; 0: as configured."""
        return max((self._pace(source) for source in self.sources), default=0.0)

    @property
    def overloaded(self) -> bool:
        """Whether the appliance says so."""
        overload = (self.said.get("maintenance") or {}).get("overload")
        return overload is not None and overload["since"] is not None

    def _pace(self, source: dict[str, Any]) -> float:
        late = self.now - source["due_at"] / 1e6 if source.get("due_at") else 0.0
        pace: float = source.get("pace_seconds", 0.0)
        return max(pace, late) if late > _LATE_SECONDS else pace

    def wrong(self, before: Seen, period: float | None) -> list[str]:
        """What is not as before, in words. What is missed counts from the look before.

        ``period``: s, in which each source that is read has a new sample; None: that is not known.
        """
        found = [f"{name} does not answer" for name, report in self.said.items() if report is None]
        missed = {source["name"]: source["missed"] for source in before.sources}
        for source in self.sources:
            name = source["name"]
            unheard = source["kind"] == _PUSH and source["state"] == "connecting"  # its gateway has not come yet
            if source["state"] not in ("connected", "degraded") and not unheard:
                found.append(f"source {name} is {source['state']}")
            if self._pace(source) > 0 or source["missed"] > missed.get(name, source["missed"]):
                found.append(f"polls of source {name} are late")
        for source in self.read if period is not None else ():
            age = self.now - source["last_sample_at"] / 1e6
            if age >= (period or 0.0) + _AGE_SECONDS:
                found.append(f"the newest sample of source {source['name']} is {age:.1f} s old")
        for spool, wait in self.waits.items():
            if wait.seconds >= BEHIND[1]:
                found.append(f"the spool {spool} waits for the database since {wait.seconds:.1f} s")
        return found


def look(state: State) -> Seen:
    """Ask everyone. Raises OperationError where nothing was started."""
    running = Running.load(state)
    if running is None:
        raise OperationError(f"nothing was started in {state.root}")
    said = {name: health.ask(name, running.health) for name in running.processes}
    return Seen(time.monotonic(), time.time(), said, waits(state.spool))


@dataclass(frozen=True, slots=True)
class After:
    """How a strain ended."""

    seconds: float  # until all was as before; where it was not, for which it was waited
    left: list[str] = field(default_factory=list)  # what was not as before then, in words
    looks: list[Seen] = field(default_factory=list)


async def as_before(seen: Callable[[], Seen], since: float, period: float | None, seconds: float) -> After:
    """Look until all is as before, and stays so for some looks, and the overload was said to be over.

    ``since``: when the strain ended (monotonic); it is waited for ``seconds``. The first of those looks counts: that an
    overload is over is said some seconds later.
    """
    looks = [await asyncio.to_thread(seen)]
    calm: float | None = None  # monotonic: the first of the looks in a row that are as before
    in_a_row = 0
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        looks.append(await asyncio.to_thread(seen))
        left = looks[-1].wrong(looks[-2], period)
        in_a_row = 0 if left else in_a_row + 1
        calm = None if left else calm or looks[-1].at
        if calm is not None and in_a_row >= _LOOKS and not looks[-1].overloaded:
            return After(max(0.0, calm - since), [], looks)
        if time.monotonic() - since > seconds and (left or in_a_row >= _LOOKS):
            left = left or ["overload has not ended"]
            return After(time.monotonic() - since, left, looks)
