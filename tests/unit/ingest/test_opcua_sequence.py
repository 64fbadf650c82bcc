"""Sequence numbers of a subscription: whatever order things come in, nothing is forgotten before it is on disk."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.opcua.subscription.sequence import SequenceTracker, distance, following

LAST = 2**32 - 1


def test_sequence_number_rolls_over() -> None:
    assert following(LAST) == 1
    assert distance(LAST, 1) == 1
    assert SequenceTracker(LAST - 1).arrived(2) == [LAST - 1, LAST, 1]


def test_keep_alive_carries_the_next_sequence_number() -> None:
    progress = SequenceTracker(5)
    assert progress.arrived(5, keep_alive=True) == []
    assert progress.arrived(5) == []
    assert progress.arrived(8, keep_alive=True) == [6, 7]
    assert progress.arrived(8) == []


def test_republished_message_is_no_loss() -> None:
    progress = SequenceTracker(5)
    progress.arrived(5)
    assert progress.arrived(5) == progress.arrived(4) == []
    assert progress.arrived(6) == []


def test_sequence_jump_too_long_to_republish() -> None:
    progress = SequenceTracker(5)
    assert progress.arrived(5_000_000) is None
    progress.done(5_000_000, 7)
    assert (progress.first, progress.complete_to) == (5_000_001, 7)


def test_restart_continues_with_messages_not_yet_durable() -> None:
    progress = SequenceTracker(5)
    for sequence in (5, 6, 7):
        progress.arrived(sequence)
    progress.done(5, 50)
    progress.done(7, 70)
    again = SequenceTracker.read(progress.note())
    assert (again.first, again.complete_to) == (6, 50)
    assert again.arrived(8, keep_alive=True) == [6, 7], "7 as well: nothing says that it is on disk"
    progress.restart()
    assert progress.arrived(8, keep_alive=True) == [6], "this one still knows"


@given(
    st.integers(1, LAST),
    st.lists(st.booleans(), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
    st.integers(0, 40),
)
def test_only_messages_no_new_process_needs_are_forgotten(
    start: int, lost: list[bool], random: object, durable: int
) -> None:
    """Messages are lost on the way at will, become durable in any order, and the note is written at any time."""
    progress = SequenceTracker(start)
    outstanding: list[int] = []
    sent = []
    number = start
    for is_lost in lost:
        sent.append(number)
        if not is_lost:
            missing = progress.arrived(number)
            assert missing is not None
            outstanding += [*missing, number]
        number = following(number)
    missing = progress.arrived(number, keep_alive=True)
    assert missing is not None
    outstanding += missing
    assert outstanding == sent, "each is expected, or asked for, once"
    random.shuffle(outstanding)  # type: ignore[attr-defined]
    on_disk: set[int] = set()
    for sequence in outstanding[:durable]:
        progress.note()
        progress.saved(progress.first)  # a note is on disk with what was known before
        progress.done(sequence, 1)
        on_disk.add(sequence)
        fresh = SequenceTracker.read(f"{progress.saved_first} 0")
        asked = set(fresh.arrived(number, keep_alive=True) or [])
        forgotten = {s for s in sent if progress.can_be_acknowledged(s)}
        assert forgotten <= on_disk
        assert not forgotten & asked
        assert set(sent) - on_disk <= asked, "what is not on disk is asked for"


@given(st.integers(1, LAST), st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_messages_noted_with_themselves_are_not_requested_again(start: int, steps: list[tuple[bool, bool]]) -> None:
    """Messages are appended with their notes, in order, and land in order. ``steps``: (append or land, is whole)."""
    progress = SequenceTracker(start)
    appended: list[tuple[int, int, str]] = []  # sequence, ``first`` of its note, and the note
    landed = 0
    number = start
    for appends, is_whole in steps:
        if appends:
            progress.arrived(number)
            whole = is_whole and progress.first == number
            note = progress.note_with(number, 1) if whole else progress.note()
            appended.append((number, progress.noted_first, note))
            number = following(number)
        elif landed < len(appended):
            sequence, first, _ = appended[landed]
            progress.saved(first)
            progress.done(sequence, 1)
            landed += 1
        for on_disk in range(landed, len(appended) + 1):  # more can be there than is known
            fresh = SequenceTracker.read(appended[on_disk - 1][2] if on_disk else f"{start} 0")
            asked = set(fresh.arrived(number, keep_alive=True) or [])
            assert {sequence for sequence, *_ in appended[on_disk:]} <= asked, "what is not on disk is asked for"
            forgotten = {sequence for sequence, *_ in appended if progress.can_be_acknowledged(sequence)}
            assert not forgotten & asked


@given(st.integers(1, LAST), st.permutations(range(12)))
def test_message_is_next_once_all_before_it_are_done(start: int, order: list[int]) -> None:
    sequences = [start]
    for _ in order[1:]:
        sequences.append(following(sequences[-1]))
    progress = SequenceTracker(start)
    done: set[int] = set()
    for number in order:
        for k, sequence in enumerate(sequences):
            assert progress.is_next(sequence) == done.issuperset(range(k))
        progress.done(sequences[number], 1)
        done.add(number)


def test_message_followed_by_others_completes_nothing() -> None:
    """Values that a server queued before the first message of a run may be in the last one."""
    progress = SequenceTracker(5, 40)
    progress.done(5, 0)
    assert (progress.first, progress.complete_to) == (6, 40)
    progress.done(6, 60)
    assert (progress.first, progress.complete_to) == (7, 60)
