"""Copies are those that a loop over all windows finds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import groupby, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from core.samples import Samples, joined
from history.codec.row_groups import TIME
from history.sql.kernels.columns import listed
from history.sql.kernels.replays import PAIRS, Replays, proportions

BAD = 0x80000000


def expected(values: list[float], time: list[int], since: int, samples: int) -> list[list[tuple[int, int, int]]]:
    """Distance, first and last position of the parts of each copy."""
    steps = [math.nan, *(new - old for old, new in pairwise(values))]
    changed = [step != 0 and not math.isnan(step) for step in steps]
    tokens: list[object] = [f"{changed[0]}"]
    for place in range(1, len(values)):
        ratio = steps[place] / steps[place - 1] if changed[place - 1] and changed[place] else 0.0
        tokens.append(int(proportions(np.array([ratio]))[0]) if ratio else f"{changed[place]}")
    earlier = defaultdict[object, list[int]](list)
    repeated = []
    for last in range(15, len(values)):
        window = slice(last - 15, last + 1)
        if sum(changed[window]) < 12:
            continue
        places = earlier[frozenset(Counter(tokens[window]).items())]
        old = [place for place in places if place <= last - 16]
        if old and last >= since:
            repeated.append((last - old[-1], last))
        places.append(last)
    copies: list[list[tuple[int, int, int]]] = []
    windows = sorted((time[place] - time[place - distance], place, distance) for distance, place in repeated)
    for (shift, place, distance), before in zip(windows, [(-1, -1, -1), *windows], strict=False):
        if shift != before[0] or place - before[1] > 48:
            copies.append([])
        if copies[-1] and distance == before[2]:
            copies[-1][-1] = (distance, copies[-1][-1][1], place)
        else:
            copies[-1].append((distance, max([place - 15, *(last + 1 for _, _, last in copies[-1])]), place))
    return [copy for copy in copies if copy[-1][2] - copy[0][1] + 1 >= samples]


@example(seed=0, length=31, between=40, scale=1.0, since=1, spread=5, samples=16, block=1)  # two parts
@given(
    st.integers(0, 2**32),
    st.integers(0, 90),
    st.integers(0, 60),
    st.sampled_from([1.0, -2.0, 0.25]),
    st.integers(1, 200),
    st.sampled_from([2, 5, 50]),
    st.sampled_from([16, 20, 40]),
    st.sampled_from([1, 7, 32_768]),
)
def test_copies_are_those_of_a_loop(
    seed: int, length: int, between: int, scale: float, since: int, spread: int, samples: int, block: int
) -> None:
    random = np.random.default_rng(seed)
    original = random.integers(-spread, spread, 30 + length)
    copy = (original[10 : 10 + length] * scale).tolist()
    values = [float(one) for one in (*original, *random.integers(-spread, spread, between), *copy, *copy[:20])]
    status = np.where(random.random(len(values)) < 0.02, BAD, 0).astype(np.uint32)
    time = np.arange(len(values), dtype=np.int64) * 10
    of_channels = [Samples(np.full(len(values), n, np.int32), time, np.array(values), status) for n in (1, 2, 3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("history.sql.kernels.replays._BLOCK_SAMPLES", block)
        computed = Replays(since * 10, samples).compute(joined(of_channels))
    assert computed["channel_id"].tolist() == sorted(computed["channel_id"])
    good = np.flatnonzero(status == 0)
    kept = np.array(values)[good].tolist()
    wanted = expected(kept, time[good].tolist(), int(np.searchsorted(good, since)), samples)
    rows_of = [[row for row in listed(PAIRS, [computed]).to_pylist()[0] if row["channel_id"] == n] for n in (1, 2, 3)]
    rows = rows_of[1]
    assert [[without(row) for row in other] for other in rows_of] == [[without(row) for row in rows]] * 3
    moments = pa.array(time[good]).cast(TIME).to_pylist()
    place = {moment: number for number, moment in enumerate(moments)}
    segments = [
        [(place[row["time"]] - place[row["old_time"]], place[row["time"]]) for row in of_segment]
        for _, of_segment in groupby(rows, lambda row: row["segment"])
    ]
    assert segments == [
        [(distance, position) for distance, first, last in copy for position in range(first, last + 1)]
        for copy in wanted
    ]
    for row in rows:
        now, old = place[row["time"]], place[row["old_time"]]
        assert (row["value"], row["old_value"]) == (kept[now], kept[old])
        assert math.isnan(row["step"]) if now == 0 else row["step"] == kept[now] - kept[now - 1]
    for _, of_part in groupby(rows, lambda row: (row["segment"], place[row["time"]] - place[row["old_time"]])):
        whole = list(of_part)
        turns = [one["step"] * other["step"] < 0 for one, other in pairwise(whole)]
        assert [row["turns"] for row in whole] == [False, *turns]


def without(row: dict[str, object]) -> list[object]:
    return [f"{row[name]}" for name in row if name != "channel_id"]  # the first step is NaN


def test_a_copy_goes_on_over_samples_that_are_missing() -> None:
    values = np.random.default_rng(1).normal(size=400)
    values[300:] = values[100:200]
    time = np.arange(400, dtype=np.int64) * 10
    kept = np.setdiff1d(np.arange(400), [120, 121, 350, 375])
    part = Samples(np.full(len(kept), 1, np.int32), time[kept], values[kept], np.zeros(len(kept), np.uint32))
    rows = Replays(2500, 60).compute(part)
    assert set(rows["segment"]) == {0}
    assert set(rows["time"] - rows["old_time"]) == {2000}
    assert rows["time"][0] <= 3020
    assert rows["time"][-1] == 3990
    assert (rows["value"] == rows["old_value"]).all()


@pytest.mark.parametrize(("digits", "short", "long"), [(3, 15, 24), (0, 24, 100)])
def test_a_copy_is_as_long_as_chance_requires(digits: int, short: int, long: int) -> None:
    """The coarser a signal is, the longer."""
    values = np.random.default_rng(1).normal(size=20_000).round(digits)
    for length, is_found in ((short, False), (long, True)):
        copied = values.copy()
        copied[19_000 : 19_000 + length] = values[5_000 : 5_000 + length]
        time = np.arange(len(copied), dtype=np.int64)
        part = Samples(np.full(len(copied), 1, np.int32), time, copied, np.zeros(len(copied), np.uint32))
        found = Replays(15_000, None).compute(part)
        assert ({14_000} <= set(found["time"] - found["old_time"])) == is_found


@pytest.mark.parametrize("digits", [0, 1, 2, 6])
def test_signals_without_a_copy_have_none_by_chance(digits: int) -> None:
    random = np.random.default_rng(2)
    time = np.arange(100_000, dtype=np.int64)
    walk = np.cumsum(random.normal(size=(3, len(time))), axis=1)  # smooth, smoother and rough
    smooth = np.array(
        [np.convolve(walk[0], np.full(20, 0.05), "same"), walk[1], 20 * np.sin(time / 50) + 0.2 * walk[2]]
    )
    values = np.concatenate([*smooth, random.normal(size=len(time))]).round(digits)
    channel = np.repeat(np.arange(1, 5, dtype=np.int32), len(time))
    part = Samples(channel, np.tile(time, 4), values, np.zeros(len(values), np.uint32))
    found = Replays(50_000, None).compute(part)
    for number, segment in {*zip(found["channel_id"], found["segment"], strict=True)}:
        new, old = (
            found[name][(found["channel_id"] == number) & (found["segment"] == segment)]
            for name in ("value", "old_value")
        )
        fit = np.polyval(np.polyfit(old, new, 1), old)
        assert np.abs(new - fit).max() > 0.05 * np.median(np.abs(np.diff(new))), (number, len(new))


def test_without_samples_there_are_no_copies() -> None:
    assert listed(PAIRS, []).to_pylist() == [[]]


def test_proportions_are_those_of_scaled_copies() -> None:
    steps = np.array([-9.0, -4.0, -1.5, -1.0, -0.1, 0.1, 0.9, 1.0, 1.0625, 1.8, 2.0, 17.0])
    ratios = (steps[:, None] / steps).ravel()
    for scale in (3.0, 0.1, -7.7, 1e-9):
        scaled = steps * scale
        assert proportions((scaled[:, None] / scaled).ravel()).tolist() == proportions(ratios).tolist()
    apart = proportions(np.array([1.0, 1.2, 1.5, 2.0, 4.0, -1.0, -1.2]))
    assert len(set(apart.tolist())) == len(apart)
