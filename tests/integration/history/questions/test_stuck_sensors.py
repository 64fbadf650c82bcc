"""stuck_sensors: one value for longer than ever, polled or reported on change; no set points, no gaps, no habits."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 4200.0)
_LATE = _SECONDS >= 3900


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(50, 1, 4200)


async def test_stuck_sensors_are_reported_and_steady_ones_are_not(recorded: Recording) -> None:
    await recorded.samples("unit/polled", _SECONDS, np.where(_LATE, 51.5, noise(1)))
    await recorded.samples("unit/reporting", _SECONDS[~_LATE], noise(2)[~_LATE])
    await recorded.samples("unit/clipped", _SECONDS, np.where(_LATE, 0.0, noise(3)))
    await recorded.samples("unit/moving", _SECONDS, noise(4))
    await recorded.samples("unit/sp", _SECONDS, np.full(4200, 40.0))
    await recorded.samples("unit/slow", _SECONDS, np.floor(_SECONDS / 300))
    # A machine that has stood at one value for as long before.
    await recorded.samples("unit/machine", _SECONDS, np.where((_SECONDS % 600 > 300) | _LATE, 1.2, noise(5)))
    await recorded.samples("unit/missing", _SECONDS[~_LATE], noise(6)[~_LATE])
    await recorded.gap("unit/missing", 3899, None)
    await recorded.samples("other/moving", _SECONDS, noise(7))
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [(r["channel"], r["stuck_from"], r["stuck_to"], r["at_range_limit"]) for r in rows] == [
        ("unit/reporting", at(3899), at(4200), False),
        ("unit/polled", at(3900), at(4200), False),
        ("unit/clipped", at(3900), at(4200), True),
    ]
    assert rows[1]["value"] == 51.5
    assert rows[1]["moving_beside"] == 1  # unit/moving; what is on other units does not count


async def test_recovered_sensor_is_reported_with_its_end(recorded: Recording) -> None:
    stuck = (_SECONDS >= 3700) & (_SECONDS < 3800)
    await recorded.samples("x", _SECONDS, np.where(stuck, 51.5, noise(1)))
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [(r["stuck_from"], r["stuck_to"], round(r["times_limit"])) for r in rows] == [(at(3700), at(3800), 83)]
    assert await recorded.ask("stuck_sensors", at(3600), at(4200), hold="2 min") == []
    assert await recorded.ask("stuck_sensors", at(3600), at(4200), reference="20 s") == [], "too short to judge by"


async def test_retired_channel_is_stuck_until_its_retirement(recorded: Recording) -> None:
    for name in ("retired", "stuck_before"):
        await recorded.samples(name, _SECONDS[~_LATE], noise(1)[~_LATE])
    await recorded.retired("retired", 3900)
    await recorded.retired("stuck_before", 4100)
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [(r["channel"], r["stuck_from"], r["stuck_to"]) for r in rows] == [("stuck_before", at(3899), at(4100))]


async def test_frozen_timestamp_is_reported(recorded: Recording) -> None:
    await recorded.samples("unit/moving", _SECONDS, noise(4))
    await recorded.samples("unit/since_long", [-90000], [5])
    await recorded.standing("unit/since_long", -90000, [(-90000, 1), (-89000, 2)])
    await recorded.samples("unit/since_now", _SECONDS[~_LATE], noise(2)[~_LATE])
    await recorded.standing("unit/since_now", 3899, [(3900, 1), (3901, 2), (3903, 4)], kept=51.5)
    await recorded.samples("unit/over", _SECONDS[(_SECONDS < 3000) | _LATE], noise(3)[(_SECONDS < 3000) | _LATE])
    await recorded.standing("unit/over", 2999, [(3000, 1)])
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200), reference="10 min")
    assert [(r["channel"], r["stuck_from"], r["stuck_to"], r["value"]) for r in rows] == [
        ("unit/over", at(3000), at(3900), 5),
        ("unit/since_long", at(-90000), at(4200), 5),
        ("unit/since_now", at(3900), at(4200), 51.5),
    ]
    assert rows[2]["note"] == ("its time stands still at 2026-03-09 11:04:59 UTC: 4 or more values were not kept")
    assert rows[2]["moving_beside"] == 2


async def test_a_hole_in_pushed_data_is_no_stuck_sensor(recorded: Recording) -> None:
    await recorded.pushed()
    kept = ~((_SECONDS >= 3700) & (_SECONDS < 3900))
    for name in ("unit/hole", "unit/ended", "unit/stuck"):
        await recorded.channel(name)
    await recorded.samples("unit/hole", _SECONDS[kept], noise(1)[kept])
    await recorded.samples("unit/ended", _SECONDS[_SECONDS < 3700], noise(2)[_SECONDS < 3700])
    await recorded.samples("unit/stuck", _SECONDS, np.where(kept, noise(3), 51.5))
    table, notes = await recorded.answer("stuck_sensors", at(3600), at(4200))
    assert table["channel"].to_pylist() == ["unit/stuck"]
    silent = "judged but for a silence that is longer than usual: gaps_and_coverage says when: unit/ended, unit/hole"
    assert f"2 channels {silent}" in notes.splitlines()


async def test_what_is_at_rest_is_not_stuck(recorded: Recording) -> None:
    """A flow is 0 while its valve is shut; a sensor that is stuck in the middle is not hidden by that."""
    reading = noise(1).round(1)
    rest = (_SECONDS < 1200) | (_SECONDS >= 2900)
    await recorded.samples("unit/flow", _SECONDS, np.where(rest, 0.0, reading))
    await recorded.samples("unit/pressure", _SECONDS, np.where(_SECONDS < 1200, 0.0, np.where(_LATE, 50.3, reading)))
    ramps = np.interp(_SECONDS, [500, 540, 1500, 1545, 4200], [20, 24, 24, 19, 19])
    await recorded.samples("unit/sp", _SECONDS, ramps.round(1))
    table, notes = await recorded.answer("stuck_sensors", at(3600), at(4200))
    assert [(row["channel"], row["stuck_from"]) for row in table.to_pylist()] == [("unit/pressure", at(3900))]
    held = "1 channel not judged, fewer than 40 changes in the reference, or values held but for ramps: unit/sp"
    assert held in notes.splitlines()


async def test_a_unit_that_stops_is_not_stuck(recorded: Recording) -> None:
    """Where the reference has it running only: a channel that is at 0 alone is listed."""
    for number, name in enumerate(("unit/flow", "unit/speed", "unit/pressure", "other/flow"), 1):
        await recorded.samples(name, _SECONDS, np.where(3800 + number <= _SECONDS, 0.0, noise(number)))
    await recorded.samples("other/level", _SECONDS, noise(5))
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [row["channel"] for row in rows] == ["other/flow"]


async def test_bad_samples_are_no_stuck_sensor(recorded: Recording) -> None:
    """A value is unknown from a Bad sample to the next good one; before and after it may be stuck."""
    for number, name in enumerate(("unit/faulty", "unit/neighbour")):
        await recorded.samples(name, _SECONDS[~_LATE], noise(number)[~_LATE])
        await recorded.samples(name, _SECONDS[_LATE], noise(number)[_LATE], BAD)
    is_bad = _SECONDS == 4000
    reading = np.where(_LATE, 51.5, noise(2))
    await recorded.samples("unit/stuck", _SECONDS[~is_bad], reading[~is_bad])
    await recorded.samples("unit/stuck", [4000], [51.5], BAD)
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [(row["channel"], row["stuck_from"], row["stuck_to"]) for row in rows] == [
        ("unit/stuck", at(4001), at(4200)),
        ("unit/stuck", at(3900), at(4000)),
    ]
    assert [row["moving_beside"] for row in rows] == [0, 0]


async def test_a_gap_in_the_reference_hides_no_stuck_sensor(recorded: Recording) -> None:
    """No value was kept across it."""
    lost = (_SECONDS >= 1200) & (_SECONDS < 1800)
    await recorded.samples("x", _SECONDS[~lost], np.where(_LATE, 51.5, noise(1))[~lost])
    await recorded.gap("x", 1199.5, 1800)
    rows = await recorded.ask("stuck_sensors", at(3600), at(4200))
    assert [(row["channel"], row["stuck_from"]) for row in rows] == [("x", at(3900))]
