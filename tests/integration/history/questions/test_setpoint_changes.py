"""setpoint_changes: held values that change, whatever they are called; no sensors, no fast states."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from schema.question_files import questions
from tests.integration.history.questions.recording import BAD, Recording, at


async def test_changes_of_held_values_are_reported(recorded: Recording) -> None:
    seconds = np.arange(0.0, 3600.0)
    await recorded.channel("sp", unit="bar")
    await recorded.samples("sp", [0, 2400], [40, 46])  # reports changes
    await recorded.samples("polled_sp", seconds, np.where(seconds < 3000, 4.0, 4.5))
    await recorded.samples("untouched_sp", seconds, np.full(3600, 7.0))
    await recorded.samples("early_sp", [0, 600], [1, 2])  # before the interval
    await recorded.samples("bad_sp", [0], [1])
    await recorded.samples("bad_sp", [2500], [9], BAD)
    await recorded.samples("sensor", seconds, np.random.default_rng(1).normal(50, 1, 3600))
    for name in ("running", "eye"):
        await recorded.channel(name, "discrete", lo=None, hi=None)
    await recorded.samples("running", [0, 2700], [1, 0])
    await recorded.samples("eye", seconds, seconds % 2)
    await recorded.channel("mode", "text", lo=None, hi=None)
    await recorded.event(0, "text", "AUTO", "mode")
    await recorded.event(2000, "text", "AUTO", "mode")  # the same again
    await recorded.event(2800, "text", "MANUAL", "mode")
    rows = await recorded.ask("setpoint_changes", at(1800), at(3600))
    assert [(r["time"], r["channel"], r["what"], r["old"], r["new"]) for r in rows] == [
        (at(2400), "sp", "set point", "40", "46"),
        (at(2700), "running", "state", "1", "0"),
        (at(2800), "mode", "mode", "AUTO", "MANUAL"),
        (at(3000), "polled_sp", "set point", "4", "4.5"),
    ]
    assert (rows[0]["unit"], rows[0]["held_at_least"]) == ("bar", timedelta(seconds=2400))


async def test_what_can_not_be_judged_is_said(recorded: Recording) -> None:
    seconds = np.arange(0.0, 3600.0)
    await recorded.samples("held_sp", [0], [40])
    for name, kind in (("empty_sp", "analog"), ("valve", "discrete"), ("text", "text"), ("mode", "text")):
        await recorded.channel(name, kind, lo=None, hi=None)
    await recorded.event(0, "text", "AUTO", "mode")
    await recorded.samples("eye", seconds, seconds % 2)
    _, notes = await recorded.answer("setpoint_changes", at(1800), at(3600))
    assert notes.splitlines()[0] == "no rows"
    assert notes.splitlines()[2:] == [
        "2 channels judged",
        "1 channel not judged, do not hold their values for so long: eye",
        "3 channels not judged, no samples in the interval: empty_sp, text, valve",
    ]
    _, notes = await recorded.answer("timeline", at(1800), at(3600))
    assert "2 channels not judged, no samples in the interval: empty_sp, valve" in notes.splitlines()


async def test_time_that_a_value_was_held_is_known_from_the_lookback_on(recorded: Recording) -> None:
    await recorded.samples("sp", np.arange(0.0, 3600.0), np.where(np.arange(3600) < 3000, 4.0, 4.5))
    [row] = await recorded.ask("setpoint_changes", at(1800), at(3600), lookback="10 min")
    assert row["held_at_least"] == timedelta(seconds=3000 - 1200)
    assert "at least" in questions()["setpoint_changes"].header.partition("Parameters")[0]


async def test_change_just_before_the_end_is_listed(recorded: Recording) -> None:
    """Values held before count for the mean time that a value is held, of channels that report only changes."""
    for name, kind in (("valve", "discrete"), ("mode", "text")):
        await recorded.channel(name, kind, lo=None, hi=None)
    await recorded.samples("flow_sp", [0, 39_995], [90, 96])
    await recorded.samples("valve", [0, 39_996], [0, 1])
    await recorded.event(0, "text", "AUTO", "mode")
    await recorded.event(39_997, "text", "MANUAL", "mode")
    await recorded.samples("new_sp", [39_998], [7])  # nobody knows what it held before
    await recorded.samples("burst", 39_900 + np.arange(0.0, 100.0), np.arange(100.0) % 7)
    interval = at(20_000), at(40_000)
    rows, notes = await recorded.answer("setpoint_changes", *interval)
    changes = {row["channel"]: (row["time"], row["old"], row["new"]) for row in rows.to_pylist()}
    assert changes == {
        "flow_sp": (at(39_995), "90", "96"),
        "valve": (at(39_996), "0", "1"),
        "mode": (at(39_997), "AUTO", "MANUAL"),
    }
    assert notes.splitlines()[1:] == [
        "4 channels judged",
        "1 channel not judged, do not hold their values for so long: burst",
    ]


async def test_rounded_values_and_texts_are_not_reported_as_set_points(recorded: Recording) -> None:
    await recorded.channel("serial")
    await recorded.samples("serial", [0, 2400], [2.0**60, 2.0**60 + 256])
    await recorded.event(1, "rounded", "", "serial")
    await recorded.samples("sp", [0, 2400], [40, 41])
    await recorded.event(2000, "text", "open wire", "sp")
    await recorded.event(2100, "text", "short", "sp")
    rows = await recorded.ask("setpoint_changes", at(1800), at(3600))
    assert [(r["channel"], r["what"]) for r in rows] == [("serial", "set point, rounded"), ("sp", "set point")]


async def test_a_state_that_changes_all_the_time_is_no_set_point(recorded: Recording) -> None:
    """A valve of a batch, which switches more than twenty times, would hide the change that somebody made."""
    for name in ("valve", "recipe"):
        await recorded.channel(name, "discrete", lo=None, hi=None)
    await recorded.samples("valve", np.arange(0.0, 14_400.0, 300.0), np.arange(48) % 2)
    await recorded.samples("recipe", [0, 9_000], [1, 7])
    assert {row["channel"] for row in await recorded.ask("setpoint_changes", at(7200), at(14_400))} == {"recipe"}
    every = await recorded.ask("setpoint_changes", at(7200), at(14_400), hold="5 min")
    assert {row["channel"] for row in every} == {"recipe", "valve"}


async def test_a_ramp_is_one_change(recorded: Recording) -> None:
    """From what to what, when it began and when it ended: not every sample of it."""
    seconds = np.arange(0.0, 7200.0)
    ramps = np.interp(seconds, [3700, 3720, 5000, 5060, 5061, 7200], [50, 54, 54, 48, 48, 48])
    await recorded.samples("level_sp", seconds, np.round(ramps, 1))
    await recorded.samples("pressure_sp", seconds, np.where((seconds >= 6000) & (seconds < 6003), 9.0, 4.0))
    await recorded.channel("sequence", "discrete", lo=None, hi=None)
    await recorded.samples("sequence", [0, 5500, 5503], [1, 2, 3])
    rows = await recorded.ask("setpoint_changes", at(3600), at(7200))
    assert [(r["channel"], r["time"], r["ended"], r["old"], r["new"]) for r in rows] == [
        ("level_sp", at(3701), at(3720), "50", "54"),
        ("level_sp", at(5001), at(5060), "54", "48"),
        ("sequence", at(5500), at(5500), "1", "2"),
        ("sequence", at(5503), at(5503), "2", "3"),
        ("pressure_sp", at(6000), at(6000), "4", "9"),
        ("pressure_sp", at(6003), at(6003), "9", "4"),
    ]
    assert rows[1]["held_at_least"] == timedelta(seconds=5001 - 3720)
    later = await recorded.ask("setpoint_changes", at(3710), at(7200), channels=["level_sp"])
    assert [row["time"] for row in later] == [at(3701), at(5001)], "one that goes on in the interval is listed whole"


async def test_what_moves_while_it_is_not_at_rest_is_no_set_point(recorded: Recording) -> None:
    """A flow that was 0 all night and starts in the morning, and a motor that runs for some seconds in every hour."""
    minutes = np.arange(0.0, 600.0)
    flow = np.where(minutes < 580, 0.0, np.random.default_rng(1).normal(240, 2, 600).round())
    await recorded.samples("unit/flow", minutes * 60, flow)
    await recorded.channel("unit/drain", "discrete", lo=None, hi=None)
    begins = np.arange(1000.0, 36_000, 7000)
    await recorded.samples("unit/drain", [0, *np.sort(np.append(begins, begins + 5))], [0, *[1, 0] * len(begins)])
    await recorded.samples("unit/flow_sp", [0, 34_000, 34_700, 35_500], [240, 250, 260, 265])
    rows, notes = await recorded.answer("setpoint_changes", at(18_000), at(36_000))
    assert set(rows["channel"].to_pylist()) == {"unit/flow_sp"}
    assert len(rows) == 3, "an operator who changes a set point several times"
    assert "2 channels not judged, do not hold their values for so long: unit/drain, unit/flow" in notes.splitlines()
