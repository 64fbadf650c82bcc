"""what_changed: shifts, spreads, rates, silence; ranked."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import BAD, Recording, at


async def test_the_most_changed_come_first(recorded: Recording) -> None:
    random = np.random.default_rng(1)
    seconds = np.arange(0.0, 1200.0)
    later = seconds >= 600
    noise = random.normal(0, 1, (4, 1200))
    await recorded.samples("same", seconds, 50 + noise[0])
    await recorded.samples("higher", seconds, 50 + noise[1] + 20 * later)
    await recorded.samples("lower", seconds, 50 + noise[2] - 10 * later)
    await recorded.samples("swinging", seconds, 50 + noise[3] * np.where(later, 16, 1))
    await recorded.samples("settled", seconds, 50 + noise[3] * np.where(later, 0.25, 1))
    await recorded.channel("counter", "counter", lo=None, hi=None)
    await recorded.samples("counter", seconds, np.cumsum(np.where(later, 3, 1) + random.random(1200)))
    await recorded.channel("even_counter", "counter", lo=None, hi=None)
    await recorded.samples("even_counter", seconds, 1000 + 2 * seconds)
    rows = await recorded.ask("what_changed", at(600), at(1200))
    assert [(r["channel"], r["change"]) for r in rows] == [
        ("higher", "higher"),
        ("lower", "lower"),
        ("counter", "higher"),
        ("swinging", "wider spread"),
        ("settled", "narrower spread"),
    ]
    assert rows[0]["score"] > rows[1]["score"] > 4
    assert abs(rows[2]["mean_before"] - 1.5) < 0.1
    assert abs(rows[2]["mean_after"] - 3.5) < 0.1


async def test_means_are_weighted_by_time_and_values_hold(recorded: Recording) -> None:
    """A channel that reports changes only has one sample from long before, then a minute at 30."""
    await recorded.samples("held", [-1800, 900, 960], [10, 30, 10])
    await recorded.samples("never_changed", [-1800], [10])
    rows = await recorded.ask("what_changed", at(600), at(1200))
    assert [(r["channel"], r["mean_before"], r["mean_after"]) for r in rows] == [("held", 10, 12)]


async def test_channel_that_was_constant_before_has_no_score_and_comes_first(recorded: Recording) -> None:
    seconds = np.arange(0.0, 1200.0)
    noise = np.random.default_rng(1).normal(50, 1, 1200)
    await recorded.samples("constant", seconds, np.where(seconds < 600, 7.0, 70.0))
    await recorded.samples("never_changed", seconds, np.full(1200, 7.0))
    await recorded.samples("noisy", seconds, noise + 8 * (seconds >= 600))
    rows = await recorded.ask("what_changed", at(600), at(1200))
    assert [(r["channel"], r["score"] is None) for r in rows] == [("constant", True), ("noisy", False)]


async def test_what_did_not_change_is_no_row_however_low_the_score_may_be(recorded: Recording) -> None:
    seconds = np.arange(0.0, 1200.0)
    await recorded.samples("constant", seconds, np.full(1200, 7.1))
    await recorded.samples("swinging", seconds, seconds % 2)
    await recorded.channel("mode", "discrete")
    await recorded.samples("mode", seconds, np.full(1200, 4.0))
    await recorded.samples("noisy", seconds, np.random.default_rng(1).normal(50, 1, 1200))
    [row] = await recorded.ask("what_changed", at(600), at(1200), least_score=0)
    assert row["channel"] == "noisy"
    assert 0 < row["score"] < 1


async def test_state_that_was_constant_before_has_a_new_one(recorded: Recording) -> None:
    """Its codes have neither a level nor a spread."""
    await recorded.channel("mode", "discrete")
    await recorded.samples("mode", [0, 700, 760], [1, 4, 1])
    await recorded.channel("toggling", "discrete")
    await recorded.samples("toggling", range(0, 1200, 10), [n // 2 % 2 * (1 + 4 * (n >= 60)) for n in range(120)])
    rows = await recorded.ask("what_changed", at(600), at(1200))
    assert [(r["channel"], r["change"], r["score"] is None) for r in rows] == [
        ("mode", "new state", True),
        ("toggling", rows[1]["change"], False),
    ]
    assert rows[1]["change"] != "new state"


async def test_changes_count_as_rarely_as_is_asked(recorded: Recording) -> None:
    random, seconds = np.random.default_rng(1), np.arange(0.0, 1200.0)
    for number in range(20):
        await recorded.samples(f"calm{number}", seconds, 50 + random.normal(0, 1, 1200))
    drift = seconds / 100
    await recorded.samples("drifting", seconds, 50 + drift + random.normal(0, 1, 1200))
    await recorded.samples("raised", seconds, 50 + random.normal(0, 1, 1200) + 3 * (seconds >= 600))
    [row] = await recorded.ask("what_changed", at(600), at(1200), channels=["calm*", "raised"])
    assert (row["channel"], row["change"]) == ("raised", "higher")
    rarely, often = [
        (await recorded.ask("what_changed", at(600), at(1200), channels=["raised"], false_alarms=rate))[0]["score"]
        for rate in ("30 days", "1 h")
    ]
    assert 1 < rarely < often
    drifted = await recorded.ask("what_changed", at(600), at(1200), channels=["drifting"])
    assert drifted == [] or drifted[0]["score"] < 2


async def test_what_can_not_be_judged_is_said(recorded: Recording) -> None:
    random, seconds = np.random.default_rng(1), np.arange(0.0, 1200.0)
    noise = random.normal(50, 1, 1200)
    await recorded.samples("short", seconds[590:], noise[590:])
    await recorded.samples("faulty", seconds, noise + 20 * ((seconds >= 100) & (seconds < 220)))
    await recorded.samples("half", seconds[400:], noise[400:])
    await recorded.channel("empty")
    _, notes = await recorded.answer("what_changed", at(600), at(1200))
    assert notes.splitlines()[0] == "no rows"
    assert notes.splitlines()[2:] == [
        "2 channels judged",
        "1 channel judged though a part of their reference is unlike the rest: choose another one: faulty",
        "1 channel judged though most of their reference has no samples: half",
        "1 channel not judged, no samples in the interval: empty",
        "1 channel not judged, too few samples in the reference: short",
    ]


async def test_silence_and_appearance_come_first_and_bad_samples_are_none(recorded: Recording) -> None:
    seconds = np.arange(0.0, 600.0)
    await recorded.samples("new", seconds + 600, seconds)
    await recorded.samples("gone", seconds, seconds)
    await recorded.samples("bad", seconds, seconds)
    await recorded.samples("bad", seconds + 600, seconds, BAD)
    rows = await recorded.ask("what_changed", at(600), at(1200), carry="0 s")
    assert [(r["channel"], r["change"], r["score"]) for r in rows] == [
        ("bad", "fell silent", None),
        ("gone", "fell silent", None),
        ("new", "appeared", None),
    ]


async def test_a_bad_sample_ends_a_value(recorded: Recording) -> None:
    """Nor is it a narrower spread; a single one, as each loss of a connection writes, changes nothing."""
    seconds = np.arange(0.0, 7200.0)
    late = seconds >= 3600
    for number, (name, is_bad) in enumerate({"faulty": late, "once": seconds == 5000}.items()):
        values = np.random.default_rng(number).normal(50, 1, 7200)
        await recorded.samples(name, seconds[~is_bad], values[~is_bad])
        await recorded.samples(name, seconds[is_bad], values[is_bad], BAD)
    rows = await recorded.ask("what_changed", at(3600), at(7200))
    assert [(r["channel"], r["change"], r["mean_after"]) for r in rows] == [("faulty", "fell silent", None)]


async def test_another_interval_can_be_given(recorded: Recording) -> None:
    values = np.random.default_rng(1).normal(50, 1, 3000)
    values[:600] += 30
    await recorded.samples("x", np.arange(0.0, 3000.0), values)
    assert await recorded.ask("what_changed", at(2400), at(3000)) == []
    rows = await recorded.ask(
        "what_changed", at(2400), at(3000), reference=f"{at(0).isoformat()}..{at(600).isoformat()}"
    )
    assert [(r["channel"], r["change"]) for r in rows] == [("x", "lower")]


async def test_a_gap_is_no_narrower_spread(recorded: Recording) -> None:
    """A value does not hold through a gap, nor behind a channel's retirement."""
    seconds = np.arange(0.0, 1200.0)
    noise = np.random.default_rng(1).normal(50, 1, 1200)
    for name in ("all_lost", "half_lost", "retired", "backfilled", "lost_before", "slow"):
        kept = seconds < (600 if name in ("all_lost", "retired") else 1200)
        if name == "half_lost":
            kept = (seconds < 600) | (seconds >= 900)
        if name == "lost_before":
            kept = seconds >= 600
        await recorded.samples(name, seconds[kept], noise[kept])
    await recorded.channel("counter", "counter", lo=None, hi=None)
    await recorded.samples("counter", seconds[:600], np.cumsum(np.random.default_rng(2).random(600)))
    await recorded.gap("all_lost", 599, None)
    await recorded.gap("counter", 599, None)
    await recorded.gap("half_lost", 599, 900)
    await recorded.gap("lost_before", -500, 600)
    await recorded.gap("backfilled", 599, 1200, backfilled=True)
    await recorded.retired("retired", 600)
    steps = await recorded.fetch(
        "SELECT * FROM plant.chart_steps($1, $2, $3, 1200)", recorded.ids["retired"], at(0), at(1200)
    )
    assert (len(steps), steps[-1]["time"]) == (600, at(599))
    rows = await recorded.ask("what_changed", at(600), at(1200))
    assert [(r["channel"], r["change"]) for r in rows] == [
        ("retired", "retired"),
        ("all_lost", "no samples: gap"),
        ("counter", "no samples: gap"),
        ("lost_before", "no samples before: gap"),
    ]
