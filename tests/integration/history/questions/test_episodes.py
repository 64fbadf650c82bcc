"""episodes: when channels were outside their usual band, and which of a unit at once."""

from __future__ import annotations

import numpy as np

from tests.integration.history.questions.recording import BAD, Recording, at

_SECONDS = np.arange(0.0, 1200.0)


def noise(seed: int) -> np.ndarray:
    return 50 + np.random.default_rng(seed).normal(0, 1, len(_SECONDS))


def within(begin: float, end: float) -> np.ndarray:
    return (begin <= _SECONDS) & (end > _SECONDS)


async def test_episodes_have_begin_end_and_those_beside_them(recorded: Recording) -> None:
    await recorded.channel("boiler/pressure", unit="bar")
    await recorded.samples("boiler/pressure", _SECONDS, noise(1) + 20 * within(800, 900))
    await recorded.samples("boiler/flow", _SECONDS, noise(2) - 30 * within(850, 880) - 30 * within(1100, 1200))
    await recorded.samples("boiler/calm", _SECONDS, noise(3))
    await recorded.samples("pump/pressure", _SECONDS, noise(4) + 20 * within(820, 840))
    rows = await recorded.ask("episodes", at(600), at(1200), step="2 s")
    assert [(row["channel"], row["direction"], row["from_time"], row["to_time"]) for row in rows] == [
        ("boiler/pressure", "up", at(800), at(900)),
        ("boiler/flow", "down", at(850), at(880)),
        ("pump/pressure", "up", at(820), at(840)),
        ("boiler/flow", "down", at(1100), None),
    ]
    assert [(row["overlapping"], row["place"]) for row in rows] == [(2, 1), (2, 2), (1, 1), (1, 1)]
    first = rows[0]
    assert abs(first["usual"] - 50) < 0.5
    assert first["peak"] > 70
    assert at(800) <= first["peak_at"] < at(900)
    assert first["unit"] == "bar"
    assert first["score"] > 3


async def test_a_reference_of_one_value_gives_no_score(recorded: Recording) -> None:
    """But at its very end, or the channel were constant. Such an episode comes first of those that begin with it."""
    await recorded.samples("boiler/pressure", _SECONDS, noise(1) + 20 * within(800, 900))
    await recorded.channel("boiler/valve", lo=None, hi=None)
    await recorded.samples("boiler/valve", _SECONDS, 40 + within(590, 600) + 20.0 * within(800, 900))
    rows = await recorded.ask("episodes", at(600), at(1200), step="2 s")
    assert [(row["channel"], row["from_time"]) for row in rows] == [
        ("boiler/valve", at(800)),
        ("boiler/pressure", at(800)),
    ]
    assert rows[0]["score"] is None
    assert rows[1]["score"] > 3


async def test_calm_units_have_few_episodes(recorded: Recording) -> None:
    for number in range(30):
        await recorded.samples(f"unit{number // 3}/channel{number % 3}", _SECONDS, noise(10 + number))
    assert len(await recorded.ask("episodes", at(600), at(1200))) <= 2  # of ten units one in two is accepted


async def test_a_part_of_a_mean_at_the_end_is_left_out(recorded: Recording) -> None:
    """Each mean has one cycle of a pump, the half one at the end would have the upper half of it."""
    await recorded.samples("level", _SECONDS, noise(1) + 20 * np.sin(_SECONDS * 2 * np.pi / 10))
    reference = f"{at(0).isoformat()}..{at(600).isoformat()}"
    assert await recorded.ask("episodes", at(600), at(1195), step="10 s", reference=reference) == []


async def test_a_fault_in_a_part_of_each_cycle(recorded: Recording) -> None:
    """A press, whose flow gets lower at its top: still within what it does in each stroke."""
    random = np.random.default_rng(1)
    begins = np.cumsum(random.integers(29, 32, 50)) - 30
    cycle = np.searchsorted(begins, _SECONDS, side="right") - 1
    place = (_SECONDS - begins[cycle]) / np.diff(begins)[cycle]
    lower = 1.5 * ((place > 0.2) & (place < 0.3)) * within(900, 1200)
    flow = 9 + 2 * np.sin(2 * np.pi * place) - lower + random.normal(0, 0.1, len(_SECONDS))
    await recorded.samples("press/flow", _SECONDS, flow)
    pressure = 100 + 80 * ((place > 0.2) & (place < 0.7)) + random.normal(0, 0.5, len(_SECONDS))
    await recorded.samples("press/pressure", _SECONDS, pressure)
    for question, begin in (("episodes", "from_time"), ("departure", "departed_at")):
        table, notes = await recorded.answer(question, at(600), at(1200))
        first = table.to_pylist()[0]
        assert at(898) <= first[begin] < at(935), (question, first)
        assert "press/flow" in (first.get("channel"), *(first.get("channels") or ())[:1])
        known = "2 channels judged by what they usually do at each point of their cycles: press/flow, press/pressure"
        assert known in notes.splitlines(), notes
        table, _ = await recorded.answer(question, at(600), at(900))
        assert table.num_rows == 0, (question, table.to_pylist())


async def test_what_cannot_be_judged_is_said(recorded: Recording) -> None:
    await recorded.samples("short", _SECONDS[590:], noise(1)[590:])
    await recorded.samples("bad", _SECONDS, noise(2), BAD)
    await recorded.samples("held", _SECONDS, np.where(_SECONDS < 900, 40.0, 80.0))
    await recorded.samples("constant", _SECONDS, np.full(1200, 40.0))
    there = ~within(700, 900)
    await recorded.samples("gapped", _SECONDS[there], noise(3)[there])
    await recorded.gap("gapped", 699.5, 900)
    table, notes = await recorded.answer("episodes", at(600), at(1200), step="1 s")
    assert notes.splitlines()[0] == "no rows"
    assert notes.splitlines()[2:] == [
        "1 channel judged",
        "2 channels not judged, constant in the reference: constant, held",
        "1 channel not judged, no samples in the interval: bad",
        "1 channel not judged, too few samples in the reference: short",
    ]
    assert table.num_rows == 0
