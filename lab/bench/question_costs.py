"""Costs of each question of ``plantlog ask`` over archived days that are as large as those of a plant.

Each is asked by a process of its own, as users do, so that its CPU and its memory are known. What PostgreSQL spends on
events and gaps, and for its sessions, does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from core.paths import CHECKOUT, State
from core.timestamps import begin
from lab.bench.generated_archive import ArchivePlan, existing_plan, make, place_of, state_of
from lab.bench.generated_plant import TARGET, UPSET_HOUR, channel
from lab.bench.server import private
from lab.bench.termination import run
from lab.bench.usage import peak_mib, process_tree, used_seconds
from schema.question_files import REFERENCE, Question, questions

NAMES = tuple(questions())
SPANS = ("day", "hour", "month")
_LEARNS = timedelta(hours=1)  # from before an interval, at most
_TIMEOUT = "2h"  # of a question
_POLL_SECONDS = 0.05
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Span:
    """An interval of some channels."""

    name: str
    first: datetime
    until: datetime
    channels: int
    few: bool  # whether they are named, and not all
    whole: bool  # whether nothing is archived before: what a question learns from is within

    @property
    def samples(self) -> int:
        """Number of samples at 1 Hz."""
        return self.channels * round((self.until - self.first).total_seconds())

    def since(self, question: Question) -> datetime:
        """Begin of the interval of a question."""
        parameter, before = question.reads_from
        if not self.whole:
            return self.first
        if any("the interval" in one.automatic for one in question.parameters if one.type == REFERENCE):
            return self.first + (self.until - self.first) / 2  # it reads as long before
        return self.first + (_LEARNS if before or parameter == REFERENCE else timedelta())


@dataclass(frozen=True, slots=True)
class QuestionCost:
    """One question over one span."""

    span: str
    question: str
    samples: int  # of the span
    rows: int | None  # None: it failed
    seconds: float
    cpu_seconds: float
    peak_mib: float  # of its processes together
    error: str

    @property
    def cpu_ns(self) -> float:
        """CPU (ns) of a sample."""
        return self.cpu_seconds / self.samples * 1e9


def spans(plan: ArchivePlan) -> dict[str, Span]:
    """Spans by name."""
    last, bounds = plan.last, (plan.hours.start, plan.hours.stop)
    first, until = (begin(last, hour) for hour in bounds)
    hour = begin(last, UPSET_HOUR)
    return {
        "day": Span("day", first, until, plan.channels, few=False, whole=True),
        "hour": Span("hour", hour, hour + timedelta(hours=1), plan.channels, few=False, whole=False),
        "month": Span("month", begin(plan.first, bounds[0]), until, plan.few, few=True, whole=True),
    }


def measure(
    folder: Path, plan: ArchivePlan, over: Sequence[str], names: Sequence[str], progress: ProgressCallback
) -> tuple[ArchivePlan, list[QuestionCost]]:
    """Ask the archive in a folder, which is generated if the folder is empty; what it has, and the costs."""
    kept = existing_plan(folder)
    place_of(folder).mkdir(parents=True, exist_ok=True)
    with private(folder) as database:
        if kept is None:
            run(make(database.owner_dsn, folder, plan, progress))
        plan = kept or plan
        return plan, run(_ask_all(state_of(folder), [spans(plan)[name] for name in over], names, progress))


async def _ask_all(
    state: State, over: Sequence[Span], names: Sequence[str], progress: ProgressCallback
) -> list[QuestionCost]:
    costs = []
    for span in over:
        for name in names:
            costs.append(await ask(state, questions()[name], span))
            progress(f"{name} was asked over the {span.name}: {costs[-1].seconds:.1f} s")
    return costs


def command(question: Question, span: Span) -> list[str]:
    """The arguments of plantlog."""
    interval = ("--from", span.since(question).isoformat(), "--to", span.until.isoformat())
    channels = [channel(number).name for number in range(1, span.channels + 1)] if span.few else []
    target = [channel(TARGET + 1).name] if any(parameter.name == "target" for parameter in question.parameters) else []
    options = ("--json", "--timeout", _TIMEOUT, *_each("--channel", channels), *_each("--target", target))
    return ["ask", question.name, *interval, *options]


def _each(option: str, values: Sequence[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)


async def ask(state: State, question: Question, span: Span) -> QuestionCost:
    """Ask by a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PLANTLOG_STATE": str(state.root)}
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as errors:
        started, before, peak = time.perf_counter(), used_seconds(resource.RUSAGE_CHILDREN), 0.0
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "ops", *command(question, span)),
            env=environment,
            stdout=answer,
            stderr=errors,
        )
        ended = asyncio.create_task(process.wait())
        try:
            while not (await asyncio.wait({ended}, timeout=_POLL_SECONDS))[0]:
                peak = max(peak, sum(peak_mib(child.pid) for child in process_tree(process.pid)))
        finally:
            if process.returncode is None:
                process.kill()
                await ended
        seconds, used = time.perf_counter() - started, used_seconds(resource.RUSAGE_CHILDREN) - before
        answer.seek(0)
        errors.seek(0)
        rows: list[Any] | None = json.load(answer) if process.returncode == 0 else None
        error = "" if rows is not None else errors.read().decode()
    n = None if rows is None else len(rows)
    return QuestionCost(span.name, question.name, span.samples, n, seconds, used, peak, error)
