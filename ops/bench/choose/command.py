"""``plantlog bench choose`` as a whole."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from rich.table import Table

from ingest.errors import OperationError
from ops.bench.choose import tables
from ops.bench.choose.contestants import contestants
from ops.bench.choose.matrix import rank, read_weights
from ops.bench.choose.plan import plan
from ops.bench.choose.results import combine
from ops.bench.choose.steps import measure

_T = TypeVar("_T")
QUICK_MINUTES = 0.3  # for each contestant


async def choose(
    only: str,
    where: Path | None,
    weights_file: Path,
    minutes: float | None,
    repeats: int,
    hours: float | None,
    pictures: Path | None,
    say: Callable[[str], None],
) -> tuple[dict[str, Any], list[Table]]:
    """All steps for those that are here; figures and tables. ``minutes``: None for the quick run, once through."""
    weights = read_weights(weights_file)  # before anything runs
    there = []
    for contestant in contestants(where, only).values():
        if reason := contestant.available():
            say(f"without {contestant.name}: {reason}")
        else:
            there.append(contestant)
    if not there:
        raise OperationError("no contestant is here: `plantlog bench choose --list` says how each is installed")
    repeats = 1 if minutes is None else repeats
    planned = plan(QUICK_MINUTES * len(there) if minutes is None else minutes, len(there), repeats, hours)
    load = os.getloadavg()[0]
    results = [combine(of) for of in await until_told(measure(there, planned, say))]
    ranked = rank({result.name: result.figures() for result in results}, weights)
    if pictures is not None:
        from ops.bench.choose.plots import plot  # noqa: PLC0415 - matplotlib is there for plots only

        plot(results, ranked, weights, pictures)
    figures = {
        "plan": asdict(planned),
        "load_before": round(load, 2),
        "choose": [asdict(result) for result in results],
        "weights": weights,
        "matrix": [asdict(row) for row in ranked],
    }
    return figures, [*tables.steps(results, planned), tables.matrix(ranked, weights)]


async def until_told(work: Coroutine[Any, Any, _T]) -> _T:
    """SIGTERM ends the server that runs, too."""
    task = asyncio.create_task(work)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        raise OperationError("ended before it was done") from None
