"""timeline: events, gaps, states, qualities, held values and jumps, and nothing that is usual."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import BAD, Recording, at

_DETAIL = """{"count": 100, "change": -2.50, "tiny": 1e-05, "zero": 0.0, "huge": 1e20, "third": 0.33333333,
"sure": true, "none": null, "empty": "", "members": {"a": 1}, "list": ["a", null, 1.5], "since": 1773050400500000,
"state": "no",
"read_at": "2026-03-09T11:00:00.9+01:00", "time": 5}"""


async def test_unusual_events_are_listed_and_usual_ones_are_not(recorded: Recording) -> None:
    seconds = np.arange(0.0, 600.0)
    noise = np.random.default_rng(1).normal(50, 1, 600)
    jumped = np.where(seconds >= 320, noise + 40, noise)
    await recorded.samples("unit/steady", seconds, noise)
    await recorded.samples("unit/jumping", seconds, jumped)
    await recorded.samples("unit/sp", [0, 330], [40, 46])
    await recorded.channel("unit/running", "discrete", lo=None, hi=None)
    await recorded.samples("unit/running", [0, 310], [1, 0])
    await recorded.channel("unit/eye", "discrete", lo=None, hi=None)
    await recorded.samples("unit/eye", seconds, seconds % 2)
    await recorded.samples("unit/failing", [0, 290], [5, 5])
    await recorded.samples("unit/failing", [340], [0], BAD)
    await recorded.gap("unit/failing", 341, 350)
    await recorded.gap("unit/steady", 345, 345)  # nothing was missing after all
    await recorded.event(325, "source_state", "disconnected")
    await recorded.event(200, "source_state", "connected")  # too early
    await recorded.channel("other/mode", "text", lo=None, hi=None)
    await recorded.event(326, "text", "AUTO", "other/mode")
    rows = await recorded.ask("timeline", at(300), at(360), channels=["unit/*"], instant=at(320))
    assert [(r["seconds"], r["what"], r["channel"]) for r in rows] == [
        (-10, "state", "unit/running"),
        (0, "jump", "unit/jumping"),
        (5, "source_state", "plc"),
        (10, "held value", "unit/sp"),
        (20, "quality", "unit/failing"),
        (21, "gap begins", "unit/failing"),
        (30, "gap ends", "unit/failing"),
    ]
    assert rows[3]["detail"] == "40 → 46"
    assert rows[4]["detail"] == "good → bad 0x80050000"


async def test_what_changed_across_a_bad_sample_is_listed(recorded: Recording) -> None:
    await recorded.channel("running", "discrete", lo=None, hi=None)
    for name, before, after in (("running", 0.0, 1.0), ("sp", 40.0, 46.0), ("same", 5.0, 5.0)):
        await recorded.samples(name, range(300, 320), np.repeat([before, after], 10))
        await recorded.samples(name, [309.5], [0], BAD)
    rows = await recorded.ask("timeline", at(300), at(360))
    assert [(row["channel"], row["detail"]) for row in rows if row["what"] != "quality"] == [
        ("running", "0 → 1"),
        ("sp", "40 → 46"),
    ]


async def test_jump_over_several_samples_is_listed_once(recorded: Recording) -> None:
    values = np.random.default_rng(2).normal(50, 0.1, 600)
    values[400:] += 40
    values[400:402] -= (27, 13)
    await recorded.samples("unit/ramp", np.arange(0.0, 600.0), values)
    rows = await recorded.ask("timeline", at(300), at(600))
    assert [(r["time"], r["what"]) for r in rows] == [(at(400), "jump")]


async def test_a_level_that_moves_within_the_noise_is_a_move(recorded: Recording) -> None:
    """No step of it is larger than those of the noise."""
    seconds = np.arange(0.0, 4200.0)
    noise = np.random.default_rng(3).normal(50, 1, 4200)
    await recorded.samples("unit/moved", seconds, noise + 3 * (seconds >= 3900))
    await recorded.samples("unit/steady", seconds, np.random.default_rng(5).normal(50, 1, 4200))
    rows = await recorded.ask("timeline", at(3600), at(4200))
    assert [(row["what"], row["channel"]) for row in rows] == [("move", "unit/moved")]
    assert abs((rows[0]["time"] - at(3900)).total_seconds()) <= 8


async def test_a_later_move_that_is_much_farther_is_another_line(recorded: Recording) -> None:
    seconds = np.arange(0.0, 4800.0)
    slow = np.clip((seconds - 4300) / 40, 0, 1)  # no step of it is a jump
    for name, later in (("unit/moves", 30 * slow), ("unit/jumps", 30 * (seconds >= 4300))):
        noise = np.random.default_rng(3).normal(50, 1, len(seconds))
        await recorded.samples(name, seconds, noise + 3 * (seconds >= 3900) + later)
    rows = await recorded.ask("timeline", at(3600), at(4800))
    assert sorted((row["what"], row["channel"]) for row in rows) == [
        ("jump", "unit/jumps"),
        ("move", "unit/jumps"),
        ("move", "unit/moves"),
        ("move", "unit/moves"),
    ]


async def test_states_that_report_only_changes_have_no_sampling_interval(recorded: Recording) -> None:
    """Their changes are minutes apart: no step follows from that. Those that change too often are named."""
    for name, changes in (("unit/busy", np.arange(0.0, 7200.0, 300)), ("unit/mode", np.arange(0.0, 7200.0, 720))):
        await recorded.channel(name, "discrete", lo=None, hi=None)
        await recorded.samples(name, changes, np.arange(len(changes)) % 2)
    await recorded.samples("unit/mode", [6500], [2])
    table, notes = await recorded.answer("timeline", at(3600), at(7200))
    assert {row["channel"] for row in table.to_pylist()} == {"unit/mode"}
    lines = notes.splitlines()
    assert lines[0].startswith("step 1 s, reference: 1 h before"), notes
    left_out = "1 channel not listed, states that changed more than 20 times with the reference (--busy): unit/busy"
    assert lines[1:] == ["1 channel judged", left_out]
    table, notes = await recorded.answer("first_mover", at(3600), at(7200))
    rows = table.to_pylist()
    assert [(row["channel"], row["moved_at"], row["usual"], row["moved_to"]) for row in rows] == [
        ("unit/mode", at(6500), 1, 2)
    ]


async def test_channels_that_are_sampled_differently_are_said(recorded: Recording) -> None:
    """One step is not for all of them. Those that are sampled half as often as others are not meant."""
    random = np.random.default_rng(1)
    for name, every in (("fast/a", 1.0), ("fast/b", 2.0), ("slow/a", 180.0)):
        seconds = np.arange(0.0, 7200.0, every)
        await recorded.samples(name, seconds, random.normal(50, 1, len(seconds)))
    _, notes = await recorded.answer("timeline", at(3600), at(7200))
    assert "\nstep 2 s, " in notes
    assert "\nchannels have samples every 1 s to 3 min: ask about those of one kind apart\n" in notes
    _, notes = await recorded.answer("timeline", at(3600), at(7200), channels=["fast/*"])
    assert "apart" not in notes


async def test_many_texts_and_conflicts_of_a_channel_are_one_line(recorded: Recording) -> None:
    for name in ("unit/chatty", "unit/mode"):
        await recorded.channel(name, "text", lo=None, hi=None)
    for second in range(300, 360):
        await recorded.event(second, "text", f"step {second}", "unit/chatty")
    await recorded.event(310, "text", "AUTO", "unit/mode")
    await recorded.channel("unit/standing")
    await recorded.standing("unit/standing", 300, [(300 + n, n) for n in (1, 2, 4, 8, 16)])
    rows = await recorded.ask("timeline", at(300), at(360))
    assert [(r["time"], r["what"], r["channel"]) for r in rows if r["what"] != "conflict"] == [
        (at(300), "text", "unit/chatty"),
        (at(310), "text", "unit/mode"),
    ]
    assert rows[0]["detail"] == "60 until 2026-03-09 10:05:59 UTC, the first: step 300, the last: step 359"
    assert [(r["seconds"] + 30, r["detail"]) for r in rows if r["what"] == "conflict"][-1] == (
        16,
        "time stands still: at 2026-03-09 10:05:00 UTC, refused 16, kept value 5.0, kept status 0x00000000, "
        "refused value 21.0, refused status 0x00000000",
    )


async def test_details_and_values_are_texts(recorded: Recording) -> None:
    await recorded.samples("unit/sp", [0, 310, 320, 330], [40.123456789, -0.0004, 1.23456789012345678e17, 0.0015])
    await recorded.event(340, "restart", "", detail=_DETAIL)
    rows = await recorded.ask("timeline", at(300), at(360))
    assert [row["detail"].rstrip() for row in rows] == [
        "40.123 → 0",
        "0 → 1.23456789012346e+17",
        "1.23456789012346e+17 → 0.002",
        "huge 100000000000000000000, list a 1.5, sure yes, time 5, tiny 0.00001, zero 0.0, count 100, "
        "since 2026-03-09 10:00:00 UTC, third 0.333333, change -2.5, read at 2026-03-09 10:00:00 UTC",
    ]
