"""``plantlog bench choose``: runs all steps for the available contestants."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.table import Table

from core.errors import OperationError
from lab.bench.choose import tables
from lab.bench.choose.contestants import contestants
from lab.bench.choose.matrix import rank, read_weights
from lab.bench.choose.plan import plan
from lab.bench.choose.results import combine
from lab.bench.choose.steps import measure

QUICK_MINUTES = 0.3  # for each contestant


async def compare(
    only: str,
    where: Path | None,
    weights_file: Path,
    minutes: float | None,
    repeats: int,
    hours: float | None,
    plot_folder: Path | None,
    progress: Callable[[str], None],
) -> tuple[dict[str, Any], list[Table]]:
    """All steps for those that are here; figures and tables. ``minutes``: None for the quick run, once through."""
    weights = read_weights(weights_file)  # before anything runs
    available = []
    for contestant in contestants(where, only).values():
        if reason := contestant.available():
            progress(f"skipping {contestant.name}: {reason}")
        else:
            available.append(contestant)
    if not available:
        raise OperationError("no contestant is installed: `plantlog bench choose --list` shows how to install them")
    repeats = 1 if minutes is None else repeats
    planned = plan(QUICK_MINUTES * len(available) if minutes is None else minutes, len(available), repeats, hours)
    load = os.getloadavg()[0]
    results = [combine(of) for of in await measure(available, planned, progress)]
    ranked = rank({result.name: result.figures() for result in results}, weights)
    if plot_folder is not None:
        from lab.bench.choose.plots import plot  # noqa: PLC0415 - matplotlib is there for plots only

        plot(results, ranked, weights, plot_folder)
    figures = {
        "plan": asdict(planned),
        "load_before": round(load, 2),
        "contestants": [asdict(result) for result in results],
        "weights": weights,
        "matrix": [asdict(row) for row in ranked],
    }
    return figures, [*tables.steps(results, planned), tables.matrix(ranked, weights)]
