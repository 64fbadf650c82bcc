"""Channels whose earlier value is unknown are left out once, and read again behind it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.samples import NO_SAMPLES, Samples, joined
from history.sql.kernels.columns import RARE
from history.sql.sources.held import Last, Unknown, WithoutUnknown, preceded
from tests.unit.history.sql_samples import columns

_KNOWN_BY = 1000
_CHANNELS = st.dictionaries(  # channel → how many samples, and the time of the first one
    st.integers(1, 9), st.tuples(st.sampled_from([1, 2, RARE, RARE + 1]), st.integers(1, 2000)), max_size=6
)


def _samples(channels: dict[int, tuple[int, int]]) -> list[Samples]:
    return [
        columns([(number, first + i, float(i), 0) for i in range(n)]) for number, (n, first) in sorted(channels.items())
    ]


@given(_CHANNELS)
def test_each_sample_is_read_once(channels: dict[int, tuple[int, int]]) -> None:
    portions = _samples(channels)
    *results, last = WithoutUnknown(iter, _KNOWN_BY)(iter(portions))
    assert isinstance(last, Unknown)
    known = joined([one for one in results if isinstance(one, Samples)])
    expected = {number for number, (n, first) in channels.items() if n <= RARE and first > _KNOWN_BY}
    assert {*last.samples.channel.tolist()} == expected
    assert {*last.seen.tolist()} == channels.keys()
    both, every = joined([known, last.samples]).sorted(), joined(portions)
    assert both.channel.tolist() == every.channel.tolist()
    assert both.time.tolist() == every.time.tolist()


def test_last_samples_come_before_the_others() -> None:
    [one, two] = _samples({1: (3, 100), 2: (2, 1500)})
    last = Last.of(joined([one, two]))
    assert (last.samples.time.tolist(), last.n.tolist()) == ([102, 1501], [3, 2])
    later = columns([(1, 7000, 5.0, 0)])
    read = preceded([later], last.samples, 6000)
    assert list(zip(read.channel.tolist(), read.time.tolist(), read.value.tolist(), strict=True)) == [
        (1, 6000, 2.0),
        (1, 7000, 5.0),
        (2, 6000, 1.0),
    ]
    nothing = Last.of(NO_SAMPLES)
    assert (len(nothing.samples), len(nothing.n)) == (0, 0)
