"""Episodes of channels outside their usual band."""

from __future__ import annotations

from typing import Any

import numpy as np

from core.batch import Float64s
from history.sql.kernels.episodes import Episodes
from history.sql.kernels.reference import (
    CONSTANT,
    DRIFTING,
    JUDGED,
    MOSTLY_MISSING,
    NO_SAMPLES,
    SHORT_REFERENCE,
    UNLIKE,
)
from history.sql.kernels.unit_means import UnitMeans


def rows(reference: Float64s, values: Float64s, spans: dict[int, float] | None = None) -> list[dict[str, Any]]:
    kernel = Episodes(1000, 10, 10 * 20 * len(values), spans or {})
    return [row for row in of_unit(kernel, reference, values) if row.get("verdict") is None]


def of_unit(kernel: Episodes, reference: Float64s, values: Float64s) -> list[dict[str, Any]]:
    return list(kernel.of_unit(UnitMeans(1, np.array([7], np.int32), reference[:, None], values[:, None])))


def verdict(reference: Float64s, values: Float64s) -> int:
    return next(row["verdict"] for row in of_unit(Episodes(1000, 10, 1000, {}), reference, values))  # type: ignore[no-any-return]


def noise(seed: int, n: int) -> Float64s:
    return np.random.default_rng(seed).normal(5, 1, n)


def test_calm_channels_have_an_episode_about_as_often_as_is_accepted() -> None:
    episodes = [row for seed in range(100) for row in rows(noise(seed, 300), noise(1000 + seed, 300))]
    assert len(episodes) <= 12, episodes  # 5 are expected


def test_heavy_tails_have_wider_bands() -> None:
    heavy = np.random.default_rng(1).standard_t(2, (100, 2, 300))
    assert sum(bool(rows(reference, values)) for reference, values in heavy) <= 30


def test_episodes_of_both_directions() -> None:
    values = noise(2, 200)
    values[50:60] += 20
    values[56] += 5
    values[120:] -= 30
    up, down = rows(noise(1, 300), values)
    assert (up["from_time"], up["to_time"], up["peak_time"]) == (1500, 1600, 1560)
    assert up["peak"] - up["usual"] > up["least"] > 0
    assert (down["from_time"], down["to_time"]) == (2200, None)
    assert down["usual"] - down["peak"] > down["least"]


def test_missing_values_are_in_no_episode() -> None:
    reference, values = noise(1, 300), noise(2, 200)
    reference[::4] = np.nan
    values[50:100] = np.nan
    assert rows(reference, values) == []


def test_what_cannot_be_judged() -> None:
    gone = np.full(200, np.nan)
    mostly_gone, faulty = noise(1, 300), noise(1, 300)
    mostly_gone[60:240] = np.nan
    faulty[100:160] += 20
    as_usual = noise(2, 200)
    as_usual[100:140] += 20
    for reference, values, expected in (
        (noise(1, 39), noise(2, 200), SHORT_REFERENCE),
        (noise(1, 300), gone, NO_SAMPLES),
        (np.full(100, 3.0), np.full(100, 4.0), CONSTANT),
        (mostly_gone, noise(2, 200), MOSTLY_MISSING),
        (faulty, noise(2, 200), UNLIKE),
        (faulty, as_usual, JUDGED),
        (noise(1, 300) + np.linspace(0, 4, 300), noise(2, 200) + 2, DRIFTING),
        (noise(1, 300), noise(2, 200), JUDGED),
    ):
        assert (verdict(reference, values), rows(reference, values)) == (expected, [])


def test_limits_are_those_of_the_whole_unit() -> None:
    def limits(channels: int) -> list[float]:
        before, now = (np.repeat(noise(seed, 300)[:, None], channels, axis=1) for seed in (1, 2))
        now[50:60] += 40
        means = UnitMeans(1, np.arange(channels, dtype=np.int32), before, now)
        return [row["least"] for row in Episodes(0, 10, 60_000, {}).of_unit(means) if row.get("verdict") is None]

    [alone], together = limits(1), limits(30)
    assert len(together) == 30
    assert min(together) > alone, "more channels, fewer episodes of each"
