"""implausible: a tank that fills with its inlet shut, one that leaks, twins that part; tanks that behave."""

from __future__ import annotations

import asyncio

import numpy as np

from history.questions.ask import TimeRange, answer, find_question
from tests.integration.history.questions.recording import Recording, at

_SECONDS = np.arange(0.0, 5400.0, 5.0)
_LATE = _SECONDS >= 4200


async def tank(
    recorded: Recording,
    name: str,
    inlet: np.ndarray,
    outlet: np.ndarray,
    unseen: np.ndarray,
    without_range: str = "",
) -> None:
    """A tank of 2.5 m² whose level follows its flows and ``unseen``, m³/h; one of its quantities has no range."""
    random = np.random.default_rng(3)
    level = 4 + np.cumsum((inlet - outlet + unseen) / 3600 / 2.5 * 5)
    highest = {"level": 8.0, "inlet_flow": 200.0, "outlet_flow": 200.0, without_range: None}
    await recorded.channel(f"{name}/level", unit="m", hi=highest["level"])
    await recorded.samples(f"{name}/level", _SECONDS, level + random.normal(0, 0.001, len(level)))
    for quantity, flow in (("inlet_flow", inlet), ("outlet_flow", outlet)):
        await recorded.channel(f"{name}/{quantity}", unit="m³/h", hi=highest[quantity])
        measured = flow + random.normal(0, 0.2, len(flow)) * (flow > 0)
        await recorded.samples(f"{name}/{quantity}", _SECONDS, measured)


def flows() -> tuple[np.ndarray, np.ndarray]:
    """A pump that runs every other five minutes against a steady outlet."""
    return np.where(_SECONDS // 300 % 2 == 0, 20.0, 0.0), np.full(len(_SECONDS), 10.0)


async def test_tanks(recorded: Recording) -> None:
    inlet, outlet = flows()
    none = np.zeros(len(_SECONDS))
    await tank(recorded, "good", inlet, outlet, none)
    await tank(recorded, "leaking", inlet, outlet, np.where(_LATE, -8.0, 0))
    # Both shut, and it fills all the same; a second one falls.
    await tank(recorded, "filling", np.where(_LATE, 0, inlet), np.where(_LATE, 0, outlet), np.where(_LATE, 9.0, 0))
    await tank(recorded, "falling", np.where(_LATE, 0, inlet), np.where(_LATE, 0, outlet), np.where(_LATE, -9.0, 0))
    await tank(recorded, "resting", np.where(_LATE, 0, inlet), np.where(_LATE, 0, outlet), none)
    rows = await recorded.ask("implausible", at(3600), at(5400))
    assert sorted({(r["channel"], r["rule"]) for r in rows}) == [
        ("falling/level", "does not follow its flows"),
        ("falling/level", "falls while its outlet is shut"),
        ("filling/level", "does not follow its flows"),
        ("filling/level", "fills while its inlet is shut"),
        ("leaking/level", "does not follow its flows"),
    ]
    for row in rows:
        assert at(4170) <= row["begins"] <= at(4260), row
        assert at(5370) <= row["ends"] <= at(5400), row
    fills = next(r for r in rows if r["rule"].startswith("fills"))
    assert abs(fills["measured"] - 9 / 2.5 / 3) < 0.1  # 20 min at 9 m³/h
    assert fills["beside"] == "filling/inlet_flow"
    one = await recorded.ask("implausible", at(3600), at(5400), channels=["good/*", "resting/level"])
    assert one == []


async def test_twins(recorded: Recording) -> None:
    random = np.random.default_rng(1)
    true = 50 + 5 * np.sin(_SECONDS / 200)

    def sensor() -> np.ndarray:
        return true + random.normal(0, 0.1, len(true))

    await recorded.samples("a/boiler1/oxygen", _SECONDS, np.where(_LATE, sensor() + 2, sensor()))
    await recorded.samples("b/boiler1/oxygen", _SECONDS, sensor())
    await recorded.samples("a/boiler2/oxygen", _SECONDS, sensor() + 2)  # another boiler
    await recorded.samples("a/boiler1/air", _SECONDS, sensor())
    await recorded.samples("b/boiler1/air", _SECONDS, sensor() + 7)  # as ever: an offset that was learned
    rows = await recorded.ask("implausible", at(3600), at(5400))
    assert [(r["channel"], r["rule"], r["beside"]) for r in rows] == [
        ("a/boiler1/oxygen", "differs from its twin", "b/boiler1/oxygen")
    ]
    assert rows[0]["begins"] == at(4200)
    assert abs(rows[0]["measured"] - rows[0]["plausible"] - 2) < 0.1
    [other] = await recorded.ask("implausible", at(3600), at(5400), channels=["b/*"])
    assert (other["channel"], other["beside"]) == ("b/boiler1/oxygen", "a/boiler1/oxygen")


async def test_twins_are_compared_with_any_reference(recorded: Recording) -> None:
    """The one before the interval has the fault in it; one before that, and a later one of its own, do not."""
    random = np.random.default_rng(1)
    for name, off in (("a", 2 * ((_SECONDS >= 1200) & (_SECONDS < 4800))), ("b", 0)):
        await recorded.samples(f"{name}/boiler1/oxygen", _SECONDS, 50 + random.normal(0, 0.1, len(_SECONDS)) + off)
    assert await recorded.ask("implausible", at(4200), at(4800), reference="40 min") == []
    for begin, end in ((0, 1200), (4800, 5400)):
        reference = f"{at(begin).isoformat()}..{at(end).isoformat()}"
        [row] = await recorded.ask("implausible", at(4200), at(4800), reference=reference)
        assert (row["channel"], row["begins"], row["ends"]) == ("a/boiler1/oxygen", at(4200), at(4800))
        assert abs(row["measured"] - row["plausible"] - 2) < 0.1


async def test_twins_without_a_range_that_stand_do_not_part(recorded: Recording) -> None:
    """By more than rounding errors of means."""
    for name, value in (("a/boiler1/oxygen", 0.3), ("b/boiler1/oxygen", 0.1), ("c/boiler1/oxygen", 7.7)):
        await recorded.channel(name, hi=None)
        await recorded.samples(name, _SECONDS, np.full(len(_SECONDS), value))
    assert await recorded.ask("implausible", at(3600), at(5400)) == []


async def judgements(recorded: Recording, since: float, until: float) -> list[str]:
    """Lines below the answer that say what was judged."""
    interval = TimeRange(at(since).isoformat(), at(until).isoformat())
    _, note = await asyncio.to_thread(answer, recorded.state, find_question("implausible"), interval, [], {})
    return [line for line in note.splitlines() if "judged" in line]


async def test_what_a_rule_can_not_judge_is_said(recorded: Recording) -> None:
    """Channels by rule: a leak can't be seen where the time before it is too short, or had no flow to learn from."""
    inlet, outlet = flows()
    await tank(recorded, "leaking", inlet, outlet, np.where(_LATE, -8.0, 0))
    await tank(recorded, "still", inlet * 0, outlet * 0, inlet * 0)
    await recorded.samples("a/boiler1/oxygen", _SECONDS, inlet)
    await recorded.samples("b/boiler1/oxygen", _SECONDS, inlet)
    await recorded.channel("pump/energy", kind="counter")

    flow = "inlet_flow, leaking/outlet_flow, still/inlet_flow, still/outlet_flow"
    no_rule = f"4 channels not judged, neither level of a tank, nor one of twins, nor of kind counter: leaking/{flow}"
    counter = '1 channel not judged by the rule "runs backwards", no samples in the interval: pump/energy'
    shut = [
        f'2 channels judged by the rule "{rule} while its {valve} is shut": leaking/level, still/level'
        for rule, valve in (("falls", "outlet"), ("fills", "inlet"))
    ]
    assert await judgements(recorded, 300, 5400) == [
        "2 channels judged",
        *shut,
        '2 channels not judged by the rule "differs from its twin", fewer than 20 means of both in the reference: '
        "a/boiler1/oxygen, b/boiler1/oxygen",
        '2 channels not judged by the rule "does not follow its flows", '
        "fewer than 20 means of level and flows in the reference: leaking/level, still/level",
        counter,
        no_rule,
    ]
    assert await judgements(recorded, 3600, 5400) == [
        "4 channels judged",
        '2 channels judged by the rule "differs from its twin": a/boiler1/oxygen, b/boiler1/oxygen',
        '1 channel judged by the rule "does not follow its flows": leaking/level',
        *shut,
        '1 channel not judged by the rule "does not follow its flows", '
        "level did not follow its flows in the reference: still/level",
        counter,
        no_rule,
    ]
    later = await judgements(recorded, 9000, 9600)
    assert later[:2] == ["no rows: nothing could be judged", "0 channels judged"]
    assert all("no samples in the interval" in line for line in later[1:] if "rule" in line)


async def test_rule_that_needs_a_range_is_not_applied_without_it(recorded: Recording) -> None:
    """The rise of a level is a fraction of its range, and a valve is shut below a hundredth of that of its flow."""
    inlet, outlet = flows()
    leak = np.where(_LATE, -8.0, 0)
    for name, quantity in (("a", "level"), ("b", "inlet_flow"), ("c", "outlet_flow")):
        await tank(recorded, name, inlet, outlet, leak, without_range=quantity)
    rows = await recorded.ask("implausible", at(3600), at(5400))
    assert sorted({(row["channel"], row["rule"]) for row in rows}) == [
        ("b/level", "does not follow its flows"),
        ("c/level", "does not follow its flows"),
    ]
    fills, falls = "fills while its inlet is shut", "falls while its outlet is shut"
    assert [line for line in await judgements(recorded, 3600, 5400) if "rule" in line] == [
        '2 channels judged by the rule "does not follow its flows": b/level, c/level',
        f'1 channel judged by the rule "{falls}": b/level',
        f'1 channel judged by the rule "{fills}": c/level',
        '1 channel not judged by the rule "does not follow its flows", level has no range: a/level',
        f'1 channel not judged by the rule "{falls}", level has no range: a/level',
        f'1 channel not judged by the rule "{falls}", outlet flow has no range: c/level',
        f'1 channel not judged by the rule "{fills}", inlet flow has no range: b/level',
        f'1 channel not judged by the rule "{fills}", level has no range: a/level',
    ]
