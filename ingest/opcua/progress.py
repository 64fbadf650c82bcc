"""Sequence numbers of one subscription (OPC 10000-4, 5.14.1.1): what came, what is on disk, what is missing."""

from __future__ import annotations

_LAST_SEQUENCE = 2**32 - 1  # then 1 again
_MOST_MISSING = 1000  # a larger step is no loss that could be asked for one by one


def following(sequence: int) -> int:
    """The sequence number after ``sequence``."""
    return 1 if sequence >= _LAST_SEQUENCE else sequence + 1


def distance(start: int, end: int) -> int:
    """Steps from ``start`` on to ``end``; many, where ``end`` lies before."""
    return (end - start) % _LAST_SEQUENCE


class Progress:
    """How far a subscription has come. All before ``first`` is on disk, or on record as lost."""

    def __init__(self, first: int = 1, complete_to: int = 0) -> None:
        self.first = first  # the lowest sequence number that is not on disk
        self.complete_to = complete_to  # µs, publish time up to which nothing is outstanding
        self.noted = first  # what ``first`` was when it was last written to disk: only what lies before is forgotten
        self._next = first  # the one to come
        self._done: dict[int, int] = {}  # on disk, at ``first`` or beyond → publish time

    @classmethod
    def read(cls, note: str) -> Progress:
        """From what :meth:`note` gave."""
        first, complete_to = note.split()
        return cls(int(first), int(complete_to))

    def note(self) -> str:
        """To be kept on disk."""
        return f"{self.first} {self.complete_to}"

    def arrived(self, sequence: int, keep_alive: bool = False) -> list[int] | None:
        """A message came; which before it did not, and are expected no more but by asking. None: too many to ask for.

        A keep-alive has the number of the next message, and no data.
        """
        steps = distance(self._next, sequence)
        if steps >= _LAST_SEQUENCE - _MOST_MISSING:
            return []  # one from before, sent again
        missing: list[int] | None = []
        if steps > _MOST_MISSING:
            missing = None
            self.first, self._done = sequence, {}
        elif steps:
            missing = [self._next]
            for _ in range(steps - 1):
                missing.append(following(missing[-1]))
        self._next = sequence if keep_alive else following(sequence)
        return [s for s in missing if s not in self._done] if missing is not None else None

    def done(self, sequence: int, publish_time: int) -> None:
        """A message is on disk, or on record as lost; ``publish_time`` is 0 where more of that time is outstanding."""
        if distance(self.first, sequence) > _LAST_SEQUENCE // 2:
            return  # one from before, sent again
        self._done[sequence] = publish_time
        while self.first in self._done:
            self.complete_to = max(self.complete_to, self._done.pop(self.first))
            self.first = following(self.first)

    def quiet(self, publish_time: int) -> None:
        """A keep-alive came: up to ``publish_time`` there is nothing else, if all that came is on disk."""
        if self.first == self._next:
            self.complete_to = max(self.complete_to, publish_time)

    def again(self) -> None:
        """Another session takes over: what is not on disk is to come once more."""
        self._next = self.first

    def may_be_forgotten(self, sequence: int) -> bool:
        """Whether the server need not keep the message: even a process that starts anew would not ask for it."""
        return distance(sequence, self.noted) - 1 < _LAST_SEQUENCE // 2 and sequence != self.noted
