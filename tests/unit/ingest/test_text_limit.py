"""Texts have a limit, whatever collector they come from; what is cut says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.batch import Event, EventBatch
from ingest.spool.append import Spool, limited
from ingest.spool.reader import SpoolReader
from tests.samples import T0

MIB = 1024**2


@pytest.mark.parametrize("text", ["x" * 2000, "µ" * 1000, "\N{BAR CHART}" * 500, "\ud83d" * 2000])
def test_long_text_is_cut_with_a_mark(text: str) -> None:
    detail = {"message": text, "fields": [text, 1, {"more": text}], "n": 5}
    [event] = limited(EventBatch(1, T0, (Event("text", T0, 1, 0, text, detail),)), 1024).events
    size = len(text.encode(errors="replace"))
    assert event.text is not None
    assert event.text.endswith(f"… (cut: {size:,} bytes)")
    assert 1000 < len(event.text.encode()) <= 1024
    assert event.detail == {"message": event.text, "fields": [event.text, 1, {"more": event.text}], "n": 5}


def test_text_within_the_limit_stays() -> None:
    batch = EventBatch(1, T0, (Event("text", T0, 1, 0, "µ" * 512), Event("alarm", T0, detail={"limits": (1.0, "hi")})))
    assert limited(batch, 1024) is batch


async def test_spool_cuts_texts(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "push.sqlite", 64 * MIB)
    await spool.append(EventBatch(1, T0, (Event("text", T0, 1, 0, "x" * MIB), Event("text", T0 + 1, 1, 0, "short"))))
    await spool.close()
    reader = SpoolReader(tmp_path / "push.sqlite")
    [spooled] = reader.read(100)
    reader.close()
    assert isinstance(spooled.batch, EventBatch)
    cut, short = (event.text for event in spooled.batch.events)
    assert cut is not None and len(cut.encode()) <= 64 * 1024 and cut.endswith("… (cut: 1,048,576 bytes)")
    assert short == "short"
