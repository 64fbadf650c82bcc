"""Compares what a database returns with what was sent: rounding, losses, duplicates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from core.batch import Float64s
from lab.bench.choose.contestant import Contestant
from lab.bench.data import SECOND, Columns, Minutes, Raw

AS_SENT = "as sent"
SCORED = ("samples", "times", "values", "statuses", "NaN", "minute means", "extremes", "a sample sent twice")
CONFLICT = "another value, same time"  # says which one stays; not scored: each way has its friends
EXTREMES = {"inf": np.inf, "-inf": -np.inf, "-0.0": -0.0, "5e-324": 5e-324, "1.8e308": np.finfo(np.float64).max}
ODD_CHANNELS = 3  # behind the plant's: extremes, a repetition, a conflict
_MEAN_TOLERANCE = 1e-12  # of the mean: sums in another order differ by as much
_NEAR = SECOND // 100  # µs; times that far apart are of one sample

Answers: TypeAlias = dict[str, str]  # check → AS_SENT, or what it was instead


def compare(raw: Sequence[tuple[Raw, Raw]], minutes: Sequence[tuple[Minutes, Minutes]]) -> Answers:
    """Pairs of the right answer and of what came."""
    sent, missing, extra = 0, 0, 0
    pairs: list[tuple[Raw, Raw]] = []
    for right, got in raw:
        expected_places, received_places = _matched(right, got)
        sent += len(right.time)
        missing += len(right.time) - len(expected_places)
        extra += len(got.time) - len(received_places)
        pairs.append((_part(right, expected_places), _part(got, received_places)))
    problems = [f"{missing} of {sent} missing"] * (missing > 0) + [f"{extra} too many"] * (extra > 0)
    right, got = (_joined([pair[side] for pair in pairs]) for side in (0, 1))
    time_error = int(np.abs(got.time - right.time).max(initial=0))
    bad = np.isnan(right.value)
    answers = {
        "samples": ", ".join(problems) or AS_SENT,
        "times": AS_SENT if not time_error else f"off by up to {time_error} µs",
        "values": _values(right.value[~bad], got.value[~bad]),
        "statuses": _count(right.status != got.status),
        "NaN": _count(~np.isnan(got.value[bad])),
        "minute means": _means(minutes),
    }
    return answers if sent - missing else dict.fromkeys(answers, "nothing came back")


def _matched(right: Raw, got: Raw) -> tuple[NDArray[Any], NDArray[Any]]:
    """Places in both of samples whose times are the same, or near."""
    if not len(right.time) or not len(got.time):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    after = np.clip(np.searchsorted(right.time, got.time), 1, max(1, len(right.time) - 1))
    before = after - 1
    after = np.minimum(after, len(right.time) - 1)
    nearest = np.where(got.time - right.time[before] <= right.time[after] - got.time, before, after)
    near = np.flatnonzero(np.abs(right.time[nearest] - got.time) < _NEAR)
    expected_places, first = np.unique(nearest[near], return_index=True)
    return expected_places, near[first]


def _part(raw: Raw, places: NDArray[Any]) -> Raw:
    return Raw(raw.time[places], raw.value[places], raw.status[places])


def _joined(parts: Sequence[Raw]) -> Raw:
    return Raw(
        np.concatenate([part.time for part in parts] or [np.empty(0, np.int64)]),
        np.concatenate([part.value for part in parts] or [np.empty(0)]),
        np.concatenate([part.status for part in parts] or [np.empty(0, np.uint32)]),
    )


def _count(wrong: NDArray[Any]) -> str:
    return AS_SENT if not wrong.any() else f"{int(wrong.sum())} of {len(wrong)} are others"


def _values(right: Float64s, got: Float64s) -> str:
    """Compare values bit by bit."""
    if np.array_equal(right.view(np.uint64), got.view(np.uint64)):
        return AS_SENT
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.nanmax(np.abs(got - right) / np.abs(right), initial=0)
    differ = int((right.view(np.uint64) != got.view(np.uint64)).sum())
    return f"{differ} of {len(right)} are others, off by up to {error:.0e} of the value"


def _means(pairs: Sequence[tuple[Minutes, Minutes]]) -> str:
    worst = 0.0
    for right, got in pairs:
        if not np.array_equal(right.minute, got.minute):
            return f"{len(got.minute)} minutes where there are {len(right.minute)}, or other ones"
        worst = max(worst, float(np.max(np.abs(got.mean - right.mean) / np.abs(right.mean), initial=0)))
    return AS_SENT if worst <= _MEAN_TOLERANCE else f"off by up to {worst:.0e} of the mean"


async def send_oddities(contestant: Contestant, first: int, time: int) -> dict[str, str]:
    """Write what may be refused, to the channels from ``first``, each by itself; what was refused, with the reason."""
    refused: dict[str, str] = {}
    sends = [(name, first, time + place * SECOND, value) for place, (name, value) in enumerate(EXTREMES.items())]
    sends += [("again", first + 1, time, 1.25)] * 2 + [("other", first + 2, time, value) for value in (1.25, 2.5)]
    for name, channel, at, value in sends:
        one = Columns(
            np.array([channel], np.int32), np.array([at], np.int64), np.array([value]), np.zeros(1, np.uint32)
        )
        try:
            await contestant.write(one, 0)
            await contestant.wait_until_visible()
        except Exception as error:  # whatever its driver raises
            refused[name] = f"{type(error).__name__}: {error}"
    return refused


async def ask_oddities(contestant: Contestant, first: int, time: int, refused: dict[str, str]) -> Answers:
    """Ask what became of odd samples."""
    extremes, again, other = [await contestant.raw(first + n, time, time + 60 * SECOND) for n in range(ODD_CHANNELS)]
    wrong = []
    for place, (name, value) in enumerate(EXTREMES.items()):
        found = extremes.value[np.abs(extremes.time - time - place * SECOND) < _NEAR]
        if name in refused:
            wrong.append(f"{name} refused")
        elif len(found) != 1 or found[0] != value or np.signbit(found[0]) != np.signbit(value):
            wrong.append(f"{name} is {found[0] if len(found) else 'lost'}")
    kept_value = {(1.25,): "the first stays", (2.5,): "the last stays"}.get(
        tuple(other.value.tolist()), "both are there"
    )
    return {
        "extremes": ", ".join(wrong) or AS_SENT,
        "a sample sent twice": AS_SENT if len(again.time) == 1 else f"{len(again.time)} times",
        CONFLICT: "refused" if "other" in refused else kept_value,
    }


def share(answers: Answers) -> float:
    """Share of the checks that gave what was sent: 0 to 1."""
    return sum(answers.get(check) == AS_SENT for check in SCORED) / len(SCORED)
