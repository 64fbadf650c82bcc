"""Tracks sequence numbers of one subscription (OPC 10000-4, 5.14.1.1): received, on disk, missing."""

from __future__ import annotations

_LAST_SEQUENCE = 2**32 - 1  # then 1 again
_MOST_MISSING = 1000  # more cannot be requested one by one


def following(sequence: int) -> int:
    """The sequence number after ``sequence``."""
    return 1 if sequence >= _LAST_SEQUENCE else sequence + 1


def distance(start: int, end: int) -> int:
    """Number of steps from ``start`` to ``end``; very large if ``end`` is before ``start``."""
    return (end - start) % _LAST_SEQUENCE


class SequenceTracker:
    """Progress of one subscription. Everything before ``first`` is on disk, or recorded as lost."""

    def __init__(self, first: int = 1, complete_to: int = 0, portions: int = 0) -> None:
        self.first = first  # the lowest sequence number not on disk
        self.portions = portions  # of the message ``first`` that are on disk
        self.complete_to = complete_to  # µs, by the clock of sample times: what was published until then is on disk
        self.saved_first = first  # ``first`` as last saved: only earlier messages are acknowledged
        self.noted_first = first  # that of the last note that is to be saved
        self._next = first  # the next expected
        self._done: dict[int, int] = {}  # on disk, ``first`` or later → publish time

    @classmethod
    def read(cls, note: str) -> SequenceTracker:
        """Load from a :meth:`note`."""
        return cls(*map(int, note.split()))

    def note(self, portions: int = 0) -> str:
        """The state to be saved; ``portions``: with these of the message ``first``, which are saved at once."""
        self.noted_first = self.first
        portions = max(self.portions, portions)
        return f"{self.first} {self.complete_to} {portions}" if portions else f"{self.first} {self.complete_to}"

    def note_with(self, sequence: int, publish_time: int) -> str:
        """The state to be saved at once with the next message: a restarted process does not request that again."""
        self.noted_first = following(sequence)
        return f"{self.noted_first} {publish_time or self.complete_to}"

    def saved(self, first: int) -> None:
        """A note with this ``first`` is on disk. A later one, which may be on disk, can have less."""
        first = first if distance(first, self.noted_first) < _LAST_SEQUENCE // 2 else self.noted_first
        if distance(self.saved_first, first) < _LAST_SEQUENCE // 2:
            self.saved_first = first

    def arrived(self, sequence: int, keep_alive: bool = False) -> list[int] | None:
        """A message came: returns the missing ones before it, to be requested. None: too many.

        A keep-alive has the number of the next message and no data.
        """
        steps = distance(self._next, sequence)
        if steps >= _LAST_SEQUENCE - _MOST_MISSING:
            return []  # one from before, sent again
        missing: list[int] | None = []
        if steps > _MOST_MISSING:
            missing = None
            self.first, self.portions, self._done = sequence, 0, {}
        elif steps:
            missing = [self._next]
            for _ in range(steps - 1):
                missing.append(following(missing[-1]))
        self._next = sequence if keep_alive else following(sequence)
        return [s for s in missing if s not in self._done] if missing is not None else None

    def done(self, sequence: int, publish_time: int) -> None:
        """A message is on disk, or recorded as lost; ``publish_time``: 0 if more of the same time follows."""
        if distance(self.first, sequence) > _LAST_SEQUENCE // 2:
            return  # one from before, sent again
        self._done[sequence] = publish_time
        while self.first in self._done:
            self.complete_to = self._done.pop(self.first) or self.complete_to
            self.first, self.portions = following(self.first), 0

    def is_next(self, sequence: int) -> bool:
        """Return whether all messages before this one are on disk, or recorded as lost."""
        return not 0 < distance(self.first, sequence) < _LAST_SEQUENCE // 2

    def keep_alive(self, publish_time: int) -> None:
        """A keep-alive came: up to ``publish_time`` there is no more data, if everything received is on disk."""
        if self.first == self._next:
            self.complete_to = publish_time

    @property
    def awaited(self) -> int:
        """The sequence number of the next message that has not been received yet."""
        return self._next

    def restart(self) -> None:
        """Restart with another session: what is not on disk will be sent again."""
        self._next = self.first

    def can_be_acknowledged(self, sequence: int) -> bool:
        """Return whether the server may delete the message: even a restarted process would not request it."""
        return distance(sequence, self.saved_first) - 1 < _LAST_SEQUENCE // 2 and sequence != self.saved_first
