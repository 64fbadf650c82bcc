"""Counters that wrap, are reset, or run backwards: what the questions make of them."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1200.0)


async def counters(recorded: Recording) -> None:
    """Counters of 2/s: one that never stops, one that wraps, one that is reset, one that runs backwards twice."""
    counts = 2 * _SECONDS
    await recorded.channel("meters/steady", "counter", lo=None, hi=None)
    await recorded.samples("meters/steady", _SECONDS, counts)
    await recorded.channel("meters/pulses", "counter", lo=None, hi=None, wraps_at=65536)
    await recorded.samples("meters/pulses", _SECONDS, (64000 + counts) % 65536)
    await recorded.channel("meters/energy", "counter", unit="kWh", lo=None, hi=None)
    await recorded.samples("meters/energy", _SECONDS, np.where(_SECONDS < 900, 5000 + counts, counts - 1800))
    await recorded.channel("meters/wrong", "counter", lo=None, hi=None)
    wrong = counts + 100
    wrong[[800, 820, 1100]] -= 50
    await recorded.samples("meters/wrong", _SECONDS[_SECONDS != 819], wrong[_SECONDS != 819])
    await recorded.samples("meters/wrong", [819], [0], BAD)


async def test_a_wrap_is_no_change_and_a_reset_the_loss_of_one_increase(recorded: Recording) -> None:
    await counters(recorded)
    [row] = await recorded.ask(
        "what_changed", at(600), at(1200), channels=["meters/steady", "meters/pulses", "meters/energy"], least_score=0
    )
    assert (row["channel"], row["change"]) == ("meters/energy", "lower")
    assert abs(row["mean_before"] - 2) < 1e-9
    assert abs(row["mean_after"] - 2) < 0.01


async def test_rate_changes_whatever_has_been_counted_and_may_be(recorded: Recording) -> None:
    """Rates of 5/s to 50/s, behind a large value and in a wide range; the last one goes on."""
    rate = np.where(_SECONDS < 900, 5.0, 50.0) + np.random.default_rng(1).normal(0, 0.3, len(_SECONDS))
    for name, base, hi in (("large", 1e7, None), ("wide", 0.0, 1e9)):
        await recorded.channel(name, "counter", lo=None if hi is None else 0.0, hi=hi)
        await recorded.samples(name, _SECONDS, base + np.cumsum(rate))
    await recorded.channel("steady", "counter", hi=1e9)
    await recorded.samples("steady", _SECONDS, 1e7 + np.cumsum(np.where(_SECONDS < 900, rate, rate - 45)))
    moves = await recorded.ask("first_mover", at(600), at(1200))
    assert {(row["channel"], row["moved_at"]) for row in moves} == {("large", at(900)), ("wide", at(900))}
    changes = await recorded.ask("what_changed", at(600), at(1200))
    assert {(row["channel"], row["change"]) for row in changes} == {("large", "higher"), ("wide", "higher")}


async def test_counters_that_run_backwards_are_implausible(recorded: Recording) -> None:
    await counters(recorded)
    rows = await recorded.ask("implausible", at(600), at(1200))
    assert [tuple(row.values()) for row in map(dict, rows)] == [
        ("meters/wrong", "runs backwards", at(799), at(820), 1650, 1736, ""),
        ("meters/energy", "runs backwards", at(899), at(900), 0, 6798, ""),
        ("meters/wrong", "runs backwards", at(1099), at(1100), 2250, 2298, ""),
    ]
    assert await recorded.ask("implausible", at(600), at(1200), channels=["meters/pulses"]) == []


async def test_resets_are_in_the_timeline(recorded: Recording) -> None:
    await counters(recorded)
    await recorded.event(900, "counter_reset", "6798 → 0", "meters/energy")
    rows = await recorded.ask(
        "timeline", at(810), at(1200), channels=["meters/energy", "meters/pulses", "meters/wrong"]
    )
    assert [(row["time"], row["what"], row["channel"], row["detail"]) for row in rows] == [
        (at(819), "quality", "meters/wrong", "good → bad 0x80050000"),
        (at(820), "quality", "meters/wrong", "bad → good 0x00000000"),
        (at(820), "reset", "meters/wrong", "1736 → 1690"),
        (at(900), "reset", "meters/energy", "6798 → 0 kWh"),
        (at(1100), "reset", "meters/wrong", "2298 → 2250"),
    ]
