"""Reasons why an answer has no rows: how many channels a question judged, and why it could not judge the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from core.formatting import count
from schema.forensics import Question

_MAX_NAMES = 5


@dataclass(frozen=True, slots=True)
class Interval:
    """The times of which a question reads samples: from ``first`` to ``since`` those that it compares with."""

    first: datetime
    since: datetime
    until: datetime


def nothing_found(question: Question, interval: Interval, channels: Iterable[tuple[str, str, bool, bool]]) -> str:
    """Lines for people. ``channels``: name, kind, and whether there are samples in the interval, and before since."""
    judged, other, empty, unknown = list[str](), list[str](), list[str](), list[str]()
    for name, kind, has_samples, has_earlier in sorted(channels):
        if question.kinds and kind not in question.kinds:
            other.append(name)
        elif question.kinds and not has_samples:
            empty.append(name)
        elif question.compares and not has_earlier:
            unknown.append(name)
        else:
            judged.append(name)
    lines = [f"no rows: nothing found in {count(len(judged), 'channel')}"]
    span = f"from {_time(interval.since)} to {_time(interval.until)}"
    earlier = f"from {_time(interval.first)} to {_time(interval.since)}, to compare with"
    for names, why in (
        (other, f"not {' or '.join(question.kinds)}"),
        (empty, f"no samples {span}"),
        (unknown, f"no samples {earlier}"),
    ):
        if names:
            lines.append(f"{count(len(names), 'channel')} not judged, {why}: {_names(names)}")
    return "\n".join(lines)


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}Z"


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMES])
    return shown if len(names) <= _MAX_NAMES else f"{shown} and {len(names) - _MAX_NAMES:,} more"
