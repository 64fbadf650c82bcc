"""Events as PostgreSQL's parameters."""

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from core.batch import Event
from core.timestamps import microseconds, timestamp
from ingest.event_rows import event_columns, event_id, signed
from tests.samples import T0

EVENT = Event("text", T0, 5, 0x80050000, "auto", {"a": 1})


def test_event_id_identifies_the_event() -> None:
    assert event_id(1, EVENT) == event_id(1, replace(EVENT, detail={"a": 1}))
    others = [
        event_id(2, EVENT),
        event_id(1, replace(EVENT, time=T0 + 1)),
        event_id(1, replace(EVENT, text="manual")),
        event_id(1, replace(EVENT, status=0)),
        event_id(1, replace(EVENT, channel_id=6)),
        event_id(1, replace(EVENT, detail={"a": 2})),
    ]
    assert len({event_id(1, EVENT), *others}) == 7
    assert all(0 <= i < 2**63 for i in others)


@given(st.text() | st.characters(categories=["Cs"]))
def test_unstorable_text_is_replaced_and_marked(text: str) -> None:
    columns = event_columns([(1, replace(EVENT, text=text, detail={}))])
    stored, detail = columns[6][0], json.loads(columns[7][0])
    stored.encode()
    assert "\0" not in stored
    assert (stored == text) == ("text_escaped" not in detail)


def test_nul_of_a_text_has_a_symbol() -> None:
    columns = event_columns([(1, replace(EVENT, text="on\0off\ud800", detail={"a": 1}))])
    assert (columns[6], json.loads(columns[7][0])) == (["on␀off?"], {"a": 1, "text_escaped": True})


@given(st.integers(0, 7_258_118_400_000_000))
def test_microseconds_round_trip_through_datetime(us: int) -> None:
    assert microseconds(timestamp(us)) == us


def test_status_code_keeps_its_bits() -> None:
    assert signed(0) == 0
    assert signed(0x80050000) == 0x80050000 - 2**32
    assert event_columns([(1, EVENT)])[5] == [0x80050000 - 2**32]
