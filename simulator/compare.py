"""Hold the table against the ground truth: every published value in it once, unaltered, and nothing else.

OPC UA by (channel, source timestamp). Modbus has no source time: a stored sample belongs to the last answer that was
sent before it arrived, and each answer to one sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
from numpy.typing import NDArray

from schema.queries import load
from simulator.truth import ROW, Via, read_truth

_ANSWER_SECONDS = 5.0  # an answer is stored with an arrival this much later at most


@dataclass(slots=True)
class Comparison:
    """Counts of samples in the interval."""

    published: int = 0
    stored: int = 0
    invented: int = 0  # in the table, never published
    altered: int = 0  # in the table with another value or status
    missing: int = 0  # published, not in the table

    def add(self, other: Comparison) -> None:
        """Sum."""
        for name in Comparison.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


async def compare(truth: Path, dsn: str, from_us: int, to_us: int) -> dict[str, Comparison]:
    """Compare source times (Modbus: arrivals) in [from_us, to_us); keys ``opcua``, ``modbus``, ``text``, ``all``."""
    recorded = read_truth(truth)
    connection = await asyncpg.connect(dsn)
    try:
        channels = await connection.fetch(load("compare")["channels"], recorded.names)
        rows = await connection.fetch(load("compare")["samples"], from_us, to_us)
        texts = await connection.fetch(load("compare")["texts"], from_us, to_us)
    finally:
        await connection.close()
    tag_of = (
        {row["id"]: recorded.names.index(row["name"]) for row in channels}
        if len(channels) < 1000
        else _map(channels, recorded.names)
    )
    kind_of = {row["id"]: row["kind"] for row in channels}
    stored: dict[str, list[tuple[int, int, int, float]]] = {"opcua": [], "modbus": []}
    for row in rows:
        tag = tag_of.get(row["channel_id"], -1)
        stored[kind_of.get(row["channel_id"], "opcua")].append(
            (tag, row["status"] & 0xFFFFFFFF, row["us"], row["value"])
        )
    result = {
        "opcua": _by_time(_within(recorded.rows["opcua"], from_us, to_us), np.array(stored["opcua"], ROW)),
        "modbus": _by_order(recorded.rows["modbus"], np.array(stored["modbus"], ROW), from_us, to_us),
        "text": _texts(recorded.texts, [(r["name"], r["us"], r["text"]) for r in texts], from_us, to_us),
    }
    total = Comparison()
    for part in result.values():
        total.add(part)
    return {**result, "all": total}


def _map(channels: list[asyncpg.Record], names: list[str]) -> dict[int, int]:
    index = {name: i for i, name in enumerate(names)}
    return {row["id"]: index[row["name"]] for row in channels}


def _within(rows: NDArray[Any], from_us: int, to_us: int) -> NDArray[Any]:
    inside: NDArray[Any] = rows[(rows["time"] >= from_us) & (rows["time"] < to_us)]
    return inside


def _by_time(truth: NDArray[Any], stored: NDArray[Any]) -> Comparison:
    keys_truth = np.stack((truth["tag"].astype(np.int64), truth["time"]), axis=1)
    keys_stored = np.stack((stored["tag"].astype(np.int64), stored["time"]), axis=1)
    dtype = np.dtype([("tag", "<i8"), ("time", "<i8")])
    a, b = np.ascontiguousarray(keys_truth).view(dtype)[:, 0], np.ascontiguousarray(keys_stored).view(dtype)[:, 0]
    _, in_truth, in_stored = np.intersect1d(a, b, return_indices=True)
    t, s = truth[in_truth], stored[in_stored]
    differs = (_bits(t["value"]) != _bits(s["value"])) | (t["status"] != s["status"])
    return Comparison(
        len(truth), len(stored), len(stored) - len(in_stored), int(differs.sum()), len(truth) - len(in_truth)
    )


def _by_order(truth: NDArray[Any], stored: NDArray[Any], from_us: int, to_us: int) -> Comparison:
    """Samples with a Bad status tell of outages; no device published them, and they are not counted."""
    stored = stored[stored["status"] == 0]
    result = Comparison(stored=len(stored))
    truth = np.sort(truth, order=("tag", "time"))
    stored = np.sort(stored, order=("tag", "time"))
    for tag in np.unique(np.concatenate((truth["tag"], stored["tag"]))).tolist():
        t = truth[slice(*np.searchsorted(truth["tag"], (tag, tag + 1)))]
        s = stored[slice(*np.searchsorted(stored["tag"], (tag, tag + 1)))]
        answer = np.searchsorted(t["time"], s["time"], "right") - 1
        fits = (answer >= 0) & np.append(True, np.diff(answer) > 0)[: len(answer)]
        fits[fits] = s["time"][fits] - t["time"][answer[fits]] < _ANSWER_SECONDS * 1e6
        result.invented += int((~fits).sum())
        result.altered += int((_bits(s["value"][fits]) != _bits(t["value"][answer[fits]])).sum())
        # An answer just before the end may have arrived after it.
        answered = np.zeros(len(t), bool)
        answered[answer[fits]] = True
        inside = (t["time"] >= from_us) & (t["time"] < to_us - _ANSWER_SECONDS * 1e6)
        result.published += int((inside | answered).sum())
        result.missing += int((inside & ~answered).sum())
    return result


def _texts(
    truth: list[tuple[Via, str, int, str, int]], stored: list[tuple[str, int, str]], from_us: int, to_us: int
) -> Comparison:
    """OPC UA texts by (channel, time); a Modbus text has no source time and is compared in number and order only."""
    published = {(name, at): text for via, name, at, text, _ in truth if via == "opcua" and from_us <= at < to_us}
    modbus = {name for via, name, *_ in truth if via == "modbus"}
    found = {(name, at): text for name, at, text in stored if name not in modbus}
    altered = sum(published[key] != text for key, text in found.items() if key in published)
    return Comparison(
        len(published), len(found), len(found.keys() - published.keys()), altered, len(published.keys() - found.keys())
    )


def _bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(values).view(np.uint64)
