"""Recovery after an overload: whether everything is as before, and how long that took. Does not query the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from core.errors import OperationError
from core.paths import State
from core.source_states import UP
from ops import health
from ops.deployment import Running
from ops.maintenance.overload.measure import SpoolBacklog, backlogs, poll_period
from ops.maintenance.overload.state import LAG_THRESHOLDS

_POLL_SECONDS = 0.5
_GOOD_OBSERVATIONS = 6  # in a row that are as before
_LATE_SECONDS = 1.0  # as of pace_of()
_AGE_SECONDS = 1.5  # behind its interval the newest sample of a source may be
_PUSH = "push"  # whose sources are as silent as their gateways


@dataclass(frozen=True, slots=True)
class Observation:
    """Reports of an appliance's processes at a time, and the backlog of its spools."""

    at: float  # monotonic
    now: float  # s since 1970
    reports: dict[str, dict[str, Any] | None]  # process → its report; None: it does not answer
    backlogs: dict[str, SpoolBacklog]  # by spool

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Sources of all collectors that answer."""
        return [source for report in self.reports.values() if report for source in report.get("sources", ())]

    @property
    def read(self) -> list[dict[str, Any]]:
        """The sources that are polled or subscribed to."""
        return [source for source in self.sources if source["kind"] != _PUSH]

    @property
    def lag(self) -> float:
        """Seconds for which the oldest batch of the sources that are read has waited."""
        return max((wait.seconds for spool, wait in self.backlogs.items() if not spool.startswith(_PUSH)), default=0.0)

    @property
    def pace(self) -> float:
        """Seconds between two polls of the source whose polls are furthest apart; 0: as configured."""
        return max((self._pace(source) for source in self.sources), default=0.0)

    @property
    def overloaded(self) -> bool:
        """Return whether the appliance says so."""
        overload = (self.reports.get("maintenance") or {}).get("overload")
        return overload is not None and overload["since"] is not None

    def _pace(self, source: dict[str, Any]) -> float:
        return poll_period(source, self.now, _LATE_SECONDS)

    def problems(self, before: Observation, period: float | None) -> list[str]:
        """Describe what is not as before. What is missed counts from the observation before.

        ``period``: s, in which each source that is read has a new sample; None: that is not known.
        """
        texts = [f"{name} does not respond" for name, report in self.reports.items() if report is None]
        missed = {source["name"]: source["missed"] for source in before.sources}
        for source in self.sources:
            name = source["name"]
            not_seen_yet = source["kind"] == _PUSH and source["state"] == "connecting"  # its gateway has not come yet
            if source["state"] not in UP and not not_seen_yet:
                texts.append(f"source {name} is {source['state']}")
            if self._pace(source) > 0 or source["missed"] > missed.get(name, source["missed"]):
                texts.append(f"polls of source {name} are late")
        for source in self.read if period is not None else ():
            age = self.now - source["last_sample_at"] / 1e6
            if age >= (period or 0.0) + _AGE_SECONDS:
                texts.append(f"the newest sample of source {source['name']} is {age:.1f} s old")
        for spool, wait in self.backlogs.items():
            if wait.seconds >= LAG_THRESHOLDS[1]:
                texts.append(f"spool {spool} has been waiting for the database for {wait.seconds:.1f} s")
        return texts


def observe(state: State) -> Observation:
    """Ask everyone. Raises OperationError where nothing was started."""
    running = Running.load(state)
    if running is None:
        raise OperationError(f"no appliance in {state.root}: run `plantlog up`")
    reports = {name: health.fetch(name, running.health, state.root) for name in running.processes}
    return Observation(time.monotonic(), time.time(), reports, backlogs(state.spool))


@dataclass(frozen=True, slots=True)
class Recovery:
    """Recovery from a strain."""

    seconds: float  # until all was as before; where it was not, for which it was waited
    remaining: list[str] = field(default_factory=list)  # what was not as before then, in words
    observations: list[Observation] = field(default_factory=list)


async def wait_for_recovery(
    observe_: Callable[[], Observation], since: float, period: float | None, seconds: float
) -> Recovery:
    """Observe until all is as before for some observations in a row, and the end of the overload is reported.

    ``since``: when the strain ended (monotonic); it is waited for ``seconds``. The first of those looks counts: that an
    overload is over is said some seconds later.
    """
    observations = [await asyncio.to_thread(observe_)]
    recovered_at: float | None = None  # monotonic: the first of the looks in a row that are as before
    good_in_a_row = 0
    while True:
        await asyncio.sleep(_POLL_SECONDS)
        observations.append(await asyncio.to_thread(observe_))
        remaining = observations[-1].problems(observations[-2], period)
        good_in_a_row = 0 if remaining else good_in_a_row + 1
        recovered_at = None if remaining else recovered_at or observations[-1].at
        if recovered_at is not None and good_in_a_row >= _GOOD_OBSERVATIONS and not observations[-1].overloaded:
            return Recovery(max(0.0, recovered_at - since), [], observations)
        if time.monotonic() - since > seconds and (remaining or good_in_a_row >= _GOOD_OBSERVATIONS):
            remaining = remaining or ["overload has not ended"]
            return Recovery(time.monotonic() - since, remaining, observations)
