"""Kinds of the channels that an import creates: those that are given, and those that the values of others resemble."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from core.batch import Int64s
from core.errors import OperationError
from core.formatting import names_text
from core.patterns import matches, no_match, unmatched
from core.samples import Samples
from core.status_codes import BAD

KINDS = ("analog", "counter", "discrete")
_RISES = 20  # of what never falls: it looks like a counter
_STATES = 8  # whole values, at most, of what looks like a state
_LARGEST_STATE = 15
_SAMPLES = 10  # of what looks like a state, at least


@dataclass(frozen=True, slots=True)
class GivenKinds:
    """Kinds of channels by their names, in which ``*`` stands for any text; of several, the last one counts."""

    by_name: dict[str, str] = field(default_factory=dict)

    def of(self, name: str) -> str | None:
        """The kind of a channel, if it is given."""
        return next((kind for pattern, kind in reversed(self.by_name.items()) if matches(name, pattern)), None)

    def require_used(self, names: Sequence[str]) -> None:
        """Raise OperationError for the kind of what is in no file."""
        if unused := unmatched(self.by_name, names):
            raise no_match("--kind", unused)


def parse_kinds(texts: Iterable[str]) -> GivenKinds:
    """Kinds of ``NAME=KIND``. Raises OperationError."""
    kinds = dict[str, str]()
    for text in texts:
        name, _, kind = text.rpartition("=")
        if not name or kind.lower() not in KINDS:
            raise OperationError(f"--kind: found {text!r}; legal: NAME=KIND, where KIND is {', '.join(KINDS)}")
        kinds[name] = kind.lower()
    return GivenKinds(kinds)


@dataclass(slots=True)
class ValueForms:
    """Forms of the good values of channels, as samples are added. Arrays are by channel."""

    samples: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    rises: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    falls: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    others: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # values that are not those of a state
    states: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))  # a bit for each

    def add(self, ordered: Samples, channels: int) -> None:
        """Add samples by channel and time; those of a portion may begin with the newest ones of the portion before."""
        for name in ("samples", "rises", "falls", "others", "states"):
            column = getattr(self, name)
            setattr(self, name, np.append(column, np.zeros(channels - len(column), np.int64)))
        good = ordered.status < BAD
        channel, value = ordered.channel[good], ordered.value[good]
        before, after = value[:-1], value[1:]
        is_same = channel[1:] == channel[:-1]
        is_state = (value == np.trunc(value)) & (value >= 0) & (value <= _LARGEST_STATE)
        self.samples += np.bincount(channel, minlength=channels)
        self.rises += np.bincount(channel[1:][is_same & (after > before)], minlength=channels)
        self.falls += np.bincount(channel[1:][is_same & (after < before)], minlength=channels)
        self.others += np.bincount(channel[~is_state], minlength=channels)
        np.bitwise_or.at(self.states, channel[is_state], 1 << value[is_state].astype(np.int64))

    def kind(self, channel: int) -> str:
        """The kind that a channel's values look like."""
        if self.rises[channel] >= _RISES and not self.falls[channel]:
            return "counter"
        n = int(self.states[channel]).bit_count()
        is_state = not self.others[channel] and 1 < n <= _STATES and self.samples[channel] >= _SAMPLES
        return "discrete" if is_state else "analog"

    def hints(self, places: Mapping[str, int]) -> Iterator[str]:
        """Lines for people about channels that become analog as nobody said their kind. ``places``: by name."""
        for kind, form in (
            ("counter", "never fall, as those of a counter"),
            ("discrete", "are few whole ones, as states"),
        ):
            if like := [name for name, place in places.items() if self.kind(place) == kind]:
                yield f"analog, though the values {form}: {names_text(like)}; --kind NAME={kind} says so"
