"""Departures of units: in how many buckets of usual operation, of which channels, and how far."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from core.batch import Float64s
from history.sql.kernels.departures import Departures
from history.sql.kernels.reference import (
    CONSTANT,
    DRIFTING,
    JUDGED,
    LEFT_OUT,
    NO_SAMPLES,
    SHORT_REFERENCE,
    UNLIKE,
)
from history.sql.kernels.unit_means import UnitMeans

_IDS = np.arange(10, 18, dtype=np.int32)


def values(seed: int, n: int, channels: int = 8) -> Float64s:
    """Channels that follow two causes, with noise."""
    random = np.random.default_rng(seed)
    causes, weights = random.normal(size=(n, 2)), np.random.default_rng(1).normal(size=(2, channels))
    return causes @ weights + random.normal(0, 0.3, (n, channels))


def rows(reference: Float64s, later: Float64s, alarm_every: int | None = None) -> list[dict[str, Any]]:
    """Departures."""
    return [row for row in of_unit(reference, later, alarm_every) if row.get("verdict") is None]


def verdicts(reference: Float64s, later: Float64s) -> list[int]:
    return [row["verdict"] for row in of_unit(reference, later) if row.get("verdict") is not None]


def of_unit(reference: Float64s, later: Float64s, alarm_every: int | None = None) -> list[dict[str, Any]]:
    kernel = Departures(1000, 1000 - 10 * len(reference), 10, 10 * (alarm_every or 20 * len(later)))
    return list(kernel.of_unit(UnitMeans(3, np.arange(10, 10 + reference.shape[1], dtype=np.int32), reference, later)))


def test_usual_operation_departs_about_as_often_as_is_accepted() -> None:
    departures = [row for seed in range(60) for row in rows(values(seed, 300), values(1000 + seed, 300))]
    assert len(departures) <= 9, departures  # 3 are expected


@pytest.mark.parametrize("channel", range(8))
def test_a_broken_relation_departs_at_once_by_its_channel(channel: int) -> None:
    later = values(2, 100)
    later[40:60, channel] += 6
    [row] = rows(values(1, 300), later)
    assert (row["unit"], row["from_time"], row["to_time"]) == (3, 1400, 1600)
    assert row["channels"][0] == _IDS[channel]
    assert row["shares"][0] > 0.3
    assert row["score"] > 2


def test_a_far_cause_departs_by_t2() -> None:
    later = values(2, 100)
    later[-10:] += 8 * np.random.default_rng(1).normal(size=(2, 8))[0]
    [row] = rows(values(1, 300), later)
    assert (row["from_time"], row["to_time"], row["is_spe"]) == (1900, None, False)


def test_outliers_of_the_reference_do_not_hide_a_departure() -> None:
    reference, later = values(1, 300), values(2, 100)
    reference[[20, 90, 200], 3] = 1e6
    later[40:, 5] += 5
    [row] = rows(reference, later)
    assert (row["from_time"], row["channels"][0]) == (1400, _IDS[5])


def test_neither_unit_nor_zero_matters() -> None:
    reference, later = values(1, 300), values(2, 100)
    later[40:, 5] += 5
    scale, zero = np.logspace(-6, 6, 8), np.linspace(-1e3, 1e3, 8)
    [one], [other] = rows(reference, later), rows(reference * scale + zero * scale, later * scale + zero * scale)
    assert one["channels"][0] == other["channels"][0]
    assert one["score"] == pytest.approx(other["score"], rel=1e-6)


def test_what_is_hardly_off_an_exact_relation_has_not_departed() -> None:
    reference, later = values(1, 300, 1), values(2, 100, 1)
    reference, later = np.hstack([reference, 2 * reference]), np.hstack([later, 2 * later])
    later[40:, 1] += 1e-6
    assert rows(reference, later) == []
    later[40:, 1] += 1
    [row] = rows(reference, later)
    assert row["from_time"] == 1400
    assert 2 < row["score"] < 1e5  # of rounding errors as the limit it had thirteen digits


def test_more_channels_than_buckets() -> None:
    random = np.random.default_rng(1)
    reference, later = random.normal(size=(60, 400)), random.normal(size=(40, 400))
    later[20:, 7] += 100
    departures = rows(reference, later)
    clearest = max(departures, key=lambda row: row["score"])
    assert (clearest["from_time"], clearest["channels"][0], clearest["judged"]) == (1200, 17, 400)


def test_a_unit_of_thousands_of_channels_takes_no_memory_of_their_pairs() -> None:
    reference, later = values(1, 60, 1500), values(2, 20, 1500)
    later[10:, 7] += 6
    tracemalloc.start()
    try:
        [row] = rows(reference, later)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (row["from_time"], row["channels"][0]) == (1100, 17)
    assert peak < 1500 * 1500 * 8


def test_of_a_single_channel_nothing_is_told_by_others() -> None:
    later = values(2, 30, 1)
    later[20:] += 20
    [row] = rows(values(1, 300, 1), later)
    assert not row["is_spe"]


def test_what_is_missing_is_not_far_off() -> None:
    reference, later = values(1, 300), values(2, 100)
    reference[::3, 2] = np.nan
    later[10:50] = np.nan
    later[60:, 4] = np.nan
    assert rows(reference, later) == []
    reference[:, 2] = 5.0
    later[:, 2] = 500.0
    assert rows(reference, later) == [], "a constant channel has no spread"


def loaded(seed: int, load: Float64s) -> Float64s:
    """Channels of :func:`values` whose first cause follows a load, too."""
    weights: Float64s = np.random.default_rng(1).normal(size=(2, 8))[0]
    return values(seed, len(load)) + 20 * load[:, None] * weights


def parts(reference: Float64s, later: Float64s) -> list[tuple[Any, ...]]:
    """Verdicts on the parts of a reference."""
    fields = ("verdict", "unlike_from", "unlike_to", "like_from", "like_to")
    said = [row for row in of_unit(reference, later) if row.get("unlike_from") is not None]
    return [tuple(row[field] for field in fields) for row in said if row["channel_id"] == 10]


def test_what_was_before_a_change_of_load_is_left_out() -> None:
    reference, later = loaded(1, np.repeat([1.0, 0.0], [120, 180])), values(2, 100)
    assert rows(reference, later) == []
    later[40:60, 3] += 6
    [row] = rows(reference, later)
    assert (row["from_time"], row["to_time"], row["channels"][0]) == (1400, 1600, 13)
    assert parts(reference, later) == [(LEFT_OUT, [-2000], [-800], None, None)]


@pytest.mark.parametrize(
    ("load", "unlike_from", "unlike_to", "like"),
    [
        (np.repeat([0.0, 1.0], [180, 120]), [-200], [1000], (-2000, -200)),
        (np.repeat([0.0, 1.0], [240, 60]), [400], [1000], (-2000, 400)),
        (np.repeat([1.0, 0.0, 1.0], [60, 180, 60]), [-2000, 400], [-1400, 1000], (-1400, 400)),
    ],
)
def test_a_better_reference_is_told(
    load: Float64s, unlike_from: list[int], unlike_to: list[int], like: tuple[int, int]
) -> None:
    assert parts(loaded(1, load), values(2, 100)) == [(UNLIKE, unlike_from, unlike_to, *like)]


def test_a_better_reference_is_like_the_interval_or_there_is_none() -> None:
    reference = loaded(1, np.repeat([0.0, 1.0], [240, 60]))
    assert parts(reference, loaded(2, np.full(100, -1.0))) == [(UNLIKE, [400], [1000], None, None)]
    assert parts(reference, loaded(2, np.repeat([0.0, 1.0], [60, 40]))) == [], "the interval has both loads, too"


def test_of_a_short_interval_no_part_is_known_to_be_like_it() -> None:
    load = np.repeat([0.0, 1.0], [240, 60])
    assert parts(loaded(1, load), values(2, 100)[:4]) == [(UNLIKE, [400], [1000], None, None)]


def test_a_better_reference_has_enough_means() -> None:
    load = np.repeat([1.0, 0.0, 1.0], [12, 36, 12])
    assert [like for *_, like, _ in parts(loaded(1, load), values(2, 100))] == [None]


def test_what_is_said_of_each_channel() -> None:
    reference, later = values(1, 300), values(2, 100)
    reference[:200, 0] = np.nan
    reference[:, 1] = 7.0
    later[:, 2] = np.nan
    reference[:, 3] += np.linspace(0, 12, 300)
    assert verdicts(reference, later) == [SHORT_REFERENCE, CONSTANT, NO_SAMPLES, DRIFTING, *[JUDGED] * 4]
    assert verdicts(reference[:49], later) == verdicts(np.full((300, 8), np.nan), later) == [SHORT_REFERENCE] * 8
    assert rows(reference[:49], later) == []


def on_and_off(seed: int, times: int) -> Float64s:
    """Twelve channels of a unit that is on now and then, each with a start, and a damper with its command."""
    random, parts = np.random.default_rng(seed), []
    for off, on in random.integers(40, 160, (times, 2)):
        bucket = np.arange(off + on) - off
        start = np.where((bucket >= 0) & (bucket < 4), np.exp(-bucket.clip(0) / 1.5), 0.0)[:, None]
        unit = (
            50.0 * (bucket >= 0)[:, None] + start * random.uniform(20, 60, 12) + random.normal(0, 0.3, (off + on, 12))
        )
        command = (bucket >= 0) * (15 + 10 * np.abs(np.sin(bucket / 15)))
        parts.append(np.column_stack([unit, command, command + random.normal(0, 0.3, off + on)]))
    return np.concatenate(parts)


def test_a_damper_that_leaves_its_command_departs_beside_channels_with_starts() -> None:
    reference, later = on_and_off(1, 10), on_and_off(2, 3)
    assert rows(reference, later) == []
    begin = int(np.flatnonzero(later[:, 12] > 15)[10])
    later[begin : begin + 30, 13] += 6
    [row] = rows(reference, later)
    assert (row["from_time"], row["to_time"]) == (1000 + 10 * begin, 1300 + 10 * begin)
    assert set(row["channels"][:2]) == {22, 23}
