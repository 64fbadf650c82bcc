"""Events that the questions of ``plantlog ask`` find, of those that others recorded and labelled, beside a PCA.

Each question is asked about a window around each event, as by somebody who knows that something happened, but not when:
by its defaults, and with options for the recording. A quarter to three quarters of the calm time are before the event.
An event is found if one of the first rows of the answer has a time within it.
"""

from __future__ import annotations

import hashlib
import resource
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa

from core.batch import Float64s, Int64s
from core.database import connected
from core.errors import PlantlogError
from core.paths import State
from core.samples import Samples
from core.timestamps import microseconds, timestamp
from history.imports.whole_hours import copy_packed, packed_days
from history.notebook import ask
from lab.bench.recordings import Event, Recording, Span, read
from lab.bench.server import private
from lab.bench.termination import run
from lab.bench.usage import used_seconds
from ops.registration.installation import installation_id
from schema.queries import load
from schema.question_files import questions

HALVES = ("tuned", "reported")
PCA = "pca"  # by hand, beside the questions
_OTHERS = ("aggregates", "interpolated", "gaps_and_coverage")  # questions that are not about events
NAMES = (
    *(
        name
        for name, question in questions().items()
        if name not in _OTHERS and all(p.name in ("since", "until") or not p.required for p in question.parameters)
    ),
    PCA,
)
_FIRST_ROWS = 10  # of an answer, as a screen shows them
_EARLY = 2  # samples that a time may be before the event
_CALM_WINDOWS = 20
_AT_ONCE = 4  # questions
_DAY_US = 86_400_000_000
_KEPT_VARIANCE = 0.9  # of the components of a PCA
_ALARM_ROWS = 3  # in a row above the limit
_MARGIN = 1.2  # of a limit above the highest value of the reference
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Finding:
    """An answer about one event, or about a calm window."""

    project: str
    question: str
    options: str  # default or tuned
    event: str  # empty: calm
    since: str  # of the window
    until: str
    rows: int
    found: bool
    onset: float | None  # samples from the begin of the event to the first time within it
    rank: int | None  # of the first channel of the cause among those of the answer
    has_cause: bool  # whether the cause is known
    cpu_seconds: float  # mean of the question over the project
    error: str


@dataclass(frozen=True, slots=True)
class Row:
    """Parts of a row of an answer that are compared."""

    times: tuple[int, ...]  # µs
    channels: tuple[str, ...]


def measure(
    folder: Path,
    recordings: Path,
    names: Sequence[str],
    question_names: Sequence[str],
    tuned: bool,
    halves: Sequence[str],
    progress: ProgressCallback,
) -> list[Finding]:
    """Load the recordings of projects into a private database in ``folder``, and ask.

    ``names``: of projects; ``question_names``: the PCA may be among them; ``halves``: of the events.
    """
    by_project = {name: read(recordings, name) for name in names}
    findings = list[Finding]()
    with private(folder) as database:
        state = State(folder / "server")
        run(_load(database.owner_dsn, state, [one for of_project in by_project.values() for one in of_project]))
        for note in (note for of_project in by_project.values() for one in of_project for note in one.notes()):
            progress(note)
        progress("the recordings are loaded")
        for name, of_project in by_project.items():
            for question in question_names:
                options = of_project[0].project.tuned.get(question) if tuned else None
                for kind, chosen in (("default", {}), *([("tuned", options)] if options else [])):
                    added = _findings(state, of_project, question, kind, chosen, halves)
                    n, calm_rows = sum(one.found for one in added), sum(one.rows for one in added if not one.event)
                    progress(f"{name}: {question} ({kind}) found {n} events, and {calm_rows} rows in calm windows")
                    findings += added
    return findings


async def _load(dsn: str, state: State, recordings: Iterable[Recording]) -> None:
    """Register the channels, and store the samples as packed hours."""
    async with connected(dsn, "plantlog bench") as connection:
        for number, recording in enumerate(recordings):
            prefix = recording.project.discrete
            kinds = ["discrete" if prefix and c.startswith(prefix) else "analog" for c in recording.channels]
            names = [f"{recording.unit}/{channel}" for channel in recording.channels]
            since = timestamp(int(recording.time[0]) - _DAY_US)
            rows = await connection.fetch(
                load("bench")["insert_recorded_channels"], recording.unit, names, kinds, recording.step_us / 1e6, since
            )
            if not number:
                await connection.execute(load("bench")["insert_installation"], installation_id(state))
            await _store(connection, recording, np.array([row["id"] for row in rows], np.int32))


async def _store(connection: asyncpg.Connection[Any], recording: Recording, ids: Any) -> None:
    days = await packed_days(connection, recording.time)
    for begin, end in pairwise([0, *(np.flatnonzero(np.diff(recording.time // _DAY_US)) + 1), len(recording.time)]):
        time, value = recording.time[begin:end], recording.value[begin:end]
        channel, n = np.repeat(ids, len(time)), value.size
        samples = Samples(channel, np.tile(time, len(ids)), value.T.ravel(), np.zeros(n, np.uint32))
        samples = samples.part(~np.isnan(samples.value))
        if len(samples):  # of a day without a value there are none
            async with connection.transaction():
                await copy_packed(days, connection, samples)


def window(event: Event, calm: int) -> Span:
    """The interval that is asked about: a part of the calm (µs) before an event, which its name decides, and it."""
    part = 0.25 + 0.5 * _digest(event.name)[0] / 255
    return event.since - round(part * calm), event.until


def half_of(event: Event) -> str:
    """The half of an event: thresholds are tuned on one, and what the other has is reported."""
    return HALVES[_digest(event.name)[1] % 2]


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()


def _findings(
    state: State,
    recordings: Sequence[Recording],
    question: str,
    kind: str,
    options: Mapping[str, Any],
    halves: Sequence[str],
) -> list[Finding]:
    events = [(one, event) for one in recordings for event in one.events_apart if half_of(event) in halves]
    windows = [(one, span) for one in recordings for span in one.calm_windows()]
    chosen = np.unique(np.linspace(0, len(windows) - 1, _CALM_WINDOWS).round().astype(int)).tolist()
    cases: list[tuple[Recording, Event | None, Span]] = [
        *((one, event, window(event, one.project.calm_us)) for one, event in events),
        *((windows[index][0], None, windows[index][1]) for index in chosen),
    ]

    def ask_about(case: tuple[Recording, Event | None, Span]) -> tuple[list[Row], str]:
        recording, _, span = case
        if question == PCA:
            return alarm(recording, span), ""
        since, until = map(timestamp, span)
        try:
            answer = ask(question, since=since, until=until, channels=[f"{recording.unit}/*"], state=state, **options)
        except PlantlogError as problem:
            return [], str(problem)
        return answer_rows(answer, f"{recording.unit}/"), ""

    started = _cpu_seconds()
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(ask_about, cases))
    cpu = (_cpu_seconds() - started) / len(cases)
    return [judged(*case, question, kind, rows, cpu, error) for case, (rows, error) in zip(cases, answers, strict=True)]


def _cpu_seconds() -> float:
    return used_seconds(resource.RUSAGE_SELF) + used_seconds(resource.RUSAGE_CHILDREN)


def answer_rows(answer: pa.Table, prefix: str) -> list[Row]:
    """The times of each row, and its channels (names, or lists of them) without a prefix, whatever the question."""
    rows = []
    for row in answer.to_pylist():
        values = [one for value in row.values() for one in (value if isinstance(value, list) else [value])]
        times = tuple(microseconds(value) for value in values if isinstance(value, datetime))
        names = (value for value in values if isinstance(value, str) and value.startswith(prefix))
        rows.append(Row(times, tuple(name.removeprefix(prefix) for name in names)))
    return rows


def judged(
    recording: Recording,
    event: Event | None,
    span: Span,
    question: str,
    kind: str,
    rows: Sequence[Row],
    cpu: float,
    error: str,
) -> Finding:
    """Compare an answer with the label of an event; None: the window is calm."""
    project, onset, rank, is_found = recording.project, None, None, False
    causes = () if event is None else project.causes_of(event.name)
    if event is not None:
        early = event.since - _EARLY * recording.step_us
        matching = [row for row in rows if not row.times or any(early <= at < event.until for at in row.times)]
        first = [row for row in rows[:_FIRST_ROWS] if row in matching]
        is_found = bool(first)
        within = [at for row in first for at in row.times if early <= at < event.until]
        if within and project.onset:
            onset = (min(within) - event.since) / recording.step_us
        named = set(causes).intersection(channel for row in matching for channel in row.channels)
        channels = dict.fromkeys(channel for row in rows for channel in row.channels)  # as they are read
        rank = next((n for n, channel in enumerate(channels, 1) if channel in named), None)
    since, until = (timestamp(at).isoformat() for at in span)
    name = "" if event is None else event.name
    return Finding(
        *(project.name, question, kind, name, since, until, len(rows)),
        *(is_found, onset, rank, bool(causes), cpu, error),
    )


def alarm(recording: Recording, span: Span) -> list[Row]:
    """A row of the first alarm of a PCA's T² or SPE, the channels farthest from usual first; none: no alarm.

    It learns from the calm before the window; where that is too short, from all calm windows of the recording. In place
    of a missing value it takes the last one.
    """
    recording = recording.filled()
    reference = recording.between(span[0] - recording.project.calm_us, span[0])
    if len(reference) < 4 * len(recording.channels):
        reference = np.concatenate([recording.between(*window) for window in recording.calm_windows()])
    mean, spread = reference.mean(0), reference.std(0)
    is_moving = spread > 0
    inside = (recording.time >= span[0]) & (recording.time < span[1])

    def scaled(values: Float64s) -> Float64s:
        deviation: Float64s = (values[:, is_moving] - mean[is_moving]) / spread[is_moving]
        return deviation

    learnt, seen = scaled(reference), scaled(recording.value[inside])
    if learnt.shape[1] < 3:
        return []
    _, singular, axes = np.linalg.svd(learnt, full_matrices=False)
    kept = int(np.searchsorted(np.cumsum(singular**2) / np.sum(singular**2), _KEPT_VARIANCE)) + 1
    axes, variance = axes[:kept], singular[:kept] ** 2 / len(learnt)

    def statistics(values: Float64s) -> tuple[Float64s, Float64s]:
        scores = values @ axes.T
        return (scores**2 / variance).sum(1), ((values - scores @ axes) ** 2).sum(1)

    t2, spe = statistics(learnt)
    seen_t2, seen_spe = statistics(seen)
    above = (seen_t2 > _MARGIN * t2.max()) | (seen_spe > _MARGIN * spe.max())
    in_row = np.convolve(above, np.ones(_ALARM_ROWS), "valid") == _ALARM_ROWS
    if not in_row.any():
        return []
    first = int(np.argmax(in_row))
    names = np.array(recording.channels)[is_moving]
    order = np.argsort(-np.abs(seen[first : first + _ALARM_ROWS]).sum(0))
    times: Int64s = recording.time[inside]
    return [Row((int(times[first]),), tuple(names[order].tolist()))]
