"""Compares the table with the ground truth: every published value must be stored exactly once, unaltered.

Missing values must be in recorded gaps: a gap must contain the time when the value was published,
or its source time, and must not be marked as backfilled. Any other loss is silent, which must never happen.

OPC UA and push are compared by (channel, source timestamp). Modbus has no source time: a stored sample belongs to the
last answer that was sent before it arrived, and each answer to one sample (by two clocks, an arrival may come a little
before the sending); a stored text belongs to the last text that was sent before it arrived.

A value of OPC UA that has not changed in a recorded gap may be stored once more, just after it.

Values that a channel published before its first stored sample are ignored: nobody was listening.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ingest.database import connect
from schema.queries import load
from simulator.truth import ROW, VIAS, PublishedText, read_truth

_CLOCKS_US = 10_000  # the collector's arrival times and the truth's wall clock differ by less
_ANSWER_US = 5_000_000  # maximum time of an answer in transit
_STOPPED_US = 120_000_000  # additional time if the collector was suspended
_EXAMPLES = 10  # per kind of difference
_OVERFLOW = 0x0480
_NEVER = 2**62
_BAD = np.uint32(0x8000_0000)  # set in every Bad status: the value is meaningless
# A row of PostgreSQL's binary COPY of query ``samples``: number of columns, then length and content of each.
_COPIED = np.dtype(
    [
        ("columns", ">i2"),
        *(("channel_length", ">i4"), ("channel_id", ">i4")),
        *(("value_length", ">i4"), ("value", ">f8")),
        *(("status_length", ">i4"), ("status", ">i4")),
        *(("time_length", ">i4"), ("time", ">i8")),
    ]
)
_HEADER, _TRAILER = 19, 2  # bytes

Text: TypeAlias = tuple[str, int, str | None, int]  # channel, time µs, text, status


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
        """Published, but not stored."""
        return self.missing_recorded + self.missing_silent

    def add(self, other: Comparison) -> None:
        """Sum of two comparisons."""
        for name in Comparison.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def add_examples(self, what: str, names: list[str], rows: NDArray[Any]) -> None:
        """Add some of ``rows`` (of :data:`ROW`) as examples of ``what``."""
        for row in rows[: max(0, _EXAMPLES - len(self.examples))]:
            name = names[row["tag"]] if row["tag"] >= 0 else "a channel unknown to the simulator"
            self.examples.append(
                f"{what}: {name} at {row['time']} µs = {row['value']!r}, status 0x{row['status']:08X},"
                f" published at {row['at']} µs"
            )

    def count_missing(self, names: list[str], rows: NDArray[Any], gaps: Gaps) -> None:
        """Count missing ``rows`` (of :data:`ROW`)."""
        recorded = gaps.contain(rows)
        self.missing_recorded += int(recorded.sum())
        self.missing_silent += int((~recorded).sum())
        self.add_examples("missing, no gap", names, rows[~recorded])


class Gaps:
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
        held = np.zeros(len(rows), bool)
        for tag in np.unique(rows["tag"]).tolist():
            if tag not in self._of:
                continue
            of_tag = np.flatnonzero(rows["tag"] == tag)
            starts, ends = self._of[tag]
            for column in ("at", "time"):
                moments = rows[column][of_tag]
                k = np.searchsorted(starts, moments, "right") - 1
                held[of_tag] |= (k >= 0) & (moments <= ends[np.maximum(k, 0)])
        return held


async def compare(
    truth: Path,
    dsn: str,
    from_us: int,
    to_us: int,
    source: str | None = None,
    within_us: int = 0,
    names: Collection[str] | None = None,
) -> dict[str, Comparison]:
    """Compare data with a source time (Modbus: time of arrival) in [from_us, to_us) µs.

    ``source``: compare only this source; ``names``: only these channels. ``within_us``: both members of a redundant
    pair poll the devices, so that an answer to one of them is not missing if the table has another one of the channel
    so near.

    ``truth``: the folder DIR/truth written by ``run --state DIR``; ``dsn``: of any user with read access. Keys of the
    result: ``opcua``, ``modbus`` and ``push`` (numbers), ``text`` (of all), ``all`` (the sum). Samples with a Bad
    status of Modbus channels mark outages, were not published by a device, and are not counted. Modbus answers of the
    last 5 s count only if they are stored, because they may be in transit. Does not wait: call it once the table
    has reached ``to_us``. Raises OSError or asyncpg's errors if files or database cannot be read.
    """
    recorded = read_truth(truth, from_us - _ANSWER_US)
    queries = load("compare")
    copied = bytearray()
    connection = await connect(dsn, "plantlog simulator")
    try:
        wanted = [name for name in recorded.names if names is None or name in names]
        channels = await connection.fetch(queries["select_channels"], wanted, source)
        await connection.copy_from_query(
            queries["select_samples"].rstrip().rstrip(";"),
            from_us,
            to_us,
            source,
            output=_collect_into(copied),
            format="binary",
        )
        texts = await connection.fetch(queries["select_texts"], from_us, to_us, source)
        first_texts = {row["name"]: row["us"] for row in await connection.fetch(queries["select_first_texts"])}
        gap_rows = await connection.fetch(queries["select_gaps"], recorded.names)
        unchanged_rows = await connection.fetch(queries["select_unchanged"], recorded.names, from_us, to_us)
    finally:
        await connection.close()
    index = {name: i for i, name in enumerate(recorded.names)}
    tags = np.array([index[c["name"]] for c in channels], np.int32)
    via = np.full(len(index) + 1, "opcua", "U6")  # the last element is for tag -1: unknown channel
    via[tags] = [c["kind"] for c in channels]
    first = np.zeros(len(index), np.int64)
    first[tags] = [c["first_us"] or 0 for c in channels]
    stored = _rows(copied, np.array([c["id"] for c in channels], np.int64), tags)
    if names is not None:
        stored = stored[stored["tag"] >= 0]
    counted = {
        name: rows[(rows["time"] >= np.maximum(first[rows["tag"]], from_us)) & (rows["time"] < to_us)]
        for name, rows in recorded.rows.items()
    }
    of = {name: stored[via[stored["tag"]] == name] for name in VIAS}
    unchanged = np.zeros(len(unchanged_rows), ROW)
    unchanged["tag"] = [index[row["name"]] for row in unchanged_rows]
    unchanged["time"] = [row["us"] for row in unchanged_rows]
    of["opcua"] = _without_unchanged(recorded.rows["opcua"], of["opcua"], unchanged)
    gaps = Gaps((index[g["name"]], g["from_us"], g["to_us"] or _NEVER) for g in gap_rows)
    stored_texts: list[Text] = [(r["name"], r["us"], r["text"], r["status"] & 0xFFFFFFFF) for r in texts]
    if source is not None or names is not None:
        source_names = {c["name"] for c in channels}
        counted = {name: rows[np.isin(rows["tag"], tags)] for name, rows in counted.items()}
        recorded.rows["modbus"] = recorded.rows["modbus"][np.isin(recorded.rows["modbus"]["tag"], tags)]
        recorded.texts[:] = [text for text in recorded.texts if text.name in source_names]
    modbus, window = recorded.rows["modbus"], (from_us, to_us)
    result = {
        "opcua": _by_time(counted["opcua"], of["opcua"], recorded.names, gaps),
        "modbus": _by_order(modbus, of["modbus"], first, window, recorded.names, gaps, within_us),
        "push": _by_time(counted["push"], of["push"], recorded.names, gaps),
        "text": _texts(recorded.texts, stored_texts, first_texts, window, index, gaps),
    }
    total = Comparison()
    for part in result.values():
        total.add(part)
    return {**result, "all": total}


def _collect_into(copied: bytearray) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    async def take(data: bytes) -> None:
        copied.extend(data)

    return take


def _rows(copied: bytearray, channels: NDArray[np.int64], tags: NDArray[np.int32]) -> NDArray[Any]:
    """Rows of :data:`ROW` from a binary COPY; channels not in ``channels`` become tag -1."""
    count = max(0, len(copied) - _HEADER - _TRAILER) // _COPIED.itemsize
    source = np.frombuffer(copied, _COPIED, count, _HEADER)
    order = np.argsort(channels)
    at = np.minimum(np.searchsorted(channels[order], source["channel_id"]), max(0, len(channels) - 1))
    rows = np.empty(count, ROW)
    rows["tag"] = -1
    if len(channels):
        rows["tag"] = np.where(channels[order][at] == source["channel_id"], tags[order][at], -1)
    rows["time"], rows["value"] = source["time"], source["value"]
    rows["at"] = rows["time"]
    rows["status"] = source["status"].astype(np.int32).view(np.uint32)
    return rows


def _without_unchanged(truth: NDArray[Any], stored: NDArray[Any], unchanged: NDArray[Any]) -> NDArray[Any]:
    """``stored`` without what says, just after a gap, that a value has not changed: it was not published then."""
    known, keys, excused = _keys(truth, stored, unchanged)
    return stored[np.isin(keys, known) | ~np.isin(keys, excused)]


def _by_time(truth: NDArray[Any], stored: NDArray[Any], names: list[str], gaps: Gaps) -> Comparison:
    a, b = _keys(truth, stored)
    b, once = np.unique(b, return_index=True)
    result = Comparison(len(truth), len(stored), duplicated=len(stored) - len(once))
    stored = stored[once]
    _, in_truth, in_stored = np.intersect1d(a, b, return_indices=True)
    result.invented = len(stored) - len(in_stored)
    altered = _differs(truth[in_truth], stored[in_stored])
    result.altered = int(altered.sum())
    result.count_missing(names, np.delete(truth, in_truth), gaps)
    result.add_examples("invented", names, np.delete(stored, in_stored))
    result.add_examples("altered", names, stored[in_stored][altered])
    return result


def _by_order(
    truth: NDArray[Any],
    stored: NDArray[Any],
    first: NDArray[np.int64],
    window: tuple[int, int],
    names: list[str],
    gaps: Gaps,
    within_us: int,
) -> Comparison:
    stored = stored[stored["status"] & _BAD == 0]
    # Include answers shortly before the first sample: the one it belongs to is determined below.
    near = np.maximum(first[truth["tag"]], window[0]) - _ANSWER_US
    truth = truth[(truth["time"] >= near) & (truth["time"] < window[1])]
    in_truth, in_stored = (np.argsort(keys, kind="stable") for keys in _keys(truth, stored))
    truth, stored = truth[in_truth], stored[in_stored]
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
            again = _again(answer)
        known = answer >= 0
        known[known] = s["time"][known] - t["time"][answer[known]] < _STOPPED_US
        fits = known & ~again
        altered = _differs(t[answer[fits]], s[fits])
        answered = np.zeros(len(t), bool)
        answered[answer[fits]] = True
        # The channel's first sample, if among these, belongs to the first answer that counts.
        begun = int(np.searchsorted(t["time"], first[tag], "right")) - 1
        counts = (t["time"] >= window[0]) & (t["time"] < window[1] - _ANSWER_US) & (np.arange(len(t)) >= begun)
        missing = counts & ~answered
        if within_us:
            missing &= _distance(t["time"], s["time"]) > within_us
        result.invented += int((~known).sum())
        result.duplicated += int((known & again).sum())
        result.altered += int(altered.sum())
        result.published += int((counts | answered).sum())
        result.count_missing(names, t[missing], gaps)
        result.add_examples("invented", names, s[~known])
        result.add_examples("duplicated", names, s[known & again])
        result.add_examples("altered", names, s[fits][altered])
    return result


def _again(answer: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which samples belong to the same answer as the one before."""
    return ~np.append(True, np.diff(answer) > 0)[: len(answer)]


def _distance(times: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """How far (µs) the nearest of ``others`` is from each time; both are sorted."""
    padded = np.concatenate(([-_NEVER], others, [_NEVER]))
    at = np.searchsorted(others, times)
    return np.minimum(times - padded[at], padded[at + 1] - times)


def _sent_just_after(
    sent: NDArray[np.int64], arrived: NDArray[np.int64], answer: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Where the next answer was sent so soon after a sample that it may be the sample's, and it is no other's."""
    following = np.append(sent, _NEVER)[answer + 1]
    free = np.append(answer[1:] > answer[:-1] + 1, True)[: len(answer)]
    near: NDArray[np.bool_] = free & (following - arrived <= _CLOCKS_US)
    return near


def _texts(
    truth: list[PublishedText],
    stored: list[Text],
    first: dict[str, int],
    window: tuple[int, int],
    index: dict[str, int],
    gaps: Gaps,
) -> Comparison:
    """OPC UA texts by (channel, time), those of devices by order: published if different from the last answer."""
    modbus: dict[str, list[PublishedText]] = {}
    published: dict[tuple[str, int], PublishedText] = {}
    for sent in truth:
        if sent.via == "modbus":
            modbus.setdefault(sent.name, []).append(sent)
        elif max(window[0], first.get(sent.name, 0)) <= sent.time < window[1]:
            published[sent.name, sent.time] = sent
    ours = [(name, at, text, status) for name, at, text, status in stored if name not in modbus]
    found = {(name, at): (text, status) for name, at, text, status in ours}
    result = Comparison(
        len(published), len(stored), len(ours) - len(found), invented=len(found.keys() - published.keys())
    )
    for key in found.keys() & published.keys():
        sent_text, (text, status) = published[key], found[key]
        sent_status, status = (code & ~_OVERFLOW for code in (sent_text.status, status))
        result.altered += status != sent_status or (not sent_status & int(_BAD) and text != sent_text.text)
    _count_missing_texts(result, [published[key] for key in sorted(published.keys() - found.keys())], index, gaps)
    result.examples += [f"invented: {key}" for key in sorted(found.keys() - published.keys())[:_EXAMPLES]]
    for name, answers in modbus.items():
        of_name = [t for t in stored if t[0] == name]
        _device_texts(result, name, answers, of_name, first.get(name, 0), window, index, gaps)
    return result


def _count_missing_texts(result: Comparison, texts: list[PublishedText], index: dict[str, int], gaps: Gaps) -> None:
    rows = np.zeros(len(texts), ROW)
    for row, text in zip(rows, texts, strict=True):
        row["tag"], row["time"], row["at"] = index[text.name], text.time, text.at
    result.count_missing(list(index), rows, gaps)


def _device_texts(
    result: Comparison,
    name: str,
    sent: list[PublishedText],
    stored: list[Text],
    first: int,
    window: tuple[int, int],
    index: dict[str, int],
    gaps: Gaps,
) -> None:
    times = np.array([text.time for text in sent], np.int64)
    answered: set[int] = set()
    for _, at, text, status in stored:
        answer = int(np.searchsorted(times, at, "right")) - 1
        if status & int(_BAD):
            continue
        if answer < 0:
            result.invented += 1
            result.examples.append(f"invented: {name} at {at} µs = {text!r}")
            continue
        answered.add(answer)
        if text != sent[answer].text:
            result.altered += 1
            result.examples.append(f"altered: {name} at {at} µs = {text!r}, not {sent[answer].text!r}")
    begun = int(np.searchsorted(times, first, "right")) - 1
    counts = {
        i for i, at in enumerate(times.tolist()) if i >= max(0, begun) and window[0] <= at < window[1] - _ANSWER_US
    }
    result.published += len(counts | answered)
    _count_missing_texts(result, [sent[i] for i in sorted(counts - answered)], index, gaps)


def _keys(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """For each array of :data:`ROW`, one integer per row that sorts like (tag, time)."""
    times = np.concatenate([rows["time"] for rows in columns])
    start, end = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    # tags below 100,000, intervals below two years: fits easily into 63 bits
    return tuple((rows["tag"] + np.int64(1)) * (end - start + 1) + (rows["time"] - start) for rows in columns)


def _differs(truth: NDArray[Any], stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of row pairs that differ in status or in the bits of the value; values of Bad samples are ignored."""
    values = _bits(truth["value"]) != _bits(stored["value"])
    bad = truth["status"] & _BAD != 0
    # the Overflow bit is about earlier values, not about this one
    status = np.where(
        stored["status"] & _OVERFLOW == _OVERFLOW, stored["status"] & ~np.uint32(_OVERFLOW), stored["status"]
    )
    differs: NDArray[np.bool_] = (values & ~bad) | (truth["status"] != status)
    return differs


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values).view(np.uint64)
