"""Hold the table against the ground truth: every published value in it once, unaltered, and nothing else.

What is missing is looked for among the gaps: one that is on record holds the moment at which the value was published,
or its source time, and was not closed as backfilled. Any other miss is silent, which must never be.

OPC UA and push by (channel, source timestamp). Modbus has no source time: a stored sample belongs to the last answer
that was sent before it arrived, and each answer to one sample; a stored text to the last text that was sent before.

What a channel published before its first sample in the table was published while nobody listened, and does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from schema.queries import load
from simulator.truth import ROW, VIAS, PublishedText, read_truth

_ANSWER_US = 5_000_000  # an answer that was sent this long ago is no longer on its way
_STOPPED_US = 120_000_000  # and to a collector that was suspended it arrives this much later at most
_EXAMPLES = 10  # of what differs, a kind
_OVERFLOW = 0x0480
_NEVER = 2**62
_BAD = np.uint32(0x8000_0000)  # set in every Bad status: the value has no meaning
# One row of PostgreSQL's binary COPY of query ``samples``: number of columns, then each one's length and content.
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
    """Counts of samples in the interval, and the first few that differ, in words."""

    published: int = 0
    stored: int = 0
    duplicated: int = 0  # in the table more than once
    invented: int = 0  # in the table, never published
    altered: int = 0  # in the table with another value or status
    missing_recorded: int = 0  # published, not in the table, and a gap says so
    missing_silent: int = 0  # published, not in the table, and nothing says so
    examples: list[str] = field(default_factory=list)

    @property
    def missing(self) -> int:
        """Published, not in the table."""
        return self.missing_recorded + self.missing_silent

    def add(self, other: Comparison) -> None:
        """Sum."""
        for name in Comparison.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def tell(self, what: str, names: list[str], rows: NDArray[Any]) -> None:
        """Remember some of ``rows`` (of :data:`ROW`) as examples of ``what``."""
        for row in rows[: max(0, _EXAMPLES - len(self.examples))]:
            name = names[row["tag"]] if row["tag"] >= 0 else "a channel that the simulator has not"
            self.examples.append(
                f"{what}: {name} at {row['time']} µs = {row['value']!r}, status 0x{row['status']:08X},"
                f" published at {row['at']} µs"
            )

    def miss(self, names: list[str], rows: NDArray[Any], gaps: Gaps) -> None:
        """Count ``rows`` (of :data:`ROW`), which are not in the table."""
        recorded = gaps.hold(rows)
        self.missing_recorded += int(recorded.sum())
        self.missing_silent += int((~recorded).sum())
        self.tell("missing, no gap", names, rows[~recorded])


class Gaps:
    """What is on record as missing: by tag the moments (µs) between which, joined where they overlap."""

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

    def hold(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Which of ``rows`` (of :data:`ROW`) lie in a gap of their tag."""
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


async def compare(truth: Path, dsn: str, from_us: int, to_us: int, source: str | None = None) -> dict[str, Comparison]:
    """Compare what has a source time (Modbus: an arrival) in [from_us, to_us) µs.

    ``source``: the truth is of that source alone, and what plantlog was told of it.

    ``truth`` is the folder that ``run --state DIR`` fills, DIR/truth; ``dsn`` that of anybody who may read. Keys of the
    result: ``opcua``, ``modbus`` and ``push`` (numbers), ``text`` (of all), ``all`` (their sum). Samples with a Bad
    status of Modbus channels tell of outages; no device published them, and they are not counted. Modbus answers of the
    last 5 s count only if they are stored: they may still be on their way. Nothing is waited for: call when the table
    has reached ``to_us``. Raises OSError or asyncpg's errors where files or database can't be read.
    """
    recorded = read_truth(truth, from_us - _ANSWER_US)
    queries = load("compare")
    copied = bytearray()
    connection = await asyncpg.connect(dsn)
    try:
        channels = await connection.fetch(queries["channels"], recorded.names, source)
        await connection.copy_from_query(
            queries["samples"].rstrip().rstrip(";"), from_us, to_us, source, output=_into(copied), format="binary"
        )
        texts = await connection.fetch(queries["texts"], from_us, to_us, source)
        first_texts = {row["name"]: row["us"] for row in await connection.fetch(queries["first_texts"])}
        gap_rows = await connection.fetch(queries["gaps"], recorded.names)
    finally:
        await connection.close()
    index = {name: i for i, name in enumerate(recorded.names)}
    tags = np.array([index[c["name"]] for c in channels], np.int32)
    via = np.full(len(index) + 1, "opcua", "U6")  # the last one is tag -1: of no channel that the simulator has
    via[tags] = [c["kind"] for c in channels]
    first = np.zeros(len(index), np.int64)
    first[tags] = [c["first_us"] or 0 for c in channels]
    stored = _rows(copied, np.array([c["id"] for c in channels], np.int64), tags)
    counted = {
        name: rows[(rows["time"] >= np.maximum(first[rows["tag"]], from_us)) & (rows["time"] < to_us)]
        for name, rows in recorded.rows.items()
    }
    of = {name: stored[via[stored["tag"]] == name] for name in VIAS}
    gaps = Gaps((index[g["name"]], g["from_us"], g["to_us"] or _NEVER) for g in gap_rows)
    told: list[Text] = [(r["name"], r["us"], r["text"], r["status"] & 0xFFFFFFFF) for r in texts]
    if source is not None:
        told_of = {c["name"] for c in channels}
        counted = {name: rows[np.isin(rows["tag"], tags)] for name, rows in counted.items()}
        recorded.rows["modbus"] = recorded.rows["modbus"][np.isin(recorded.rows["modbus"]["tag"], tags)]
        recorded.texts[:] = [text for text in recorded.texts if text.name in told_of]
    result = {
        "opcua": _by_time(counted["opcua"], of["opcua"], recorded.names, gaps),
        "modbus": _by_order(recorded.rows["modbus"], of["modbus"], first, (from_us, to_us), recorded.names, gaps),
        "push": _by_time(counted["push"], of["push"], recorded.names, gaps),
        "text": _texts(recorded.texts, told, first_texts, (from_us, to_us), index, gaps),
    }
    total = Comparison()
    for part in result.values():
        total.add(part)
    return {**result, "all": total}


def _into(copied: bytearray) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    async def take(data: bytes) -> None:
        copied.extend(data)

    return take


def _rows(copied: bytearray, channels: NDArray[np.int64], tags: NDArray[np.int32]) -> NDArray[Any]:
    """Rows of :data:`ROW` from a binary COPY; a channel that is none of ``channels`` becomes tag -1."""
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


def _by_time(truth: NDArray[Any], stored: NDArray[Any], names: list[str], gaps: Gaps) -> Comparison:
    a, b = _keys(truth, stored)
    b, once = np.unique(b, return_index=True)
    result = Comparison(len(truth), len(stored), duplicated=len(stored) - len(once))
    stored = stored[once]
    _, in_truth, in_stored = np.intersect1d(a, b, return_indices=True)
    result.invented = len(stored) - len(in_stored)
    altered = _differs(truth[in_truth], stored[in_stored])
    result.altered = int(altered.sum())
    result.miss(names, np.delete(truth, in_truth), gaps)
    result.tell("invented", names, np.delete(stored, in_stored))
    result.tell("altered", names, stored[in_stored][altered])
    return result


def _by_order(
    truth: NDArray[Any],
    stored: NDArray[Any],
    first: NDArray[np.int64],
    window: tuple[int, int],
    names: list[str],
    gaps: Gaps,
) -> Comparison:
    stored = stored[stored["status"] & _BAD == 0]
    # Answers from a little before the first sample on: which one that sample belongs to is found below.
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
        again = ~np.append(True, np.diff(answer) > 0)[: len(answer)]
        known = answer >= 0
        known[known] = s["time"][known] - t["time"][answer[known]] < _STOPPED_US
        fits = known & ~again
        altered = _differs(t[answer[fits]], s[fits])
        answered = np.zeros(len(t), bool)
        answered[answer[fits]] = True
        # The channel's first sample, if it is one of these, belongs to the first answer that counts.
        begun = int(np.searchsorted(t["time"], first[tag], "right")) - 1
        counts = (t["time"] >= window[0]) & (t["time"] < window[1] - _ANSWER_US) & (np.arange(len(t)) >= begun)
        result.invented += int((~known).sum())
        result.duplicated += int((known & again).sum())
        result.altered += int(altered.sum())
        result.published += int((counts | answered).sum())
        result.miss(names, t[counts & ~answered], gaps)
        result.tell("invented", names, s[~known])
        result.tell("duplicated", names, s[known & again])
        result.tell("altered", names, s[fits][altered])
    return result


def _texts(
    truth: list[PublishedText],
    stored: list[Text],
    first: dict[str, int],
    window: tuple[int, int],
    index: dict[str, int],
    gaps: Gaps,
) -> Comparison:
    """OPC UA texts by (channel, time). A device's by order: its text is published when an answer has another one."""
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
        told, (text, status) = published[key], found[key]
        told_status, status = (code & ~_OVERFLOW for code in (told.status, status))
        result.altered += status != told_status or (not told_status & int(_BAD) and text != told.text)
    _miss_texts(result, [published[key] for key in sorted(published.keys() - found.keys())], index, gaps)
    result.examples += [f"invented: {key}" for key in sorted(found.keys() - published.keys())[:_EXAMPLES]]
    for name, answers in modbus.items():
        of_name = [t for t in stored if t[0] == name]
        _device_texts(result, name, answers, of_name, first.get(name, 0), window, index, gaps)
    return result


def _miss_texts(result: Comparison, texts: list[PublishedText], index: dict[str, int], gaps: Gaps) -> None:
    rows = np.zeros(len(texts), ROW)
    for row, text in zip(rows, texts, strict=True):
        row["tag"], row["time"], row["at"] = index[text.name], text.time, text.at
    result.miss(list(index), rows, gaps)


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
    told: set[int] = set()
    for _, at, text, status in stored:
        answer = int(np.searchsorted(times, at, "right")) - 1
        if status & int(_BAD):
            continue
        if answer < 0:
            result.invented += 1
            result.examples.append(f"invented: {name} at {at} µs = {text!r}")
            continue
        told.add(answer)
        if text != sent[answer].text:
            result.altered += 1
            result.examples.append(f"altered: {name} at {at} µs = {text!r}, not {sent[answer].text!r}")
    begun = int(np.searchsorted(times, first, "right")) - 1
    counts = {
        i for i, at in enumerate(times.tolist()) if i >= max(0, begun) and window[0] <= at < window[1] - _ANSWER_US
    }
    result.published += len(counts | told)
    _miss_texts(result, [sent[i] for i in sorted(counts - told)], index, gaps)


def _keys(*columns: NDArray[Any]) -> tuple[NDArray[np.int64], ...]:
    """For each of some arrays of :data:`ROW` one integer a row, in the order of (tag, time)."""
    times = np.concatenate([rows["time"] for rows in columns])
    start, end = (int(times.min()), int(times.max())) if len(times) else (0, 0)
    # tags below 100,000 and an interval below two years: far from 63 bits
    return tuple((rows["tag"] + np.int64(1)) * (end - start + 1) + (rows["time"] - start) for rows in columns)


def _differs(truth: NDArray[Any], stored: NDArray[Any]) -> NDArray[np.bool_]:
    """Where pairs of rows have another value, bit by bit, or another status; a Bad sample's value means nothing."""
    values = _bits(truth["value"]) != _bits(stored["value"])
    bad = truth["status"] & _BAD != 0
    # the Overflow bit is the server's word on what was lost before, not on the value
    status = np.where(
        stored["status"] & _OVERFLOW == _OVERFLOW, stored["status"] & ~np.uint32(_OVERFLOW), stored["status"]
    )
    differs: NDArray[np.bool_] = (values & ~bad) | (truth["status"] != status)
    return differs


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values).view(np.uint64)
