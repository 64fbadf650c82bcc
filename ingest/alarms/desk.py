"""What operators see of a process' alarms, and what they can do with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

from ingest.alarms.channel import Change, Channel, Watch
from ingest.alarms.limits import LIMITS
from ingest.alarms.stage import Stage
from ingest.alarms.state import UNACKNOWLEDGED
from ingest.batch import now_us
from ingest.config.model import AlarmOptions
from ingest.errors import OperationError

Deed: TypeAlias = Literal["ack", "shelve", "unshelve", "suppress", "unsuppress", "out-of-service", "in-service"]
DEEDS: tuple[Deed, ...] = get_args(Deed)
_ENDS = {"unshelve": "shelved", "unsuppress": "suppressed_by_design", "in-service": "out_of_service"}
_WITH_REASON = ("shelve", "suppress", "out-of-service")


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants done."""

    deed: Deed
    channel: str  # a name, or a pattern with *
    who: str
    limit: str | None = None  # None: every limit of the channel
    why: str = ""
    seconds: float | None = None  # to shelve


class Desk:
    """The alarms of all sources of a process."""

    def __init__(self, stages: Callable[[], Sequence[Stage]], options: AlarmOptions) -> None:
        self._stages = stages
        self._options = options

    def alarms(self) -> list[dict[str, Any]]:
        """Every limit of every channel, with its state, by name."""
        found = []
        for stage in self._stages():
            columns = stage.columns
            for channel_id in columns.channels() if columns is not None else ():
                assert columns is not None
                channel = columns.channel(channel_id)
                found += [_shown(stage, channel, watch) for watch in channel.watches]
        return sorted(found, key=lambda one: (one["channel"], LIMITS.index(one["limit"])))

    async def do(self, asked: Asked) -> list[str]:
        """Do it; returns ``CHANNEL LIMIT: STATE`` of each alarm that it was done to, once it is on disk.

        Raises OperationError where there is none, or it can't be done, and SpoolError where the disk refuses.
        """
        self._check(asked)
        done: list[str] = []
        wrong: list[str] = []
        known = False
        for stage in self._stages():
            columns = stage.columns
            for channel_id in list(columns.channels()) if columns is not None else ():
                name = stage.names[channel_id]
                if not fnmatchcase(name, asked.channel):
                    continue
                assert columns is not None
                for watch in columns.channel(channel_id).watches:
                    if asked.limit not in (None, watch.limit.name):
                        continue
                    known = True
                    if not _concerns(asked, watch):
                        wrong.append(f"{name} {watch.limit.name} is {watch.alarm.state}")
                        continue
                    for change in await stage.act(channel_id, _deed(asked, watch.limit.name)):
                        done.append(f"{name} {change.limit.name}: {change.after.state}")
        if not known:
            limit = f" limit {asked.limit}" if asked.limit else " limits"
            raise OperationError(f"no channel {asked.channel} with alarm{limit} here")
        if not done:
            raise OperationError(f"nothing to {asked.deed}: {'; '.join(wrong[:5])}{' ...' if len(wrong) > 5 else ''}")
        return done

    def _check(self, asked: Asked) -> None:
        if asked.limit is not None and asked.limit not in LIMITS:
            raise OperationError(f"no limit {asked.limit!r}: one of {', '.join(LIMITS)}")
        if asked.deed in _WITH_REASON and not asked.why.strip():
            raise OperationError(f"to {asked.deed} an alarm needs a reason (--why)")
        if asked.deed == "shelve":
            longest = self._options.max_shelving
            if asked.seconds is None or not 0 < asked.seconds <= longest:
                raise OperationError(f"shelving has an end: at most {longest:g} s from now, max_shelving in [alarms]")


def _concerns(asked: Asked, watch: Watch) -> bool:
    if asked.deed == "ack":
        return watch.alarm.state in UNACKNOWLEDGED
    if asked.deed in _ENDS:
        return watch.alarm.state == _ENDS[asked.deed]
    return True


def _deed(asked: Asked, limit: str) -> Callable[[Channel], list[Change]]:
    at, who, why = now_us(), asked.who, asked.why
    until = at + round((asked.seconds or 0.0) * 1e6)
    deeds: dict[Deed, Callable[[Channel, Watch], list[Change]]] = {
        "ack": lambda channel, watch: channel.acknowledge(watch, at, who),
        "shelve": lambda channel, watch: channel.shelve(watch, at, until, who, why),
        "unshelve": lambda channel, watch: channel.unshelve(watch, at, who),
        "suppress": lambda channel, watch: channel.suppress(watch, at, who, why),
        "unsuppress": lambda channel, watch: channel.unsuppress(watch, at, who),
        "out-of-service": lambda channel, watch: channel.out_of_service(watch, at, who, why),
        "in-service": lambda channel, watch: channel.in_service(watch, at, who),
    }

    def do(channel: Channel) -> list[Change]:
        (watch,) = (watch for watch in channel.watches if watch.limit.name == limit)
        return deeds[asked.deed](channel, watch)

    return do


def _shown(stage: Stage, channel: Channel, watch: Watch) -> dict[str, Any]:
    alarm = watch.alarm
    return {
        "channel": stage.names[channel.channel_id],
        "source": stage.source,
        "limit": watch.limit.name,
        "state": alarm.state,
        "active": watch.active,
        "since": alarm.since or None,
        "value": alarm.value,
        "threshold": watch.limit.threshold,
        "priority": watch.limit.priority,
        "acknowledged_by": alarm.acknowledged_by,
        "acknowledged_at": alarm.acknowledged_at,
        "shelved_until": alarm.shelved_until,
        "who": alarm.who,
        "why": alarm.why,
    }
