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

from collections.abc import Callable, Collection, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from core.database import connected
from core.status_codes import BAD
from core.timestamps import iso
from ingest.spool.waiting import waiting
from schema.queries import load
from simulator.compare_samples import (
    ANSWER_US,
    EXAMPLES,
    NEVER,
    OVERFLOW,
    Comparison,
    RecordedGaps,
    by_channel,
    by_order,
    by_time,
    published,
)
from simulator.truth import ROW, VIAS, PublishedText, read_truth, truth_names, truth_rows

_PORTION_ROWS = 40_000_000  # some 8 GiB of memory; each portion reads the whole table
_AT_ONCE = 1000  # samples that are looked up: the planner would read the samples of all channels for many more
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


async def pending(spool: Path, dsn: str, us: int, names: Collection[str]) -> list[str]:
    """Describe what of the channels ``names`` is dated up to ``us`` and may not be stored yet; ``spool``: the folder.

    What a source sent last is stored, and then nothing older is left in the spool: in the other order, it could have
    come there in between.
    """
    async with connected(dsn, "plantlog simulator") as connection:
        late = await connection.fetch(load("compare")["select_late_sources"], us, names)
    if late:
        return [f"source {row['name']} has no samples since {iso(us)}" for row in late]
    return waiting(spool, us, load("spool")["select_min_first_time"])


async def compare(
    truth: Path,
    dsn: str,
    from_us: int,
    to_us: int,
    source: str | None = None,
    within_us: int = 0,
    names: Collection[str] | None = None,
    portion_rows: int = _PORTION_ROWS,
) -> dict[str, Comparison]:
    """Compare data with a source time (Modbus: time of arrival) in [from_us, to_us) µs.

    ``source``: compare only this source; ``names``: only these channels. ``within_us``: both members of a redundant
    pair poll the devices, so that an answer to one of them is not missing if the table has another one of the channel
    so near, and may be overtaken by an answer to the other one. So many channels are compared at once that the truth
    of them has about ``portion_rows`` numbers.

    ``truth``: the folder DIR/truth written by ``run --state DIR``; ``dsn``: of any user with read access. Keys of the
    result: ``opcua``, ``modbus`` and ``push`` (numbers), ``text`` (of all), ``all`` (the sum). Samples with a Bad
    status of Modbus channels mark outages, were not published by a device, and are not counted. Modbus answers of the
    last 5 s count only if they are stored, because they may be in transit. Does not wait: call it once the table
    has reached ``to_us``. Raises OSError or asyncpg's errors if files or database cannot be read.
    """
    simulated = truth_names(truth)
    result = {part: Comparison() for part in (*VIAS, "text", "all")}
    async with connected(
        dsn, "plantlog simulator", {"statement_timeout": "0"}
    ) as connection:  # hours of samples take a while
        channels = await connection.fetch(load("compare")["select_channels"], source)
        by_name = {channel["name"]: channel for channel in channels}
        simulated_names = [
            name for name in simulated if (names is None or name in names) and (source is None or name in by_name)
        ]
        others = [] if names is not None else [by_name[name] for name in by_name.keys() - set(simulated)]
        portions = max(1, -(-truth_rows(truth) // portion_rows))
        for number in range(portions):
            portion = simulated_names[number::portions]
            stored = [by_name[name] for name in portion if name in by_name] + (others if number == 0 else [])
            compared = await _compare(connection, truth, (from_us, to_us), portion, stored, within_us)
            for part, compared_part in compared.items():
                result[part].add(compared_part)
                result["all"].add(compared_part)
    return result


async def _compare(
    connection: asyncpg.Connection,
    truth: Path,
    window: tuple[int, int],
    names: Sequence[str],
    channels: Sequence[asyncpg.Record],
    within_us: int,
) -> dict[str, Comparison]:
    """Compare ``names`` of the truth with ``channels`` of the table."""
    recorded = read_truth(truth, window[0] - ANSWER_US, names)
    queries, copied, ids = load("compare"), bytearray(), [channel["id"] for channel in channels]
    await connection.copy_from_query(
        queries["select_samples"].rstrip().rstrip(";"), *window, ids, output=_collect_into(copied), format="binary"
    )
    texts = await connection.fetch(queries["select_texts"], *window, ids)
    first_texts = {row["name"]: row["us"] for row in await connection.fetch(queries["select_first_texts"], ids)}
    gap_rows = await connection.fetch(queries["select_gaps"], recorded.names)
    index = {name: i for i, name in enumerate(recorded.names)}
    tags = np.array([index.get(c["name"], -1) for c in channels], np.int32)
    via = np.full(len(index) + 1, "opcua", "U6")  # the last element is for tag -1: unknown channel
    first = np.zeros(len(index) + 1, np.int64)
    for tag, channel in zip(tags.tolist(), channels, strict=True):
        if tag >= 0:
            via[tag], first[tag] = channel["kind"], channel["first_us"] or 0
    id_of = np.zeros(len(index) + 1, np.int32)
    id_of[tags] = ids
    truths = {name: by_channel(rows) for name, rows in recorded.rows.items()}
    counted = {
        name: rows[(rows["time"] >= np.maximum(first[rows["tag"]], window[0])) & (rows["time"] < window[1])]
        for name, rows in truths.items()
    }
    samples = by_channel(_rows(copied, np.array(ids, np.int64), tags))
    stored = {name: samples[via[samples["tag"]] == name] for name in VIAS}
    others = stored["opcua"][~published(truths["opcua"], stored["opcua"])]
    unchanged: list[int] = []
    for begin in range(0, len(others), _AT_ONCE):
        block = others[begin : begin + _AT_ONCE]
        columns = (id_of[block["tag"]], block["time"], block["value"], block["status"].view(np.int32))
        rows = await connection.fetch(queries["select_unchanged"], *(column.tolist() for column in columns))
        unchanged += [begin + row["number"] - 1 for row in rows]
    excused = by_channel(others[unchanged])
    stored["opcua"] = stored["opcua"][~published(excused, stored["opcua"])]
    gaps = RecordedGaps((index[g["name"]], g["from_us"], g["to_us"] or NEVER) for g in gap_rows)
    stored_texts: list[Text] = [(r["name"], r["us"], r["text"], r["status"] & 0xFFFFFFFF) for r in texts]
    return {
        "opcua": by_time(counted["opcua"], stored["opcua"], recorded.names, gaps),
        "modbus": by_order(truths["modbus"], stored["modbus"], first, window, recorded.names, gaps, within_us),
        "push": by_time(counted["push"], stored["push"], recorded.names, gaps),
        "text": compare_texts(recorded.texts, stored_texts, first_texts, window, index, gaps),
    }


def _collect_into(copied: bytearray) -> Callable[[bytes], Coroutine[Any, Any, None]]:
    async def take(data: bytes) -> None:
        copied.extend(data)

    return take


def _rows(copied: bytearray, channels: NDArray[np.int64], tags: NDArray[np.int32]) -> NDArray[Any]:
    """Rows of :data:`ROW`, from a binary COPY. ``tags``: of the channels, -1 for unknown ones."""
    count = max(0, len(copied) - _HEADER - _TRAILER) // _COPIED.itemsize
    source = np.frombuffer(copied, _COPIED, count, _HEADER)
    order = np.argsort(channels)
    rows = np.empty(count, ROW)
    rows["tag"] = tags[order][np.searchsorted(channels[order], source["channel_id"])] if count else -1
    rows["time"], rows["value"] = source["time"], source["value"]
    rows["at"] = rows["time"]
    rows["status"] = source["status"].astype(np.int32).view(np.uint32)
    return rows


Text: TypeAlias = tuple[str, int, str | None, int]  # channel, time µs, text, status


def compare_texts(
    truth: list[PublishedText],
    stored: list[Text],
    first: dict[str, int],
    window: tuple[int, int],
    index: dict[str, int],
    gaps: RecordedGaps,
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
    stored_texts = {(name, at): (text, status) for name, at, text, status in ours}
    result = Comparison(
        len(published), len(stored), len(ours) - len(stored_texts), invented=len(stored_texts.keys() - published.keys())
    )
    for key in stored_texts.keys() & published.keys():
        sent_text, (text, status) = published[key], stored_texts[key]
        sent_status, status = (code & ~OVERFLOW for code in (sent_text.status, status))
        result.altered += status != sent_status or (not sent_status & BAD and text != sent_text.text)
    _count_missing_texts(
        result, [published[key] for key in sorted(published.keys() - stored_texts.keys())], index, gaps
    )
    result.examples += [f"invented: {key}" for key in sorted(stored_texts.keys() - published.keys())[:EXAMPLES]]
    for name, answers in modbus.items():
        of_name = [t for t in stored if t[0] == name]
        _device_texts(result, name, answers, of_name, first.get(name, 0), window, index, gaps)
    return result


def _count_missing_texts(
    result: Comparison, texts: list[PublishedText], index: dict[str, int], gaps: RecordedGaps
) -> None:
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
    gaps: RecordedGaps,
) -> None:
    times = np.array([text.time for text in sent], np.int64)
    answered: set[int] = set()
    for _, at, text, status in stored:
        answer = int(np.searchsorted(times, at, "right")) - 1
        if status & BAD:
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
        i for i, at in enumerate(times.tolist()) if i >= max(0, begun) and window[0] <= at < window[1] - ANSWER_US
    }
    result.published += len(counts | answered)
    _count_missing_texts(result, [sent[i] for i in sorted(counts - answered)], index, gaps)
