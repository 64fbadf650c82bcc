"""Bounds that lie on samples of a packed hour whose step is no whole number of seconds."""

from __future__ import annotations

import math

import asyncpg

from tests.sample_tables import HOUR_US, bits, compress, copy, samples_between

_STEP = 333_333  # µs: in seconds as a double, and back, it is no whole number of µs for some multiples


async def test_bound_exactly_on_a_sample(owner: asyncpg.Connection) -> None:
    await copy(owner, 1, [(i * _STEP, bits(float(i)), 0) for i in range(5000)])
    await compress(owner)
    awkward = [i for i in range(1, 5000) if math.ceil(i * _STEP / 1e6 * 1e6 / _STEP) != i]
    assert awkward
    for i in awkward[:5]:
        before = await samples_between(owner, 1, 0, i * _STEP)
        behind = await samples_between(owner, 1, i * _STEP, HOUR_US)
        assert [len(before), len(behind)] == [i, 5000 - i]
