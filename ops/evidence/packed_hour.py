"""Unpacks hours of samples as the database stores them (schema/tables/samples.sql), as ``plant.unpack`` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import asyncpg
import numpy as np
from numpy.typing import NDArray

from ingest.batch import Int64s, UInt32s
from ingest.timestamps import microseconds

_HEAD = 20  # bytes before an array's elements: dimensions, flags, type, length, lower bound
Columns: TypeAlias = tuple[Int64s, NDArray[np.uint64], UInt32s]  # times (µs), the values' bits, status; each (n,)


def elements(sent: bytes, kind: str) -> NDArray[Any]:
    """The elements of a one-dimensional array without NULLs, as PostgreSQL's array_send writes it."""
    return np.frombuffer(sent, np.dtype([("length", ">i4"), ("element", kind)]), offset=_HEAD)["element"]


def samples_of(row: asyncpg.Record) -> Columns:
    """The samples of a packed hour, a row of section ``select_samples``."""
    n = row["n"]
    time_us = microseconds(row["start"]) + np.arange(n, dtype=np.int64) * row["step"]
    if row["t"][0] is not None:
        time_us += row["unit"] * _numbers(row["t"])
    if row["statuses"] is None:
        status = np.full(n, row["status"] & 0xFFFFFFFF, np.uint32)
    else:
        status = elements(row["statuses"], ">u4").astype(np.uint32)
    return time_us, _values(row), status


def _values(row: asyncpg.Record) -> NDArray[np.uint64]:
    if row["float8s"] is not None:
        exact, present = _optional(row["float8s"], ">u8", row["n"])
        if np.all(present):
            return exact.astype(np.uint64)
        return np.where(present, exact.astype(np.uint64), _short(row))
    return _short(row)


def _short(row: asyncpg.Record) -> NDArray[np.uint64]:
    """The values that have a shorter form."""
    if row["float4s"] is not None:
        single, present = _optional(row["float4s"], ">f4", row["n"])
        bits = single.astype(np.float64).view(np.uint64)
        return bits if np.all(present) else np.where(present, bits, _scaled(row))
    return _scaled(row)


def _scaled(row: asyncpg.Record) -> NDArray[np.uint64]:
    numbers = np.full(row["n"], row["base"])
    if row["v"][0] is not None:
        numbers += _numbers(row["v"])  # both are integers below 2^53
    numbers /= row["divisor"]
    if row["single"]:
        numbers = numbers.astype(np.float32).astype(np.float64)
    return numbers.view(np.uint64)


def _optional(sent: bytes, kind: str, n: int) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The elements of an array, and which are not NULL."""
    if not any(sent[4:8]):  # flags: there is no NULL
        return elements(sent, kind), np.ones(n, np.bool_)
    found, present = np.zeros(n, kind), np.zeros(n, np.bool_)
    place = _HEAD
    for i in range(n):
        size = int.from_bytes(sent[place : place + 4], "big", signed=True)
        place += 4
        if size > 0:
            found[i : i + 1] = np.frombuffer(sent, kind, 1, place)
            present[i] = True
            place += size
    return found, present


def _numbers(planes: Sequence[bytes | None]) -> Int64s:
    """Integers by their bytes, the lowest first, each minus 128."""
    present = [elements(plane, "i1") for plane in planes if plane is not None]
    numbers = present[0].astype(np.int64)
    for place, plane in enumerate(present[1:], 1):
        numbers += plane.astype(np.int64) << (8 * place)
    return numbers
