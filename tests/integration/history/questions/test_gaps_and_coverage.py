"""gaps_and_coverage: what is missing, what was backfilled, and silences without a record."""

from __future__ import annotations

import numpy as np
import pytest

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1000.0)


async def test_coverage_tells_missing_from_complete_channels(recorded: Recording) -> None:
    kept = (_SECONDS < 100) | (_SECONDS >= 300)
    for name in ("whole", "gapped", "silent", "backfilled", "failing", "empty"):
        await recorded.channel(name, interval=1.0)
    await recorded.samples("whole", _SECONDS, _SECONDS)
    await recorded.samples("gapped", _SECONDS[kept], _SECONDS[kept])
    await recorded.gap("gapped", 99, 300)
    await recorded.gap("gapped", 200, 250)  # within the other: counts once
    await recorded.gap("gapped", 2000, 2100)  # later
    await recorded.samples("silent", _SECONDS[kept], _SECONDS[kept])
    await recorded.samples("backfilled", _SECONDS, _SECONDS)
    await recorded.gap("backfilled", 400, 500, backfilled=True)
    await recorded.samples("failing", _SECONDS[:990], _SECONDS[:990])
    await recorded.samples("failing", _SECONDS[990:], _SECONDS[990:], BAD)
    await recorded.samples("on_change", [0], [1])  # reports changes: its silence is none
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000))
    found = {r["channel"]: r for r in rows}
    assert [r["channel"] for r in rows] == ["empty", "gapped", "silent", "backfilled", "failing"]
    assert found["gapped"]["covered_percent"] == pytest.approx(79.9)
    assert (found["gapped"]["gaps"], found["gapped"]["missing_seconds"], found["gapped"]["unrecorded"]) == (1, 201, 0)
    assert found["gapped"]["reasons"] == "disconnected"
    assert (found["silent"]["gaps"], found["silent"]["unrecorded"], found["silent"]["unrecorded_seconds"]) == (
        0,
        1,
        201,
    )
    assert (found["backfilled"]["covered_percent"], found["backfilled"]["backfilled_seconds"]) == (100, 100)
    assert (found["failing"]["samples"], found["failing"]["good"]) == (1000, 990)
    assert (found["empty"]["samples"], found["empty"]["covered_percent"]) == (0, 0)
    every = await recorded.ask("gaps_and_coverage", at(0), at(1000), complete=True)
    assert {r["channel"] for r in every} == {*found, "whole", "on_change"}


async def test_rounded_coverage_hides_no_gap(recorded: Recording) -> None:
    await recorded.channel("none", interval=1.0)
    await recorded.gap("none", -100, 0.2)
    await recorded.channel("most")
    await recorded.samples("most", [-1], [1])
    await recorded.gap("most", 3.1, 3.101)
    rows = await recorded.ask("gaps_and_coverage", at(0), at(100.1))
    assert [(r["channel"], str(r["covered_percent"])) for r in rows] == [("none", "0.0"), ("most", "99.999000999")]


async def test_source_gap_counts_for_each_channel(recorded: Recording) -> None:
    await recorded.channel("a", interval=1.0)
    await recorded.channel("b", interval=1.0)
    await recorded.gap(None, -100, None)
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000))
    assert [(r["channel"], r["covered_percent"], r["missing_seconds"], r["unrecorded"]) for r in rows] == [
        ("a", 0, 1000, 0),
        ("b", 0, 1000, 0),
    ]


async def test_slow_device_covers_the_time_and_lacks_samples(recorded: Recording) -> None:
    """2.1 s an answer, 3.5 s from 500 s on, at an interval of 1 s; then a silence of 60 s that nobody recorded."""
    await recorded.channel("slow", interval=1.0)
    had = np.r_[np.arange(0.0, 500.0, 2.1), np.arange(500.0, 800.0, 3.5), np.arange(860.0, 1000.0, 3.5)]
    await recorded.samples("slow", had, had)
    await recorded.event(-500, "poll_stretched", "stretched", detail='{"interval_seconds": 1.0, "pace_seconds": 2.1}')
    await recorded.event(510, "poll_stretched", "stretched", detail='{"interval_seconds": 1.0, "pace_seconds": 3.5}')
    (row,) = await recorded.ask("gaps_and_coverage", at(0), at(1000))
    assert (row["samples"], row["expected"], row["missing"]) == (len(had), 1000, 1000 - len(had))
    assert (row["gaps"], row["unrecorded"], row["reasons"]) == (0, 1, "poll_stretched")
    assert 93 < row["covered_percent"] < 95
    (row,) = await recorded.ask("gaps_and_coverage", at(0), at(790))
    assert (row["covered_percent"], row["unrecorded"]) == (100, 0)


async def test_quarantined_samples_are_missing(recorded: Recording) -> None:
    for name, interval in (("polled", 1.0), ("on_change", None), ("now_and_then", None)):
        await recorded.channel(name, interval=interval)
    await recorded.quarantined("polled", _SECONDS[::10].tolist())
    await recorded.quarantined("on_change", [0, 400])
    await recorded.samples("now_and_then", [0, 500, 900], [1, 2, 3])
    await recorded.quarantined("now_and_then", [700, 800])
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000))
    found = {
        r["channel"]: (r["covered_percent"], r["samples"], r["missing"], r["unrecorded"], r["reasons"]) for r in rows
    }
    assert found == {
        "polled": (0, 0, 1000, 0, "quarantined"),
        "on_change": (0, 0, 2, 0, "quarantined"),
        "now_and_then": (80, 3, 2, 0, "quarantined"),
    }
    assert all(r["expected"] == r["samples"] + r["missing"] for r in rows)


async def test_channel_without_any_sample_is_not_covered(recorded: Recording) -> None:
    await recorded.channel("never", configured=400)
    await recorded.channel("quiet", configured=-900)
    await recorded.samples("quiet", [-500], [1])
    await recorded.channel("later", configured=2000)
    await recorded.channel("explained", configured=400)
    await recorded.gap("explained", 400, None)
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000), complete=True)
    columns = ("covered_percent", "missing_seconds", "unrecorded_seconds", "reasons")
    assert {r["channel"]: tuple(r[c] for c in columns) for r in rows} == {
        "never": (0, 600, 0, "not_yet_read"),  # as before the first start of its collector
        "quiet": (100, 0, 0, ""),
        "explained": (0, 600, 0, "disconnected"),
    }


async def test_time_before_the_first_sample_is_missing_since_configuration(
    recorded: Recording,
) -> None:
    await recorded.gap(None, 20, 60)  # of the source, before there was any of these
    for name, interval in (("polled", 1.0), ("on_change", None), ("refused", 1.0), ("at_once", 1.0), ("older", None)):
        await recorded.channel(name, interval=interval, configured=100)
    for name in ("polled", "on_change"):
        await recorded.samples(name, _SECONDS[116:], _SECONDS[116:])
    await recorded.gap("refused", 105, None)
    await recorded.samples("at_once", _SECONDS[100:] + 0.5, _SECONDS[100:])
    await recorded.samples("older", [60, 400], [1, 2])  # its source knew since when it had its value

    async def shares(since: float) -> dict[str, tuple[object, ...]]:
        rows = await recorded.ask("gaps_and_coverage", at(since), at(1000))
        columns = ("missing_seconds", "gaps", "unrecorded", "unrecorded_seconds", "missing", "reasons")
        return {r["channel"]: tuple(r[c] for c in columns) for r in rows}

    assert await shares(0) == {
        "polled": (16, 1, 0, 0, 16, "not_yet_read"),
        "on_change": (16, 1, 0, 0, None, "not_yet_read"),
        "refused": (900, 1, 0, 0, 900, "disconnected, not_yet_read"),
    }
    assert await shares(108) == {
        "polled": (8, 1, 0, 0, 8, "not_yet_read"),
        "on_change": (8, 1, 0, 0, None, "not_yet_read"),
        "refused": (892, 1, 0, 0, 892, "disconnected"),
    }
    assert (await shares(200)).keys() == {"refused"}


async def test_sample_older_than_the_configuration_means_no_initial_gap(recorded: Recording) -> None:
    await recorded.channel("valve", configured=100)
    await recorded.channel("cut_off", configured=100)
    for name in ("valve", "cut_off"):
        await recorded.samples(name, [-86400, 400], [1, 0])
    await recorded.gap("cut_off", 90, 150)
    for since, missing in ((0, 50), (120, 30)):
        rows = await recorded.ask("gaps_and_coverage", at(since), at(1000))
        assert [(r["channel"], r["missing_seconds"], r["unrecorded"], r["reasons"]) for r in rows] == [
            ("cut_off", missing, 0, "disconnected")
        ]


async def test_nothing_is_expected_while_a_channel_is_retired(recorded: Recording) -> None:
    kept = (_SECONDS < 300) | (_SECONDS >= 500)
    for name in ("whole", "late"):
        await recorded.channel(name, interval=1.0, configured=0)
        await recorded.returned(name, 300, 500)
    await recorded.samples("whole", _SECONDS[kept], _SECONDS[kept])
    late = kept & ((_SECONDS < 300) | (_SECONDS >= 600))
    await recorded.samples("late", _SECONDS[late], _SECONDS[late])
    await recorded.gap(None, 350, 400)
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000), complete=True)
    columns = ("channel", "covered_percent", "expected", "missing", "gaps", "unrecorded_seconds")
    assert [tuple(r[c] for c in columns) for r in rows] == [
        ("late", 87.5, 800, 100, 0, 100),
        ("whole", 100, 800, 0, 0, 0),
    ]
    assert await recorded.ask("gaps_and_coverage", at(300), at(500), complete=True) == []


async def test_values_with_a_frozen_timestamp_are_missing(recorded: Recording) -> None:
    for name in ("stands", "goes_on", "long_ago"):
        await recorded.channel(name)
        await recorded.samples(name, [-3600], [5])
    await recorded.standing("stands", -3600, [(-600, 1), (-300, 2)])
    await recorded.standing("goes_on", -3600, [(200, 1), (201, 2), (203, 4)])
    await recorded.samples("goes_on", [300, 500], [6, 7])
    await recorded.standing("long_ago", -3600, [(-600, 1)])
    await recorded.samples("long_ago", [-500], [8])
    rows = await recorded.ask("gaps_and_coverage", at(0), at(1000))
    assert [(r["channel"], r["covered_percent"], r["missing_seconds"], r["reasons"]) for r in rows] == [
        ("stands", 0, 1000, "time_stands_still"),
        ("goes_on", 90, 100, "time_stands_still"),
    ]


async def test_pushed_channels_are_judged_by_their_own_usual_distance(recorded: Recording) -> None:
    await recorded.pushed()
    minutes = np.arange(0.0, 4 * 3600, 60)
    jitter = minutes + np.random.default_rng(1).uniform(-25, 25, len(minutes))
    hole = (minutes > 3600) & (minutes < 3600 + 22 * 60)  # between 3600 and 4920
    await recorded.samples("whole", minutes, minutes)
    await recorded.samples("uneven", jitter[1:], minutes[1:])
    await recorded.samples("hole", minutes[~hole], minutes[~hole])
    await recorded.samples("recorded", minutes[~hole], minutes[~hole])
    await recorded.gap("recorded", 3600, 4920)
    await recorded.samples("ended", minutes[minutes <= 3600], minutes[minutes <= 3600])
    await recorded.samples("begun", [-3600, *minutes[minutes >= 3600]], [0, *minutes[minutes >= 3600]])
    await recorded.samples("new", minutes[minutes >= 3600], minutes[minutes >= 3600])
    await recorded.samples("dead", minutes[:60] - 5 * 3600, minutes[:60])
    await recorded.samples("rare", [-7200, 100, 9000], [1, 2, 3])
    await recorded.channel("never")
    await recorded.channel("away")
    await recorded.gap("away", -100, None)
    columns = ("covered_percent", "gaps", "unrecorded", "unrecorded_seconds", "usual_seconds")

    async def shares(since: float, until: float, **options: object) -> dict[str, tuple[object, ...]]:
        rows = await recorded.ask("gaps_and_coverage", at(since), at(until), **options)
        return {r["channel"]: tuple(r[c] for c in columns) for r in rows}

    found = await shares(0, 14400, complete=True)
    assert found.pop("uneven")[:4] == (100, 0, 0, 0)
    assert found == {
        "away": (0, 1, 0, 0, None),
        "dead": (0, 0, 1, 14400, 300),
        "ended": (25, 0, 1, 10800, 300),
        "begun": (75, 0, 1, 3600, 300),
        "hole": (pytest.approx(100 - 100 * 1320 / 14400), 0, 1, 1320, 300),
        "recorded": (pytest.approx(100 - 100 * 1320 / 14400), 1, 0, 0, 300),
        "new": (100, 0, 0, 0, 300),
        "whole": (100, 0, 0, 0, 300),
        "never": (None, 0, 0, 0, None),
        "rare": (None, 0, 0, 0, None),
    }
    assert (await shares(0, 14400)).keys() == {"away", "dead", "ended", "begun", "hole", "recorded"}
    within = await shares(3900, 4500)  # what is usual is known from before
    assert (within["hole"], within["ended"]) == ((0, 0, 1, 600, 300), (0, 0, 1, 600, 300))
    assert "hole" not in await shares(3900, 4500, lookback="10 min"), "nobody knows"


async def test_a_hole_is_one_however_the_usual_distance_is_exceeded(recorded: Recording) -> None:
    """38 hours; in the fewest distances that tell."""
    await recorded.pushed()
    seconds = np.r_[np.arange(0.0, 10.0), np.arange(0.0, 11.0) + 38 * 3600]
    await recorded.samples("x", seconds, seconds)
    (row,) = await recorded.ask("gaps_and_coverage", at(0), at(38 * 3600 + 11))
    assert (row["unrecorded"], row["unrecorded_seconds"]) == (1, 38 * 3600 - 9)
    assert (row["longest_from"], row["longest_to"]) == (at(9), at(38 * 3600))
    assert row["longest_seconds"] == 38 * 3600 - 9


async def test_longest_gap_or_silence_is_shown(recorded: Recording) -> None:
    await recorded.channel("x", interval=1.0)
    rest = ((_SECONDS < 100) | (_SECONDS >= 160)) & ((_SECONDS < 400) | (_SECONDS >= 440)) & (_SECONDS < 900)
    await recorded.samples("x", _SECONDS[rest], _SECONDS[rest])
    await recorded.gap("x", 99, 130)
    await recorded.gap("x", 120, 160)
    await recorded.gap("x", 899, 920)
    row = (await recorded.ask("gaps_and_coverage", at(0), at(1000)))[0]
    assert (row["longest_from"], row["longest_to"], row["longest_seconds"]) == (at(920), at(1000), 80)
    row = (await recorded.ask("gaps_and_coverage", at(0), at(800)))[0]
    assert (row["longest_from"], row["longest_to"], row["longest_seconds"]) == (at(99), at(160), 61)
