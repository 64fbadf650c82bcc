"""Compares the stored numbers of channels with what was published.

Both are arrays of :data:`simulator.truth.ROW`, sorted by :func:`by_channel`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from core.status_codes import BAD

NEVER = 2**62  # µs
EXAMPLES = 10  # per kind of difference


@dataclass(slots=True)
class Comparison:
    """Numbers of samples in the interval, and a few examples of differences as text."""

    published: int = 0
    stored: int = 0
    duplicated: int = 0  # stored more than once
    invented: int = 0  # stored, but never published
    altered: int = 0  # stored with another value or status
    missing_recorded: int = 0  # published, not stored, inside a recorded gap
    missing_silent: int = 0  # published, not stored, without a gap
    examples: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Number of samples that were published, but not stored."""
        return self.missing_recorded + self.missing_silent

    def add(self, other: Comparison) -> None:
        """Sum of two comparisons."""
        for name in Comparison.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_examples(self, what: str, names: list[str], rows: NDArray[Any]) -> None:
        """Add some of ``rows`` (of :data:`ROW`) as examples of ``what``."""
        for row in rows[: max(0, EXAMPLES - len(self.examples))]:
            name = names[row["tag"]] if row["tag"] >= 0 else "a channel unknown to the simulator"
            self.examples.append(
                f"{what}: {name} at {row['time']} µs = {float(row['value'])!r}, status 0x{row['status']:08X},"
                f" published at {row['at']} µs"
            )

    def count_missing(self, names: list[str], rows: NDArray[Any], gaps: RecordedGaps) -> None:
        """Count missing ``rows`` (of :data:`ROW`)."""
        recorded = gaps.contain(rows)
        self.missing_recorded += int(recorded.sum())
        self.missing_silent += int((~recorded).sum())
        self.add_examples("missing, no gap", names, rows[~recorded])


class RecordedGaps:
    """Recorded gaps: merged intervals (µs) by tag."""

    def __init__(self, rows: Iterable[tuple[int, int, int]]) -> None:
        """``rows``: (tag, from, to)."""
        self._of: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        by_tag: dict[int, list[tuple[int, int]]] = {}
        for tag, start, end in rows:
            by_tag.setdefault(tag, []).append((start, end))
        for tag, spans in by_tag.items():
            joined: list[list[int]] = []
            for start, end in sorted(spans):
                if joined and start <= joined[-1][1]:
                    joined[-1][1] = max(joined[-1][1], end)
                else:
                    joined.append([start, end])
            starts, ends = np.array(joined, np.int64).T
            self._of[tag] = (starts, ends)

    def contain(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Mask of ``rows`` (of :data:`ROW`) inside a gap of their tag."""
        inside = np.zeros(len(rows), bool)
        for tag in np.unique(rows["tag"]).tolist():
            if tag not in self._of:
                continue
            of_tag = np.flatnonzero(rows["tag"] == tag)
            starts, ends = self._of[tag]
            for column in ("at", "time"):
                moments = rows[column][of_tag]
                k = np.searchsorted(starts, moments, "right") - 1
                inside[of_tag] |= (k >= 0) & (moments <= ends[np.maximum(k, 0)])
        return inside


ANSWER_US = 5_000_000  # maximum time of an answer of Modbus in transit
_CLOCKS_US = 10_000  # the collector's arrival times and the truth's wall clock differ by less
_STOPPED_US = 120_000_000  # additional time if the collector was suspended
OVERFLOW = 0x0480


def by_channel(rows: NDArray[Any]) -> NDArray[Any]:
    """``rows`` by channel, then by time."""
    (keys,) = _keys(rows)
    return rows[np.argsort(keys, kind="stable")]


def published(truth: NDArray[Any], stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of ``stored`` with channel and time of a published sample."""
    keys, stored_keys = _keys(truth, stored)
    return _positions(keys, stored_keys)[1]


def by_time(truth: NDArray[Any], stored: NDArray[Any], names: list[str], gaps: RecordedGaps) -> Comparison:
    """OPC UA and push: the same channel and source timestamp."""
    keys, stored_keys = _keys(truth, stored)
    once = np.append(True, np.diff(stored_keys) > 0)[: len(stored_keys)]
    at, is_published = _positions(keys, stored_keys)
    fits = is_published & once
    altered = _differs(truth[at[fits]], stored[fits])
    missing = np.ones(len(truth), bool)
    missing[at[is_published]] = False
    result = Comparison(len(truth), len(stored))
    result.duplicated, result.invented = int((~once).sum()), int((~is_published & once).sum())
    result.altered = int(altered.sum())
    result.count_missing(names, truth[missing], gaps)
    result.add_examples("invented", names, stored[~is_published & once])
    result.add_examples("altered", names, stored[fits][altered])
    return result


def by_order(
    truth: NDArray[Any],
    stored: NDArray[Any],
    first: NDArray[np.int64],
    window: tuple[int, int],
    names: list[str],
    gaps: RecordedGaps,
    within_us: int,
) -> Comparison:
    """Modbus: a sample belongs to the last answer that was sent before it arrived. ``first``: µs, by tag."""
    stored = stored[stored["status"] & BAD == 0]
    # Include answers shortly before the first sample: the one it belongs to is determined below.
    near = np.maximum(first[truth["tag"]], window[0]) - ANSWER_US
    truth = truth[(truth["time"] >= near) & (truth["time"] < window[1])]
    result = Comparison(stored=len(stored))
    tags = np.unique(np.concatenate((truth["tag"], stored["tag"])))
    truth_at, stored_at = (
        np.stack((np.searchsorted(rows["tag"], tags), np.searchsorted(rows["tag"], tags, "right")), axis=1)
        for rows in (truth, stored)
    )
    for tag, (t0, t1), (s0, s1) in zip(tags.tolist(), truth_at.tolist(), stored_at.tolist(), strict=True):
        t, s = truth[t0:t1], stored[s0:s1]
        answer = np.searchsorted(t["time"], s["time"], "right") - 1
        again = _again(answer)
        if again.any():
            answer += again & _sent_just_after(t["time"], s["time"], answer)
        if within_us:
            answer = _overtaken(t, s, answer)
        again = _again(answer)
        has_answer = answer >= 0
        has_answer[has_answer] = s["time"][has_answer] - t["time"][answer[has_answer]] < _STOPPED_US
        fits = has_answer & ~again
        altered = _differs(t[answer[fits]], s[fits])
        answered = np.zeros(len(t), bool)
        answered[answer[fits]] = True
        # The channel's first sample, if among these, belongs to the first answer that counts.
        begun = int(np.searchsorted(t["time"], first[tag], "right")) - 1
        counts = (t["time"] >= window[0]) & (t["time"] < window[1] - ANSWER_US) & (np.arange(len(t)) >= begun)
        missing = counts & ~answered
        if within_us:
            missing &= _distance(t["time"], s["time"]) > within_us
        result.invented += int((~has_answer).sum())
        result.duplicated += int((has_answer & again).sum())
        result.altered += int(altered.sum())
        result.published += int((counts | answered).sum())
        result.count_missing(names, t[missing], gaps)
        result.add_examples("invented", names, s[~has_answer])
        result.add_examples("duplicated", names, s[has_answer & again])
        result.add_examples("altered", names, s[fits][altered])
    return result


def _again(answer: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Mask of samples that belong to the same answer as an earlier one."""
    again = np.ones(len(answer), bool)
    again[np.unique(answer, return_index=True)[1]] = False
    return again


def _overtaken(sent: NDArray[Any], stored: NDArray[Any], answer: NDArray[np.intp]) -> NDArray[np.intp]:
    """The answers that samples belong to where an answer in transit was overtaken by one to the other member of a pair.

    A sample that is not what the last answer was, or that is a second one of it, belongs to the newest answer before it
    that has its value and is no other sample's.
    """
    wrong = _again(answer) | (answer < 0)
    wrong[~wrong] = _differs(sent[answer[~wrong]], stored[~wrong])
    answer_of, taken = answer.copy(), set(answer[~wrong].tolist())
    for k in np.flatnonzero(wrong):
        first = int(np.searchsorted(sent["time"], stored["time"][k] - ANSWER_US))
        same = first + np.flatnonzero(~_differs(sent[first : answer[k] + 1], stored[k]))
        if free := [row for row in same.tolist() if row not in taken]:
            answer_of[k] = free[-1]
            taken.add(free[-1])
    return answer_of


def _distance(times: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distance (µs) of the nearest of ``others`` from each time; both are sorted."""
    padded = np.concatenate(([-NEVER], others, [NEVER]))
    at = np.searchsorted(others, times)
    return np.minimum(times - padded[at], padded[at + 1] - times)


def _sent_just_after(
    sent: NDArray[np.int64], arrived: NDArray[np.int64], answer: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Mask of samples after which the next answer came so soon that it may be theirs, and is no other's."""
    following = np.append(sent, NEVER)[answer + 1]
    free = np.append(answer[1:] > answer[:-1] + 1, True)[: len(answer)]
    near: NDArray[np.bool_] = free & (following - arrived <= _CLOCKS_US)
    return near


def _positions(keys: NDArray[np.int64], others: NDArray[np.int64]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Positions of ``others`` in the sorted ``keys``, and whether each is there at all."""
    at = np.minimum(np.searchsorted(keys, others), max(0, len(keys) - 1))
    return at, keys[at] == others if len(keys) else np.zeros(len(others), bool)


def _keys(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """Integers for each array of :data:`ROW` per row that sorts like (tag, time)."""
    times = np.concatenate([rows["time"] for rows in columns])
    start, end = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    # tags below 100,000, intervals below two years: fits easily into 63 bits
    return tuple((rows["tag"] + np.int64(1)) * (end - start + 1) + (rows["time"] - start) for rows in columns)


def _differs(truth: NDArray[Any], stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of row pairs that differ in status or in the bits of the value; values of Bad samples are ignored."""
    values = _bits(truth["value"]) != _bits(stored["value"])
    bad = truth["status"] & BAD != 0
    # the Overflow bit is about earlier values, not about this one
    status = np.where(
        stored["status"] & OVERFLOW == OVERFLOW, stored["status"] & ~np.uint32(OVERFLOW), stored["status"]
    )
    differs: NDArray[np.bool_] = (values & ~bad) | (truth["status"] != status)
    return differs


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values).view(np.uint64)
