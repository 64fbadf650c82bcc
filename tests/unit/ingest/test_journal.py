"""The journal: what is committed comes back to the bit, in bounds, whatever happened to its files."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.batch import Batch, Event, EventBatch, Gap, GapBatch
from core.config.model import SpoolOptions
from core.errors import SpoolCorrupt
from core.timestamps import now_us
from ingest.journal import journal as journals
from ingest.journal.journal import Journal
from ingest.journal.reader import ReplayReader
from ingest.journal.record import MAGIC, MAX_HEADER_BYTES, Segment, decode_body, decode_header, encode_record
from ingest.journal.replay import has_requests, keys, replay
from ingest.spool import dead_letter
from ingest.spool.format import SpooledBatch, encode
from ingest.spool.segments import segment, segments
from tests.samples import T0, batch, count_batch
from tests.spooling import machine_disk

__all__ = ["machine_disk"]

MIB = 1024**2
HOUR = 3_600_000_000  # µs
OPTIONS = SpoolOptions(max_bytes=MIB)
_INT32 = st.integers(-(2**31), 2**31 - 1)


def spooled(sequence: int, content: Batch) -> SpooledBatch:
    record = encode(content)
    return SpooledBatch(sequence, record.first_time, record.last_time, content)


def samples(sequence: int, rows: int = 3) -> SpooledBatch:
    return spooled(sequence, batch([(i, sequence, i / 7, 0) for i in range(rows)]))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The time of the journal (µs), to be set."""
    now = [T0]
    monkeypatch.setattr(journals, "now_us", lambda: now[0])
    return now


def sequences_of(folder: Path) -> list[int]:
    """Sequences in the journal, oldest first."""
    return [key.sequence for key in keys(folder)][::-1]


def replayed(folder: Path, rows: int = 10**9) -> list[SpooledBatch]:
    """Batches that the writer would write again for all requests."""
    found: list[SpooledBatch] = []
    for path in sorted(folder.glob("*.replay")):
        reader = ReplayReader(path)
        while batches := reader.read(rows):
            found += batches
            reader.delete([read_batch.sequence for read_batch in batches])
        reader.close()
        assert not path.exists()
    return found


def body_of(one: SpooledBatch) -> tuple[int, int, int, bytes]:
    record = encode(one.batch)
    return one.sequence, one.first_time, one.last_time, record.body


@given(
    st.lists(st.tuples(_INT32, st.integers(-(2**60), 2**60), st.floats(), st.integers(0, 2**32 - 1)), min_size=1),
    st.integers(1, 2**53),
    st.text(max_size=40),
)
def test_samples_come_back_to_the_bit(rows: list[tuple[int, int, float, int]], sequence: int, spool: str) -> None:
    sent = spooled(sequence, batch(rows))
    data = encode_record(spool, sent, T0)
    header = decode_header(data[:MAX_HEADER_BYTES])
    assert header is not None
    assert header.size + header.body_bytes == len(data)
    assert (header.rows, header.source_id, header.committed_at) == (len(rows), 1, T0)
    assert body_of(decode_body(header, data[header.size :])) == body_of(sent)


@pytest.mark.parametrize(
    "content",
    [
        EventBatch(7, T0, (Event("text", T0, 3, 0, "über", {"a": [1, None]}),)),
        GapBatch(7, T0, (Gap(T0, None, "stopped", (1, 2, 3)), Gap(T0, T0 + 5, "killed"))),
        count_batch([(0, "pulses", 4, 2), (5, "starts", 0, 1)], 7, digest=-5),
        count_batch([(0, "pulses", 4, 2)], 7),
    ],
    ids=lambda content: type(content).__name__,
)
def test_all_kinds_of_batches_come_back(tmp_path: Path, content: Batch) -> None:
    sent = spooled(9, content)
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "push.sqlite", [sent])])
    journal.close()
    (key,) = keys(tmp_path)
    assert (key.source_id, key.sequence) == sent.key, "the key of the table, which may be a digest"
    assert (key.first_time, key.last_time, key.received_at) == (sent.first_time, sent.last_time, T0)
    assert replay(tmp_path).rows == len(content)
    assert [body_of(read_batch) for read_batch in replayed(tmp_path)] == [body_of(sent)]


def test_what_the_other_member_wrote_is_kept_apart(tmp_path: Path) -> None:
    """Its keys are not in the database, and it is written again only on request."""
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "opcua.sqlite", [samples(1)])])
    journal.append([(tmp_path / "opcua.sqlite", [samples(2), samples(3)])], by_other=True)
    journal.close()
    assert [key.sequence for key in keys(tmp_path)] == [1]
    assert replay(tmp_path, by_other=True).batches == 2
    assert not has_requests(tmp_path, own_only=True)
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [2, 3]
    assert replay(tmp_path).batches == 3
    assert has_requests(tmp_path, own_only=True)


def test_a_torn_tail_costs_only_the_last_record(tmp_path: Path) -> None:
    """At each byte at which a write can end."""
    first, last = (encode_record("opcua", samples(number), T0) for number in (1, 2))
    path = tmp_path / "torn"
    for length in range(len(last)):
        path.write_bytes(first + last[:length])
        with closing(Segment(path)) as file:
            assert [file.read(*found).sequence for found in file.headers()] == [1]
    path.write_bytes(first + last)
    with closing(Segment(path)) as file:
        assert [file.read(*found).sequence for found in file.headers()] == [1, 2]


def test_damage_costs_only_its_record(tmp_path: Path) -> None:
    """At each byte of the record."""
    records = [encode_record("opcua", samples(number), T0) for number in (1, 2, 3)]
    path = tmp_path / "damaged"
    for place in range(len(records[1])):
        middle = bytearray(records[1])
        middle[place] ^= 0x10
        path.write_bytes(records[0] + middle + records[2])
        found = []
        with closing(Segment(path)) as file:
            for at, header in file.headers():
                try:
                    found.append(file.read(at, header).sequence)
                except SpoolCorrupt:
                    assert header.sequence == 2
        assert found == [1, 3], f"byte {place}"


@given(st.binary(max_size=600), st.integers(0, 600), st.integers(0, 600))
def test_whatever_is_in_a_segment_the_rest_is_read(
    tmp_path_factory: pytest.TempPathFactory, other: bytes, cut: int, to: int
) -> None:
    """Any bytes before, within and after a record."""
    record = encode_record("opcua", samples(1), T0)
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(other + record + other[:cut] + record[cut:to] + MAGIC + record)
    with closing(Segment(path)) as file:
        found = [file.read(*header) for header in file.headers()]
    assert len(found) in (2, 3)
    assert {read_batch.sequence for read_batch in found} == {1}


def test_a_replay_is_of_what_was_committed_in_a_time(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, OPTIONS)
    for number in range(1, 6):
        clock[0] = T0 + number * HOUR
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
    journal.close()
    assert len(segments(tmp_path)) == 5, "one each hour"
    report = replay(tmp_path, T0 + 2 * HOUR, T0 + 4 * HOUR)
    assert (report.batches, report.rows, report.first, report.last, report.begin) == (
        3, 9, T0 + 2 * HOUR, T0 + 4 * HOUR, T0 + HOUR,
    )  # fmt: skip
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [2, 3, 4]
    report = replay(tmp_path, T0 + 6 * HOUR)
    assert (report.batches, report.begin) == (0, T0 + HOUR)
    assert not list(tmp_path.glob("*.replay")), "there is nothing to do"
    clock[0] = T0 + 9 * HOUR
    assert replay(tmp_path).batches == 5
    assert [read_batch.sequence for read_batch in replayed(tmp_path, rows=1)] == [1, 2, 3, 4, 5]


def test_a_killed_writer_continues_a_replay_where_it_was(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, OPTIONS)
    for number in range(1, 5):
        clock[0] += HOUR
        journal.append([(tmp_path / "opcua.sqlite", [samples(10 * number), samples(10 * number + 1)])])
    journal.close()
    replay(tmp_path)
    (path,) = tmp_path.glob("*.replay")
    killed = ReplayReader(path)
    taken = [read_batch.sequence for read_batch in killed.read(9)]
    assert taken == [10, 11, 20]
    killed.delete(taken[:2])
    killed.delete(taken[2:])
    killed.read(3)
    killed.close()
    again = ReplayReader(path)
    assert again.rows == 8 * 3 - 9
    assert [read_batch.sequence for read_batch in again.read(10**9)] == [20, 21, 30, 31, 40, 41]
    again.close()


def test_a_damaged_batch_does_not_stop_a_replay(tmp_path: Path) -> None:
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "opcua.sqlite", [samples(number) for number in (1, 2, 3)])])
    journal.close()
    ((_, path),) = segments(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    replay(tmp_path)
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [1, 3]


def test_what_the_database_rejects_again_is_a_dead_letter(tmp_path: Path) -> None:
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "opcua.sqlite", [samples(1)]), (tmp_path / "modbus.sqlite", [samples(1)])])
    journal.close()
    replay(tmp_path)
    (path,) = tmp_path.glob("*.replay")
    reader = ReplayReader(path)
    assert len(reader.read(10**9)) == 2
    reader.dead_letter(1, "no such channel")
    letters = [dead_letter.read(letter) for letter in (tmp_path / dead_letter.FOLDER).glob("*.json")]
    assert {(letter.sequence, letter.record.rows) for letter in letters} == {(1, 3)}
    assert letters


def test_a_request_that_makes_no_sense_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.replay"
    path.write_text('{"since": "yesterday"}')
    reader = ReplayReader(path)
    assert reader.read(1) == []
    assert not path.exists()


def test_each_process_has_segments_of_its_own(tmp_path: Path, clock: list[int]) -> None:
    for number, back in ((1, 0), (2, 5 * HOUR)):  # the clock was set back between them
        clock[0] -= back
        journal = Journal(tmp_path, OPTIONS)
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
        journal.close()
    assert sequences_of(tmp_path) == [1, 2], "in order"
    assert [begin for begin, _ in segments(tmp_path)] == [T0, T0 + 1]
    assert replay(tmp_path, T0, T0 + 1).batches == 2


def test_a_clock_that_is_set_back_does_not_disorder_a_journal(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, OPTIONS)
    for number in range(1, 4):
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
        clock[0] -= HOUR
    journal.close()
    assert [key.committed_at for key in keys(tmp_path)] == [T0 + 2, T0 + 1, T0]


def test_what_was_committed_before_the_clock_was_set_back_is_written_again(tmp_path: Path, clock: list[int]) -> None:
    clock[0] = now_us() + HOUR
    journal = Journal(tmp_path, OPTIONS)
    for number in (1, 2):
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
        clock[0] = now_us()
    journal.close()
    assert replay(tmp_path, now_us()).batches == 2
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [1, 2]


def test_segments_that_begin_after_the_clock_was_set_back_are_replayed(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, replace_options(keep_bytes=16 * MIB))
    for number in range(1, 4):
        big = spooled(number, EventBatch(1, T0, (Event("text", T0, 1, 0, os.urandom(400_000).hex()),)))
        journal.append([(tmp_path / "opcua.sqlite", [big, big])])
        clock[0] = T0 - HOUR
    journal.close()
    assert len(segments(tmp_path)) == 3
    replay(tmp_path)
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [1, 1, 2, 2, 3, 3]


def test_a_clock_that_is_set_back_while_nothing_runs_does_not_disorder_a_journal(
    tmp_path: Path, clock: list[int]
) -> None:
    for number, at in enumerate((0, HOUR // 2, -HOUR), 1):
        clock[0] = T0 + at
        if number != 2:
            journal = Journal(tmp_path, OPTIONS)
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
    journal.close()
    assert sequences_of(tmp_path) == [1, 2, 3]
    replay(tmp_path, T0 + HOUR // 2)
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [2, 3]


# bounds


def test_old_segments_are_dropped(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, replace_options(keep=3 * 3600.0))
    for number in range(1, 10):
        clock[0] = T0 + number * HOUR
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
    assert sequences_of(tmp_path) == [6, 7, 8, 9], "nothing younger than 3 h is missing"
    clock[0] += 2 * HOUR
    journal.trim()
    assert sequences_of(tmp_path) == [8, 9]
    journal.close()


def test_what_waits_to_be_written_again_does_not_get_old(tmp_path: Path, clock: list[int]) -> None:
    journal = Journal(tmp_path, replace_options(keep=3600.0))
    journal.append([(tmp_path / "opcua.sqlite", [samples(1)])])
    replay(tmp_path, until_us=T0)
    clock[0] += 5 * HOUR
    journal.append([(tmp_path / "opcua.sqlite", [samples(2)])])
    assert sequences_of(tmp_path) == [1, 2]
    assert [read_batch.sequence for read_batch in replayed(tmp_path)] == [1]
    clock[0] += 5 * HOUR
    journal.append([(tmp_path / "opcua.sqlite", [samples(3)])])
    assert sequences_of(tmp_path) == [2, 3]
    journal.close()


def test_a_journal_has_at_most_its_bytes(tmp_path: Path) -> None:
    journal = Journal(tmp_path, replace_options(keep_bytes=MIB))
    for number in range(1, 200):
        content = os.urandom(16_000)
        event = EventBatch(1, T0, (Event("text", T0, 1, 0, content.hex()),))
        journal.append([(tmp_path / "push.sqlite", [spooled(number, event)])])
        assert journal.report().bytes <= MIB
    journal.close()
    assert sequences_of(tmp_path) == list(range(sequences_of(tmp_path)[0], 200)), "the oldest ones went"
    assert len(sequences_of(tmp_path)) > 45, "and no more than had to"


def test_a_journal_that_is_turned_off_goes(tmp_path: Path) -> None:
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "opcua.sqlite", [samples(1)])])
    journal.close()
    off = Journal(tmp_path, replace_options(keep=0.0))
    off.append([(tmp_path / "opcua.sqlite", [samples(2)])])
    off.trim()
    assert off.report().begin is None
    assert segments(tmp_path) == []


def test_what_a_collector_drops_is_not_written_to_any_more(tmp_path: Path) -> None:
    journal = Journal(tmp_path, OPTIONS)
    journal.append([(tmp_path / "opcua.sqlite", [samples(1)])])
    segments(tmp_path)[0][1].unlink()
    journal.append([(tmp_path / "opcua.sqlite", [samples(2)])])
    journal.close()
    assert sequences_of(tmp_path) == [2]


def test_a_journal_that_cannot_be_written_does_not_stop_ingest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "journal").write_text("a file where the folder belongs")
    journal = Journal(tmp_path, OPTIONS)
    for number in range(3):
        journal.append([(tmp_path / "opcua.sqlite", [samples(number)])])
        journal.trim()
    assert journal.report().problem == "File exists"
    assert [record.levelname for record in caplog.records] == ["ERROR"], "said once"
    (tmp_path / "journal").unlink()
    journal.append([(tmp_path / "opcua.sqlite", [samples(9)])])
    assert journal.report().problem is None
    assert sequences_of(tmp_path) == [9]
    journal.close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    other = tmp_path / "journal" / "notes.txt"
    other.write_text("mine")
    journal = Journal(tmp_path, replace_options(keep=0.0))
    journal.trim()
    assert other.exists()
    assert segment(tmp_path, T0).name == "20260921T141320.000000Z.journal"


def replace_options(**options: float) -> SpoolOptions:
    return OPTIONS.model_copy(update=options)
