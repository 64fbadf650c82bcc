"""The operator interface to the alarms of a process: list alarms, execute commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias

from core.config.model import AlarmOptions
from core.config.quantities import span_text
from core.errors import NotAllDone, OperationError, PlantlogError
from core.timestamps import now_us
from ingest.alarms.channel import AlarmChange, AlarmChannel, LimitMonitor
from ingest.alarms.conditions import Condition, Conditions
from ingest.alarms.evaluator import AlarmEvaluator
from ingest.alarms.limits import LIMITS
from ingest.alarms.state import UNACKNOWLEDGED, Alarm, Inhibition, State

CommandAction: TypeAlias = Literal[
    "ack", "shelve", "unshelve", "suppress", "unsuppress", "out-of-service", "in-service"
]
_MAX_LISTED = 5  # alarms in a message
_BEGINS: dict[CommandAction, Inhibition] = {
    "shelve": "shelved",
    "suppress": "suppressed_by_design",
    "out-of-service": "out_of_service",
}
_ENDS: dict[CommandAction, Inhibition] = {
    "unshelve": "shelved",
    "unsuppress": "suppressed_by_design",
    "in-service": "out_of_service",
}


@dataclass(frozen=True, slots=True)
class AlarmCommand:
    """An operator command."""

    action: CommandAction
    channel: str  # a name, or a pattern with *
    who: str
    limit: str | None = None  # None: every limit of the channel
    why: str = ""
    seconds: float | None = None  # to shelve

    @property
    def comment(self) -> str:
        """Comment for the acknowledgement on a server: operator and reason."""
        return f"{self.who}: {self.why}" if self.why else self.who


@dataclass(frozen=True, slots=True)
class AlarmRecord:
    """The state of an alarm in the table ``plant.alarm``."""

    channel_id: int
    limit_name: str
    alarm: Alarm


class OperatorApi:
    """The alarms of all sources of a process: those of its limits, and the conditions of its servers."""

    def __init__(
        self,
        evaluators: Callable[[], Sequence[AlarmEvaluator]],
        options: AlarmOptions,
        conditions: Callable[[], Sequence[Conditions]] = list,
    ) -> None:
        self._evaluators = evaluators
        self._options = options
        self._conditions = conditions

    def alarms(self) -> list[dict[str, Any]]:
        """Limits of all channels with their states, and the conditions that are not normal, each sorted by name."""
        limits = []
        for evaluator in self._evaluators():
            columns = evaluator.columns
            for channel_id in columns.channels() if columns is not None else ():
                assert columns is not None
                channel = columns.channel(channel_id)
                limits += [_as_json(evaluator, channel, monitor) for monitor in channel.monitors]
        limits.sort(key=lambda alarm: (alarm["channel"], LIMITS.index(alarm["limit"])))
        listed = [conditions.as_json(each) for conditions in self._conditions() for each in conditions.listed()]
        return limits + sorted(listed, key=lambda alarm: (alarm["channel"], alarm["limit"]))

    async def execute(self, command: AlarmCommand) -> CommandOutcome:
        """Execute a command; return its outcome for each alarm once the changes are on disk.

        A condition of a server is acknowledged there; its state changes when the server says so.

        Raises OperationError if the command is not allowed.
        """
        self._check(command)
        outcome = CommandOutcome()
        for evaluator in self._evaluators():
            columns = evaluator.columns
            for channel_id in list(columns.channels()) if columns is not None else ():
                name = evaluator.names[channel_id]
                if not fnmatchcase(name, command.channel):
                    continue
                assert columns is not None
                for monitor in columns.channel(channel_id).monitors:
                    if command.limit not in (None, monitor.limit.name):
                        continue
                    limit = monitor.limit.name
                    if not _applies_to(command, monitor.alarm.state):
                        outcome.inapplicable.append(f"{name} {limit} is {monitor.alarm.state}")
                        continue
                    try:
                        changes = await evaluator.apply_command(channel_id, _operation(command, limit))
                    except PlantlogError as error:
                        outcome.failed.append(f"{name} {limit}: {error}")
                    else:
                        outcome.done += [f"{name} {change.limit.name}: {change.after.state}" for change in changes]
        for conditions, condition in self._matching(command):
            await _acknowledge(command, conditions, condition, outcome)
        return outcome

    def _matching(self, command: AlarmCommand) -> list[tuple[Conditions, Condition]]:
        return [
            (conditions, condition)
            for conditions in self._conditions()
            for condition in conditions.listed()
            if fnmatchcase(conditions.name_of(condition), command.channel) and command.limit in (None, condition.name)
        ]

    async def adopt(self, states: Sequence[AlarmRecord]) -> None:
        """Continue from states that another member of a redundant pair recorded, if newer. Raises SpoolError."""
        by_channel: dict[int, dict[str, Alarm]] = {}
        for record in states:
            by_channel.setdefault(record.channel_id, {})[record.limit_name] = record.alarm
        for evaluator in self._evaluators():
            await evaluator.adopt(by_channel)

    def _check(self, command: AlarmCommand) -> None:
        if command.action in _BEGINS and not command.why.strip():
            raise OperationError(f"{command.action} requires a reason (--why)")
        if command.action == "shelve":
            max_seconds = self._options.max_shelving
            if command.seconds is None or not 0 < command.seconds <= max_seconds:
                limit = span_text(max_seconds)
                raise OperationError(f"an alarm can be shelved for at most {limit} (max_shelving in [alarms])")


async def _acknowledge(
    command: AlarmCommand, conditions: Conditions, condition: Condition, outcome: CommandOutcome
) -> None:
    """Acknowledge a condition on its server; add the result to ``outcome``."""
    name = f"{conditions.name_of(condition)} {condition.name}"
    if not _applies_to(command, condition.state):
        outcome.inapplicable.append(f"{name} is {condition.state}")
    elif command.action != "ack":
        outcome.failed.append(f"{name} is a condition of the server: here it can only be acknowledged")
    else:
        try:
            await conditions.send_acknowledgement(condition, command.comment)
        except OperationError as error:
            outcome.failed.append(f"{name} is not acknowledged: {error}")
        else:
            outcome.done.append(f"{name}: acknowledged on the server")


def _applies_to(command: AlarmCommand, state: State) -> bool:
    if command.action == "ack":
        return state in UNACKNOWLEDGED
    if command.action in _ENDS:
        return state == _ENDS[command.action]
    return True


def _operation(command: AlarmCommand, limit: str) -> Callable[[AlarmChannel], list[AlarmChange]]:
    action, who, at = command.action, command.who, now_us()
    until = at + round((command.seconds or 0.0) * 1e6) if action == "shelve" else None

    def apply(channel: AlarmChannel) -> list[AlarmChange]:
        (monitor,) = (monitor for monitor in channel.monitors if monitor.limit.name == limit)
        if action in _BEGINS:
            return channel.inhibit(monitor, at, _BEGINS[action], who, command.why, until)
        if action in _ENDS:
            return channel.release(monitor, at, _ENDS[action], who)
        return channel.acknowledge(monitor, at, who)

    return apply


def _as_json(evaluator: AlarmEvaluator, channel: AlarmChannel, monitor: LimitMonitor) -> dict[str, Any]:
    alarm = monitor.alarm
    return {
        "channel": evaluator.names[channel.channel_id],
        "source": evaluator.source,
        "limit": monitor.limit.name,
        "state": alarm.state,
        "active": monitor.active,
        "since": alarm.since or None,
        "value": alarm.value,
        "threshold": monitor.limit.threshold,
        "unit": evaluator.units[channel.channel_id],
        "priority": monitor.limit.priority,
        "acknowledged_by": alarm.acknowledged_by,
        "acknowledged_at": alarm.acknowledged_at,
        "shelved_until": alarm.shelved_until,
        "who": alarm.who,
        "why": alarm.why,
    }


@dataclass(slots=True)
class CommandOutcome:
    """Outcome of a command: a line for each alarm that matches."""

    done: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    inapplicable: list[str] = field(default_factory=list)  # such as an alarm to acknowledge that is normal

    @property
    def matches(self) -> bool:
        """Return whether an alarm matches."""
        return bool(self.done or self.failed or self.inapplicable)

    def add(self, other: CommandOutcome) -> None:
        """Add the outcome in another collector."""
        self.done += other.done
        self.failed += other.failed
        self.inapplicable += other.inapplicable

    def lines(self, action: str, channel: str, limit: str | None) -> list[str]:
        """Lines of actions done. Raises NotAllDone if one failed, and OperationError if there was nothing to do."""
        if self.failed:
            raise NotAllDone(self.done, _shown(self.failed))
        if self.done:
            return self.done
        if self.inapplicable:
            raise OperationError(f"nothing to {action}: {_shown(self.inapplicable)}")
        if limit is None:
            raise OperationError(f"no channel matches {channel} with alarm limits")
        unknown = "" if limit in LIMITS else f"; legal: {', '.join(LIMITS)}, or a condition that is not normal"
        raise OperationError(f"no channel matches {channel} with alarm limit {limit}{unknown}")


def _shown(lines: Sequence[str]) -> str:
    return "; ".join(lines[:_MAX_LISTED]) + (" ..." if len(lines) > _MAX_LISTED else "")
