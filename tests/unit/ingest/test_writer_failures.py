"""Failures of the database, in one table; waits; addresses of a DSN; the division of a group."""

from __future__ import annotations

from pathlib import Path

import asyncpg
import pytest
from asyncpg import exceptions as pg

from core.batch import Batch, Event, EventBatch, Gap, GapBatch, SampleBatch
from core.database import addresses
from core.time_limits import TimeLimits
from ingest.spool.format import SpooledBatch
from ingest.writer.bisect import MOST_DAYS, Piece, bisect, split_by_days, undivided
from ingest.writer.transaction.failures import Failure, backoffs, classify, exceeds_limit, timed_out
from ingest.writer.transaction.group import assemble
from tests.samples import T0, batch

LIMITS = TimeLimits(future=86400.0, oldest=3650 * 86400.0)


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (ConnectionRefusedError(), "transient"),
        (TimeoutError(), "transient"),
        (pg.ConnectionDoesNotExistError(), "transient"),
        (pg.AdminShutdownError(), "transient"),
        (pg.CannotConnectNowError(), "transient"),
        (pg.TooManyConnectionsError(), "transient"),
        (pg.DeadlockDetectedError(), "transient"),
        (pg.SerializationError(), "transient"),
        (pg.LockNotAvailableError(), "transient"),
        (pg.QueryCanceledError(), "transient"),
        (pg.DiskFullError(), "transient"),
        (pg.OutOfMemoryError(), "transient"),
        (pg.ReadOnlySQLTransactionError(), "transient"),
        (pg.InterfaceError("connection is closed"), "transient"),
        (pg.TargetServerAttributeNotMatched(), "transient"),
        (pg.InvalidCachedStatementError(), "transient"),
        (pg.UndefinedTableError(), "configuration"),
        (pg.ConfigurationLimitExceededError(), "configuration"),
        (pg.ObjectNotInPrerequisiteStateError(), "configuration"),
        (pg.UndefinedFileError(), "configuration"),
        (pg.InsufficientPrivilegeError(), "configuration"),
        (pg.InvalidPasswordError(), "configuration"),
        (pg.InvalidCatalogNameError(), "configuration"),
        (pg.InvalidSchemaNameError(), "configuration"),
        (pg.IndexCorruptedError(), "configuration"),
        (pg.ClientConfigurationError("no such option"), "configuration"),
        (pg.CheckViolationError(), "poison"),
        (pg.ForeignKeyViolationError(), "poison"),
        (pg.UniqueViolationError(), "poison"),
        (pg.TransactionIntegrityConstraintViolationError(), "poison"),
        (pg.DatetimeFieldOverflowError(), "poison"),
        (pg.CharacterNotInRepertoireError(), "poison"),
        (pg.RaiseError(), "poison"),
        (pg.ProgramLimitExceededError(), "poison"),
        (pg.InternalServerError(), "poison"),
        (pg.DataError("value out of int32 range"), "poison"),
        (OverflowError(), "poison"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_database_errors_are_classified(error: Exception, failure: Failure) -> None:
    assert classify(error) == failure


def test_every_class_of_sqlstate_has_an_answer() -> None:
    known = [
        error
        for error in vars(pg).values()
        if isinstance(error, type) and issubclass(error, asyncpg.PostgresError) and error.sqlstate
    ]
    assert len(known) > 200
    answers = {error.sqlstate: classify(error()) for error in known}
    assert {answers[state] for state in answers if state.startswith(("22", "23", "P0"))} == {"poison"}
    assert {answers[state] for state in answers if state.startswith(("28", "42"))} == {"configuration"}
    assert {answers[s] for s in answers if s.startswith(("08", "53")) and s != "53400"} == {"transient"}


def test_timeouts_are_recognised() -> None:
    assert timed_out(TimeoutError())
    assert timed_out(pg.QueryCanceledError())
    assert timed_out(pg.LockNotAvailableError())
    assert not timed_out(pg.DeadlockDetectedError())
    assert exceeds_limit(pg.OutOfMemoryError())
    assert exceeds_limit(pg.ConfigurationLimitExceededError())
    assert not exceeds_limit(pg.DiskFullError())
    assert not exceeds_limit(pg.TooManyConnectionsError())


def test_backoff_grows_up_to_a_limit_with_full_jitter() -> None:
    def waits(failure: Failure, nth: int) -> list[float]:
        found = []
        for _ in range(300):
            backoff = backoffs()[failure]
            found.append([backoff.next() for _ in range(nth)][-1])
        return found

    assert max(waits("transient", 1)) <= 0.2
    late = waits("transient", 30)
    assert 4 < max(late) <= 5
    assert min(late) < 1, "full jitter: nobody comes back in step"
    assert max(waits("configuration", 1)) > 2
    assert 30 < max(waits("configuration", 30)) <= 60


def test_each_address_of_a_dsn_has_its_own_connect_timeout() -> None:
    dsn = "postgresql://u:p%40@h1:5432,[::1]:5433/plant?target_session_attrs=read-write"
    assert addresses(dsn) == [
        "postgresql://u:p%40@h1:5432/plant?target_session_attrs=read-write",
        "postgresql://u:p%40@[::1]:5433/plant?target_session_attrs=read-write",
    ]
    assert addresses("postgresql:///plant?host=/run/postgresql") == ["postgresql:///plant?host=/run/postgresql"]


def _isolate(piece: Piece, bad: set[object]) -> tuple[list[Piece], int]:
    """Divide until only what is in ``bad`` is refused, as the writer does; the pieces that landed, and attempts."""
    waiting, landed, attempts = [piece], [], 0
    while waiting:
        piece = waiting.pop(0)
        attempts += 1
        if bad & set(_rows(piece)):
            waiting = bisect(piece, LIMITS, pg.CheckViolationError("refused by the test"), poison=True) + waiting
        else:
            landed.append(piece)
    return landed, attempts


def _rows(piece: Piece) -> list[object]:
    group = piece.group
    samples = group.samples.value.tolist()
    gaps = [(g.from_time, c) for batch in group.gaps() for g in batch.gaps for c in g.channel_ids or (None,)]
    return [*samples, *(event.text for _, event in group.events), *gaps]


def test_bisecting_quarantines_only_refused_rows() -> None:
    samples = [
        SpooledBatch(i, 0, 0, batch([(1, 100 * i + j, float(100 * i + j), 0) for j in range(100)])) for i in range(8)
    ]
    events = SpooledBatch(8, 0, 0, EventBatch(1, T0, [Event("text", T0 + i, 1, 0, str(i)) for i in range(9)]))
    gaps = SpooledBatch(9, 0, 0, GapBatch(1, T0, (Gap(T0, None, "stale", (1, 2, 3)), Gap(T0 + 1, T0 + 2, "stale"))))
    group = assemble([(Path("a"), samples[:4]), (Path("b"), [*samples[4:], events, gaps])], LIMITS)
    bad: set[object] = {250.0, 251.0, 799.0, "4", (T0, 2)}
    landed, attempts = _isolate(undivided(group), bad)
    assert sorted(map(str, (row for piece in landed for row in _rows(piece)))) == sorted(
        map(str, set(_rows(undivided(group))) - bad)
    )
    assert attempts < 120
    complete = [spooled.sequence for piece in landed for _, of_file in piece.complete for spooled in of_file]
    assert sorted(complete) == list(range(10))
    kept_out = [row for piece in landed for row in piece.group.quarantined]
    assert [row.value for row in kept_out if row.value is not None] == [250.0, 251.0, 799.0]
    assert {key for row in kept_out for key in row.content} == {"event", "gap"}
    assert {row.database_error["sqlstate"] for row in kept_out} == {"23514"}
    assert len({row.id for row in kept_out}) == len(kept_out) == len(bad)


def test_split_batch_keeps_the_order_of_statements() -> None:
    refused = GapBatch(1, T0, tuple(Gap(T0, T0 + i, "stale", (1,)) for i in range(8)))
    revisions: dict[int | None, int] = {}
    waiting = [undivided(assemble([(Path("a"), [SpooledBatch(1, 0, 0, refused)])], LIMITS))]
    while waiting:
        piece = waiting.pop()
        (of_piece,) = piece.group.gaps() or (None,)
        if of_piece is None:
            continue
        if len(of_piece) > 1:
            waiting += bisect(piece, LIMITS, TimeoutError(), poison=False)
        else:
            revisions[of_piece.gaps[0].to_time] = of_piece.received_at
    assert [revisions[T0 + i] for i in range(8)] == [T0 + i for i in range(8)]


def test_single_slow_row_is_not_split() -> None:
    piece = undivided(assemble([(Path("a"), [SpooledBatch(1, 0, 0, batch([(1, 0, 0.0, 0)]))])], LIMITS))
    assert bisect(piece, LIMITS, TimeoutError(), poison=False) == [piece]
    assert isinstance(piece.group.batches()[0].batch, SampleBatch)


DAY_US = 86_400_000_000


def test_group_of_few_days_is_written_at_once() -> None:
    group = assemble([(Path("a"), [SpooledBatch(i, 0, 0, batch([(1, i, 0.0, 0)])) for i in range(9)])], LIMITS)
    assert [piece.group for piece in split_by_days(group, LIMITS)] == [group]


def test_many_days_are_written_in_parts_live_data_first() -> None:
    years = batch([(1, -DAY_US * i, float(i), 0) for i in (*range(3600), 4000)])  # the last is too old
    one_a_day = [batch([(2, -DAY_US * i, 10_000.0 + i, 0)]) for i in range(150)]
    events = EventBatch(1, T0, [Event("text", T0 - DAY_US * i, 1, 0, str(i)) for i in range(250)])
    live = batch([(3, 0, -1.0, 0)])
    gaps = GapBatch(1, T0, (Gap(T0 - 3000 * DAY_US, T0, "stale", (9,)),))
    content: list[Batch] = [years, *one_a_day, events, gaps, live]
    batches = [SpooledBatch(i, 0, 0, b) for i, b in enumerate(content)]
    group = assemble([(Path("a"), batches)], LIMITS)
    pieces = split_by_days(group, LIMITS)
    assert -1.0 in _rows(pieces[0])
    assert sorted(map(str, (row for piece in pieces for row in _rows(piece)))) == sorted(
        map(str, _rows(undivided(group)))
    )
    for piece in pieces:
        times = [event.time for _, event in piece.group.events]
        times += piece.group.samples.time.tolist()
        assert len({time // DAY_US for time in times}) <= MOST_DAYS
    complete = [spooled.sequence for piece in pieces for _, of_file in piece.complete for spooled in of_file]
    assert sorted(complete) == list(range(len(batches)))
    assert [row.reason for piece in pieces for row in piece.group.quarantined] == ["ancient"]
    # A batch is complete with the last of its pieces.
    (last,) = (i for i, piece in enumerate(pieces) if 0 in [b.sequence for _, f in piece.complete for b in f])
    assert all(0 not in [b.sequence for _, f in piece.group.batches_by_file for b in f] for piece in pieces[last:])
    assert len(pieces) < 36 + 1 + 3 + 1 + 6
