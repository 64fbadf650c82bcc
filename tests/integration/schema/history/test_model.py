"""The functions of docs/sql.md against a slow model of OPC 10000-13, for any samples, gaps and configuration."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from fractions import Fraction
from typing import Any

import asyncpg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from core.timestamps import timestamp
from tests.database import add_channels, add_sources
from tests.integration.schema.history import model
from tests.integration.schema.history.model import Configuration, History, Point
from tests.sample_tables import DAY_US

SECOND, HOUR = 1_000_000, 3_600_000_000
_STATUS = {
    model.GOOD: (0, 0x00960000),
    model.UNCERTAIN: (0x40000000, 0x40940000),
    model.BAD: (-0x80000000, -0x7FFB0000),
}
_BASE = "$1, $2, $3, step => $4, treat_uncertain_as_bad => $5"
_PERCENT = "percent_data_bad => $6, percent_data_good => $7"
_LINES = "stepped => $6, simple_bounds => $7, use_sloped_extrapolation => $8"


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Point], list[int], int, int, int]:
    """Samples, starts of gaps, and begin, end and step of a window; in µs."""
    unit = draw(st.sampled_from((1, SECOND, HOUR)))
    times = st.builds(lambda a, b: a * unit + b, st.integers(-40, 80), st.sampled_from((0, 0, 0, 1, -1)))
    at = draw(st.lists(times, max_size=12, unique=True))
    qualities = st.sampled_from((model.GOOD,) * 4 + (model.UNCERTAIN, model.BAD))
    values = st.one_of(st.integers(-3, 3), st.sampled_from((0.1, 1e6, -1e-9)))
    samples = []
    for time in sorted(at):
        quality = draw(qualities)
        samples.append(Point(time, Fraction(draw(values)), quality, draw(st.sampled_from(_STATUS[quality]))))
    gaps = draw(st.lists(st.one_of(st.sampled_from(at), times) if at else times, max_size=3, unique=True))
    begin = draw(times)
    end = begin + draw(st.integers(1, 60)) * unit
    step = draw(st.integers(max(1, (end - begin) // 9), end - begin + unit))
    return samples, gaps, begin, end, step


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    bad = draw(st.sampled_from((100, 100, 50, 30, 0)))
    good = draw(st.integers(100 - bad, 100))
    flags = [draw(st.booleans()) for _ in range(4)]
    return Configuration(flags[0], flags[1], flags[2], bad, good, flags[3])


async def check(
    owner: asyncpg.Connection[Any], data: tuple[list[Point], list[int], int, int, int], configuration: Configuration
) -> None:
    """All functions over one window."""
    samples, gaps, begin, end, step = data
    await owner.executemany(
        "INSERT INTO plant.samples_raw (channel_id, time, value, status) VALUES (1, $1, $2, $3)",
        [(timestamp(DAY_US + s.time), float(s.value), s.status) for s in samples],
    )
    await owner.executemany(
        "INSERT INTO plant.gap (source_id, from_time, reason) VALUES (1, $1, 'stopped')",
        [(timestamp(DAY_US + gap),) for gap in gaps],
    )
    window = (timestamp(DAY_US + begin), timestamp(DAY_US + end), timedelta(microseconds=step))
    base = (1, *window, configuration.treat_uncertain_as_bad)
    percent = (configuration.percent_data_bad, configuration.percent_data_good)
    lines = (configuration.stepped, configuration.simple_bounds, configuration.use_sloped_extrapolation)

    async def rows(function: str, arguments: str, *values: object) -> list[tuple[Any, ...]]:
        return [tuple(row)[1:] for row in await owner.fetch(f"SELECT * FROM plant.{function}({arguments})", *values)]

    history = History(samples, gaps, configuration)
    expected = model.averages(history, begin, end, step)
    percents = "percent_data_bad => $9, percent_data_good => $10"
    same(
        await rows("time_average", f"{_BASE}, {_LINES}, {percents}", *base, *lines, *percent), [a for a, _ in expected]
    )
    totals = await rows("total", f"{_BASE}, {_LINES}, {percents}, per => '1 microsecond'", *base, *lines, *percent)
    same([(value, status) for value, _, status in totals], [total for _, total in expected])

    at_starts = model.interpolated(history, begin, end, step)
    same(await rows("interpolated", f"{_BASE}, {_LINES}", *base, *lines), at_starts)
    times = [timestamp(DAY_US + start) for start in range(begin, end, step)]
    found = await owner.fetch(
        "SELECT * FROM plant.at_time(1, $1, $2, $3, $4, $5)", times[::-1], *lines[:2], base[-1], lines[2]
    )
    assert [row["time"] for row in found] == times[::-1]
    same([(row["value"], row["status"]) for row in found], at_starts[::-1])

    held = History(samples, gaps, Configuration(True, True, configuration.treat_uncertain_as_bad, *percent))
    states = await rows("duration_in_state", f"{_BASE}, state => 1, {_PERCENT}", *base, *percent)
    in_state = model.durations(held, Fraction(1), begin, end, step)
    same([(seconds, status) for seconds, _, status in states], [(us and us / SECOND, code) for us, _, code in in_state])
    assert [round(known * SECOND) for _, known, _ in states] == [known for _, known, _ in in_state]

    counts = await rows("count_transitions", f"{_BASE}, {_PERCENT}", *base, *percent)
    same(counts, model.transitions(held, begin, end, step))

    middles = await rows("percentile", f"{_BASE}, fraction => 0.3, {_PERCENT}", *base, *percent)
    same(middles, [(quantile(one.usable), one.status) for one in model.values(held, begin, end, step)])

    for function, candidates in (
        ("value_before", [s for s in samples[::-1] if begin - model.HOLD <= s.time < begin]),
        ("value_after", [s for s in samples if begin < s.time <= begin + model.HOLD]),
    ):
        for worst, name in enumerate(("good", "uncertain", "bad")):
            first = next((s for s in candidates if s.quality <= worst), None)
            row = await owner.fetchrow(f"SELECT * FROM plant.{function}(1, $1, $2)", window[0], name)
            assert (row and tuple(row)) == (
                first and (timestamp(DAY_US + first.time), float(first.value), first.status)
            )


def quantile(values: list[Fraction]) -> Fraction | None:
    """The 0.3 quantile, by a line between the two nearest values."""
    ordered = sorted(values)
    place = Fraction(0.3) * (len(ordered) - 1)
    if not ordered:
        return None
    low = ordered[int(place)]
    return low + (ordered[min(int(place) + 1, len(ordered) - 1)] - low) * (place - int(place))


def same(rows: list[tuple[Any, ...]], expected: list[Any]) -> None:
    """Values to within rounding, StatusCodes exactly. A value whose status is Bad is NULL."""
    assert [hex(row[-1] & 0xFFFFFFFF) for row in rows] == [hex(status) for _, status in expected]
    for (value, status), (model_value, _) in zip(rows, expected, strict=True):
        if status < 0:
            assert value is None
        else:
            assert model_value is not None
            assert value == pytest.approx(float(model_value), rel=1e-9, abs=1e-9)


def far_apart(*hours: int, quality: int = model.GOOD) -> tuple[list[Point], list[int], int, int, int]:
    """Samples at these hours, the second of this quality, in a window of 60 hours."""
    qualities = (model.GOOD, quality, *[model.GOOD] * len(hours))
    samples = [
        Point(hour * HOUR, Fraction(hour), kind, _STATUS[kind][0]) for hour, kind in zip(hours, qualities, strict=False)
    ]
    return samples, [], -HOUR, 59 * HOUR, 7 * HOUR


@pytest.mark.slow
async def test_functions_are_as_defined(owner: asyncpg.Connection[Any]) -> None:
    await add_sources(owner, "a")
    await add_channels(owner, [1])
    loop = asyncio.get_running_loop()

    async def rolled_back(data: Any, configuration: Configuration) -> None:
        transaction = owner.transaction()
        await transaction.start()
        try:
            await check(owner, data, configuration)
        finally:
            await transaction.rollback()

    @example(far_apart(0, 25, 49), Configuration(False, True, False))  # 25 hours are too far to join, 24 are not
    @example(far_apart(0, 25, 49), Configuration(False, False, True))
    @example(far_apart(0, 30, 31), Configuration(False, False, True, use_sloped_extrapolation=True))
    @example(far_apart(0, 30), Configuration(False, False, True, use_sloped_extrapolation=True))
    @example(far_apart(0, 10, 20, quality=model.BAD), Configuration(True, False, True))
    @example(far_apart(0, 10, 20, quality=model.UNCERTAIN), Configuration(True, True, False, 60, 80))
    @example(far_apart(-2, 3, 3 + 7, quality=model.BAD), Configuration(True, True, True, 30, 75))
    @settings(max_examples=12)
    @given(histories(), configurations())
    def examples(data: Any, configuration: Configuration) -> None:
        asyncio.run_coroutine_threadsafe(rolled_back(data, configuration), loop).result()

    run: Callable[[], None] = examples
    await asyncio.to_thread(run)
