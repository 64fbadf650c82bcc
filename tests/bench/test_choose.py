"""`plantlog bench choose` over real servers: answers are equal to the bit, and a wrong one is found out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lab.bench.choose import tables
from lab.bench.choose.adapters.plantlog import Plantlog
from lab.bench.choose.adapters.postgresql import PostgreSql
from lab.bench.choose.answers import AS_SENT, CONFLICT, SCORED
from lab.bench.choose.contestants import ALL, contestants
from lab.bench.choose.matrix import WEIGHTS, rank, read_weights
from lab.bench.choose.plan import Plan
from lab.bench.choose.plots import plot
from lab.bench.choose.results import combine
from lab.bench.choose.steps import measure
from lab.bench.data import SEVERITY_BAD, Columns

PLAN = Plan(8, 1200, 0.1, 0.3, 0.5, 500, 1)
SIZES, CLIENTS = (100, 1_000), (1, 2)  # instead of up to 100,000 samples a batch, of eight clients
OTHERS = [name for name in ALL if not name.startswith(("plantlog", "postgresql"))]
ROUNDS_OR_REFUSES = {"extremes", "times", "values", "a sample sent twice"}  # what one or another of them does


class Wrong(PostgreSql):
    """Loses and alters samples of every channel, and takes what is Uncertain for Good."""

    name = "wrong"
    every = 101  # whatever is asked has some, as this and PLAN's number of channels have no common divisor

    async def write(self, columns: Columns, client: int) -> None:
        value = columns.value.copy()
        value[:: self.every] += 1e-9
        status = np.where(columns.status < SEVERITY_BAD, 0, columns.status).astype(np.uint32)
        kept = np.arange(len(columns)) % self.every != self.every // 2
        await super().write(Columns(*(c[kept] for c in (columns.channel, columns.time, value, status))), client)


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("steps", "tables"):
        monkeypatch.setattr(f"lab.bench.choose.{module}.SIZES", SIZES)
        monkeypatch.setattr(f"lab.bench.choose.{module}.CLIENTS", CLIENTS)


async def test_benchmark_steps_and_exact_answers(tmp_path: Path) -> None:
    lines: list[str] = []
    found = await measure([Plantlog("packed"), PostgreSql(None), Wrong(None)], PLAN, lines.append)
    results = [combine(repeats) for repeats in found]
    assert [result.failed for result in results] == [None] * 3
    packed, plain, wrong = results
    for result in (packed, plain):
        assert {check: result.answers[check] for check in SCORED} == dict.fromkeys(SCORED, AS_SENT)
        assert result.answers[CONFLICT] == "the first stays"
        assert set(result.by_size) == set(SIZES)
        assert set(result.by_clients) == set(CLIENTS)
        assert min(*result.by_size.values(), *result.by_clients.values()) > 0
        assert result.queries >= 1
        assert all(figure is not None for figure in result.figures().values())
    assert plain.bytes_per_sample is not None
    assert packed.bytes_per_sample is not None
    assert packed.bytes_per_sample < plain.bytes_per_sample / 2
    assert wrong.answers["samples"].endswith("missing")
    assert "off by up to" in wrong.answers["values"]
    assert wrong.answers["statuses"].endswith("are others")
    ranked = rank({result.name: result.figures() for result in results}, read_weights(WEIGHTS))
    assert len(tables.steps(results, PLAN)) == 6
    plot(results, ranked, read_weights(WEIGHTS), tmp_path / "plots")
    drawn = sorted((tmp_path / "plots").iterdir())
    assert [file.name[:2] for file in drawn] == ["1-", "2-", "3-", "4-", "5-", "6-"]
    assert all("<!-- plantlog packed -->" in file.read_text() for file in drawn)


@pytest.mark.parametrize("name", OTHERS)
async def test_installed_contestants_are_measured(name: str) -> None:
    contestant = contestants(None, name)[name]
    if reason := contestant.available():
        pytest.skip(f"{contestant.installation}: {reason}")
    ((measured,),) = await measure([contestant], PLAN, lambda line: None)
    assert measured.failed is None
    assert {check for check in SCORED if measured.answers[check] != AS_SENT} <= ROUNDS_OR_REFUSES
