"""Scans that a query has let go of end with its session."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from history.sql.sources.scan import Scans
from tests.waiting import until_sync


def test_end_waits_for_what_reads_and_nothing_is_read_after_it() -> None:
    scans, reads = Scans(), threading.Event()
    read = list[int]()

    def batches() -> Iterator[int]:
        reads.set()
        until_sync(lambda: scans._ended)
        read.append(1)
        yield 1
        read.append(2)

    thread = threading.Thread(target=list, args=[scans.read(batches())])
    thread.start()
    assert reads.wait(10)
    scans.end(10)
    assert read == [1]
    thread.join(10)
    assert read == [1]
    assert list(scans.read(iter([3]))) == []


def test_what_a_scan_raises_is_kept() -> None:
    scans = Scans()

    def batches() -> Iterator[int]:
        yield 1
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged") as raised:
        list(scans.read(batches()))
    assert scans.failures == [raised.value]
    scans.end(0)
