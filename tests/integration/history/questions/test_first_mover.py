"""first_mover: channels in the order in which they left their band; not those that stayed."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 5400.0)


def noise(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(50, 1, 5400)


async def test_channels_are_listed_in_the_order_of_their_moves(recorded: Recording) -> None:
    await recorded.samples("calm", _SECONDS, noise(1))
    await recorded.samples("last", _SECONDS, noise(2) - 0.1 * np.maximum(0, _SECONDS - 4300))
    await recorded.samples("first", _SECONDS, noise(3) + 30 * (_SECONDS >= 4200))
    await recorded.samples("sp", [0, 4230], [40, 46])
    await recorded.channel("trip", "discrete", lo=None, hi=None)
    await recorded.samples("trip", [0, 4260], [0, 1])
    # One outlier is no move, and what was as wild before is none either.
    await recorded.samples("outlier", _SECONDS, np.where(_SECONDS == 4210, 70, noise(4)))
    await recorded.samples("wild", _SECONDS, noise(5) + 40 * (_SECONDS % 700 < 60))
    rows = await recorded.ask("first_mover", at(4000), at(5400), step="10 s")
    assert [(r["place"], r["channel"], r["direction"]) for r in rows] == [
        (1, "first", "up"),
        (2, "sp", "up"),
        (3, "trip", "up"),
        (4, "last", "down"),
    ]
    assert [r["moved_at"] for r in rows[:3]] == [at(4200), at(4230), at(4260)]
    assert rows[1]["usual"] == 40


async def test_steady_plant_has_no_first_mover(recorded: Recording) -> None:
    await recorded.samples("calm", _SECONDS, noise(1))
    await recorded.samples("new", _SECONDS[5000:], noise(2)[5000:])  # without a past there is nothing to compare with
    assert await recorded.ask("first_mover", at(4000), at(5400)) == []


async def test_what_moves_behind_the_interval_is_not_listed(recorded: Recording) -> None:
    """Samples are read until the end of a later reference."""
    await recorded.samples("within", _SECONDS, noise(1) + 20 * (_SECONDS < 900))
    await recorded.samples("behind", _SECONDS, noise(2) + 20 * (_SECONDS < 1500))
    later = f"{at(1800).isoformat()}..{at(5400).isoformat()}"
    rows = await recorded.ask("first_mover", at(600), at(1200), reference=later)
    assert [(row["channel"], row["moved_at"]) for row in rows] == [("within", at(900))]
