"""Step 6: figures normalised to 0 to 1, weighted, ranked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.errors import ConfigError, Problem
from lab.bench.choose.adapters.installed import read_toml

WEIGHTS = Path(__file__).with_name("weights.toml")
CRITERIA: dict[str, Literal["more", "less"]] = {  # which is better
    "ingest_batch": "more",
    "ingest_clients": "more",
    "sustained": "more",
    "query_p95": "less",
    "bytes_per_sample": "less",
    "answers": "more",
}
_TOLERANCE = 1e-6  # of the sum


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """A row of the decision matrix."""

    name: str
    shares: dict[str, float]  # of each criterion, 0 to 1
    score: float  # 0 to 1


def normalise(figures: Mapping[str, float | None], better: Literal["more", "less"]) -> dict[str, float]:
    """Name → its figure as a share of the best one: 1 is the best, half as good is 0.5, no figure is 0."""
    available = [figure for figure in figures.values() if figure is not None and figure > 0]
    shares = dict.fromkeys(figures, 0.0)
    for name, figure in figures.items():
        if figure is not None and figure > 0:
            shares[name] = figure / max(available) if better == "more" else min(available) / figure
    return shares


def rank(figures: Mapping[str, Mapping[str, float | None]], weights: Mapping[str, float]) -> list[MatrixRow]:
    """The matrix, the best first. ``figures``: contestant → criterion → figure."""
    shares = {
        criterion: normalise({name: of.get(criterion) for name, of in figures.items()}, better)
        for criterion, better in CRITERIA.items()
    }
    rows = []
    for name in figures:
        own = {criterion: shares[criterion][name] for criterion in CRITERIA}
        rows.append(MatrixRow(name, own, sum(weights[criterion] * own[criterion] for criterion in CRITERIA)))
    return sorted(rows, key=lambda row: (-row.score, row.name))


def read_weights(file: Path) -> dict[str, float]:
    """Criterion → weight. Raises ConfigError with all that is wrong with ``file``."""
    table = read_toml(file).get("weights")
    if not isinstance(table, dict):
        raise ConfigError([Problem(str(file), None, "weights", "no such table", "[weights] with a number for each")])
    problems = []
    for name, weight in table.items():
        if name not in CRITERIA:
            problems.append(Problem(str(file), None, f"weights.{name}", "no such criterion", ", ".join(CRITERIA)))
        elif isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight <= 1:
            problems.append(Problem(str(file), None, f"weights.{name}", repr(weight), "a number from 0 to 1"))
    problems += [
        Problem(str(file), None, f"weights.{name}", "nothing", "a number from 0 to 1")
        for name in CRITERIA
        if name not in table
    ]
    if not problems and not math.isclose(sum(table.values()), 1, abs_tol=_TOLERANCE):
        problems.append(Problem(str(file), None, "weights", f"a sum of {sum(table.values()):g}", "a sum of 1"))
    if problems:
        raise ConfigError(problems)
    return {name: float(table[name]) for name in CRITERIA}
