"""Answers by DuckDB, over archive and database together.

The samples of a large interval do not fit into memory. A question's rows are made of some channels at a time, which are
those of whole units of the plant if it compares these, and put in order at the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from core.formatting import count, duration, names_text
from core.paths import State
from history.questions.drawing import POINTS, Drawing, named_channels, names_without_curve
from history.questions.request import DAYS_BEFORE, Request, time_text
from history.sql.session import OutOfMemoryError, Session, opened
from history.sql.sources.cluster import Cluster
from history.sql.sources.execution import Limits
from schema.queries import load

if TYPE_CHECKING:
    from history.sql.sources.plants import PlantArchives

_SAMPLES = 300_000_000  # of a portion: four hours of 20,000 channels, or two months of 50
_MEASURED = 30  # channels, at most, to learn the sampling interval from
_MIXED = 10  # times: where sampling intervals differ more, one step is not for all channels
NOTHING_JUDGED = "no rows: nothing could be judged"  # first line of the notes of such an answer
_NONE = "0 channels judged"
_MAX_NAMES = 5  # that an answer without rows lists
_CREATE, _INSERT = "CREATE TEMP TABLE portion_rows AS", "INSERT INTO portion_rows"
_WINDOWS = "CREATE TEMP TABLE windows AS SELECT unnest($1::TIMESTAMPTZ[]) AS since, unnest($2::TIMESTAMPTZ[]) AS until"
_TOGETHER: Mapping[str, Callable[[tuple[str, str]], str]] = {  # by name and unit of the plant
    "channel": lambda channel: channel[0],
    "unit": lambda channel: channel[1],
    "namesake": lambda channel: channel[1].rpartition("/")[2],
    "sister": lambda channel: re.sub("[0-9]+", "", channel[1].rpartition("/")[2]),
}


@contextmanager
def answer_session(
    state: State,
    request: Request,
    limits: Limits,
    executor: Executor | None = None,
    archives: PlantArchives | None = None,
) -> Iterator[Session]:
    """A session in which the answer is the table ``answer``, ``notes`` has lines for people about it, and ``windows``
    the interval that it is about, behind that which it is compared with.

    ``archives``: those that the request is about. Raises OperationError or DatabaseError.
    """
    ends = time.monotonic() + limits.seconds
    executor = executor or limits.executor(state.root, None if archives is None else archives.questions)
    with opened(state, limits, request.installation, request.question, executor, archives=archives) as session:
        compares_days, sampling = request.compares_days, _Sampling()
        if request.needs_sampling:
            sampling = _sampling(session, request)
            request = request.with_sampling(sampling.usual)
        add = _CREATE
        for portion in portions(request):
            _add(session, request, portion, add, ends)
            add = _INSERT
        habits = list(_without_habits(session, request, ends)) if compares_days else []
        session.execute(f"CREATE TEMP TABLE answer AS\n{request.question.finish}", (), ends)
        computed = [executor.note] if isinstance(executor, Cluster) else []
        lines = [*request.notes(), *sampling.notes(), *_judgements(session), *habits, *computed]
        session.execute("CREATE TEMP TABLE notes AS SELECT unnest($1::TEXT[]) AS line", [lines], ends)
        session.execute(_WINDOWS, list(zip(*request.windows, strict=True)), ends)
        yield session


def drawing(session: Session, title: str, points: int = POINTS, first: Sequence[str] = ()) -> Drawing:
    """Drawing of the answer: the channels that it names, in the interval and in the one that it is compared with.

    ``points``: buckets of each; ``first``: channels that are drawn before the others.
    """
    rows = session.table("FROM answer")
    with session.rows("FROM windows") as (_, edges):
        windows = [(since, until) for since, until in edges]
    drawn, left_out = named_channels(rows, first=first)
    names = [*drawn, *left_out]
    with session.rows(load("duckdb")["select_kinds"], [names]) as (_, rows_of_kinds):
        without_curve = names_without_curve(names, dict(rows_of_kinds))
    return Drawing.of(_SessionCurves(session), title, rows, windows, without_curve, points, first)


@dataclass(frozen=True, slots=True)
class _SessionCurves:
    session: Session

    def curves(self, names: Sequence[str], since: datetime, until: datetime, step: timedelta) -> Any:
        width = step // timedelta(microseconds=1)
        return self.session.table(load("duckdb")["select_curves"], [names, since, until, width])

    def held(self, names: Sequence[str], since: datetime, at: datetime) -> Any:
        return self.session.table(load("duckdb")["select_held"], [names, since, at])

    def gaps(self, names: Sequence[str], since: datetime, until: datetime) -> Any:
        return self.session.table(load("duckdb")["select_gaps_of_curves"], [names, since, until])


def notes(session: Session, request: Request) -> str:
    """Lines for people about an answer: what it depends on, which channels were judged, and why there are no rows."""
    with session.rows("FROM notes") as (_, rows):
        lines = [line for (line,) in rows]
    with session.rows("SELECT count(*) FROM answer") as (_, rows):
        [(n,)] = rows
    if not n and _NONE in lines:
        lines.insert(0, NOTHING_JUDGED)
    elif not n:
        lines.insert(0, "no rows" if any("judged" in line for line in lines) else _explain_empty(session, request))
    return "\n".join(lines)


class _Sampling(NamedTuple):
    """Times (s) between samples of channels, as usual_intervals() of DuckDB has them."""

    usual: float | None = None  # None: they have no samples
    shortest: float = 0.0
    longest: float = 0.0

    def notes(self) -> Iterator[str]:
        """A line for people where they differ so much that one step is not for all channels."""
        if self.longest > _MIXED * self.shortest:
            extremes = f"{duration(self.shortest)} to {duration(self.longest)}"
            yield f"channels have samples every {extremes}: ask about those of one kind apart"


def _sampling(session: Session, request: Request) -> _Sampling:
    """Sampling intervals of the channels.

    States don't count: they may report only changes, which are as far apart as the process makes them.
    """
    with session.rows(load("duckdb")["select_kinds"], [request.values["channels"]]) as (_, of_channels):
        kinds = dict(of_channels)
    names = [name for name, _ in request.channels if kinds.get(name) in ("analog", "counter")]
    some = names[:: -(-len(names) // _MEASURED)] if names else []
    query = "SELECT usual_intervals($1::TEXT[], $2::TIMESTAMPTZ, $3::TIMESTAMPTZ)"
    with session.rows(query, [some, request.values["since"], request.values["until"]]) as (_, rows):
        [(intervals,)] = rows
    return _Sampling(*intervals or ())


def _judgements(session: Session) -> Iterator[str]:
    """The number of channels that were judged, and those that were not, where the rows of portions have verdicts."""
    with session.rows("SELECT column_name FROM duckdb_columns() WHERE table_name = 'portion_rows'") as (_, rows):
        if ("verdict",) not in list(rows):
            return
    names = "list(DISTINCT channel ORDER BY channel)"
    query = f"SELECT verdict, {names} FROM portion_rows WHERE verdict IS NOT NULL GROUP BY ALL ORDER BY verdict"
    with session.rows(query) as (_, rows):
        verdicts = list(rows)
    judged = {name for verdict, names in verdicts if verdict.startswith("judged") for name in names}
    yield f"{count(len(judged), 'channel')} judged" if judged else _NONE
    for verdict, names in verdicts:
        if verdict != "judged":
            yield f"{count(len(names), 'channel')} {verdict}: {names_text(names, _MAX_NAMES)}"


def _explain_empty(session: Session, request: Request) -> str:
    """Lines for people about an answer without rows, of a question whose portions have no verdicts."""
    question, since, until = request.question, request.values["since"], request.values["until"]
    judged, other, empty = list[str](), list[str](), list[str]()
    with session.rows(load("duckdb")["select_judged"], [request.values["channels"], since, until]) as (_, channels):
        for name, kind, has_samples in channels:
            if question.kinds and kind not in question.kinds:
                other.append(name)
            elif question.kinds and not has_samples:
                empty.append(name)
            else:
                judged.append(name)
    finding = question.without_rows.format(channels=count(len(judged), "channel"))
    lines = [f"no rows: {finding}" if judged else NOTHING_JUDGED]
    for names, why in (
        (other, f"not {' or '.join(question.kinds)}"),
        (empty, f"no samples from {time_text(since)} to {time_text(until)}"),
    ):
        if names:
            lines.append(f"{count(len(names), 'channel')} not judged, {why}: {names_text(names, _MAX_NAMES)}")
    return "\n".join(lines)


def _without_habits(session: Session, request: Request, ends: float) -> Iterator[str]:
    """Leave out rows whose like came at the same time on two of the days before: a note of them, if there are some.

    The newest days come first, and only channels are asked about that have other rows.
    """
    queries, units = load("duckdb"), dict(request.channels)
    session.execute(queries["create_days_before"], (), ends)
    session.execute(queries["create_habits"], (), ends)
    for day in DAYS_BEFORE:
        with session.rows(queries["select_channels_without_habit"]) as (_, rows):
            names = {name for (name,) in rows}
        chosen = [(name, units[name]) for group in _groups(request) if names.intersection(group) for name in group]
        if not chosen:
            break
        add = f"INSERT INTO days_before SELECT {day}, channel, occurrence"
        earlier = request.of_day_before(day, chosen)
        for portion in portions(earlier):
            _add(session, earlier, portion, add, ends)
    with session.rows(queries["delete_habits"]) as (_, rows):
        habits = [name for (name,) in rows]
    if habits:
        came = "came at the same time on days before (--habits true lists them)"
        yield f"{count(len(habits), 'row')} left out that {came}: {names_text(sorted(set(habits)), _MAX_NAMES)}"


def _add(session: Session, request: Request, groups: Sequence[Sequence[str]], add: str, ends: float) -> None:
    """Add the rows of a portion to a table by ``add``, the begin of a statement. What needs too much memory is
    divided."""
    names = [name for group in groups for name in group]
    if len(names) == len(request.channels) and request.installation is None:  # all of them need not be listed
        names = request.values["channels"]
    values = {**request.parameter_values(), "channels": names}
    parameters = [values[parameter.name] for parameter in request.question.parameters]
    call = ", ".join(f"${i}::{parameter.database_type}" for i, parameter in enumerate(request.question.parameters, 1))
    try:
        session.execute(f"{add} FROM {request.question.name}({call})", parameters, ends)
    except OutOfMemoryError:
        if len(groups) == 1:
            raise
        half = len(groups) // 2
        _add(session, request, groups[:half], add, ends)
        _add(session, request, groups[half:], _INSERT if add == _CREATE else add, ends)


def portions(request: Request, samples: int | None = None) -> Iterator[list[list[str]]]:
    """Names of channels by what has to be together: groups for so many samples, at least one.

    If no channel is wanted there is one portion without any, so that the answer has columns.
    """
    size = max(1, int((samples or _SAMPLES) / max(request.rate * request.seconds, 1e-9)))
    groups: list[list[str]] = []
    names = 0
    for group in _groups(request):
        if groups and names + len(group) > size:
            yield groups
            groups, names = [], 0
        groups.append(group)
        names += len(group)
    yield groups


def _groups(request: Request) -> Iterator[list[str]]:
    together = _TOGETHER[request.question.portions]
    for _, group in groupby(sorted(request.channels, key=together), together):
        yield [name for name, _ in group]
