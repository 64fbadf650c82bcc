"""Questions of a notebook: about an archive, about the archives of several plants, or about an appliance."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from core.errors import OperationError
from core.installation import ALL
from core.paths import State
from core.patterns import no_match
from history.archive_days.plants import Plants
from history.notebook.archive import Archive
from history.notebook.arguments import archived, channels_of, fault, path_of
from history.notebook.several import SeveralArchives
from history.questions.ask import LIMITS, TimeRange, answer, find_question, parse_options
from history.sql.sources.execution import Limits


def listed_plants(file: str, names: Sequence[str]) -> Plants:
    """The plants of a file that have one of these names (none: all). Raises OperationError."""
    with _only_in_plantlog("a file of plants"):
        from history.archive_days.plants_file import plants_of  # noqa: PLC0415 (the package of archives lacks it)
    return plants_of(Path(file), names)


def answered(
    plants: Plants | None,
    question: str,
    interval: Sequence[object],
    channels: Sequence[str],
    options: Mapping[str, object],
    installation: object = None,
    state: object = None,
    limits: object = None,
) -> Any:
    """The answer as a table of Arrow, with lines about it in its metadata. ``plants``: None: the appliance is asked.

    Raises OperationError for arguments, DatabaseError where the database fails.
    """
    definition = find_question(question)
    if not isinstance(limits, Limits | None):
        raise fault("limits", limits, "Limits of history.sql.sources.execution")
    bounds = [None if bound is None else _text(bound) for bound in interval]
    words = [f"--{name.replace('_', '-')}={_text(value)}" for name, value in options.items() if value is not None]
    if plants is None:
        with _only_in_plantlog("a question without the location of an archive"):
            import history.questions.database_request  # noqa: F401, PLC0415 (it, too)
    table, notes = answer(
        _state(state),
        definition,
        TimeRange(bounds[0], bounds[1]),
        channels,
        parse_options(definition, words),
        ALL if plants is not None or installation is None else str(installation),
        limits or LIMITS,
        plants=plants,
    )
    return table.replace_schema_metadata({"notes": notes})


def historian(
    archive: Archive | SeveralArchives,
    plants: Plants,
    question: str,
    channels: object,
    interval: Sequence[datetime],
    options: Mapping[str, object],
) -> Any:
    """The answer to a question of historians. ``interval``: of what is archived of it; but for ``times``."""
    chosen = list(_names(archive, channels_of(channels), interval))
    bounds = (None, None) if "times" in options else archived(archive, *interval)
    return answered(plants, question, bounds, [] if chosen == ["*"] else chosen, options)


def _names(
    archive: Archive | SeveralArchives, channels: Iterable[int | str], interval: Sequence[datetime]
) -> Iterator[str]:
    """Names of channels, of ids as on the last day of an interval that has them. Raises OperationError."""
    names = dict[int, str]()
    for channel in channels:
        if isinstance(channel, str):
            yield channel
            continue
        if isinstance(archive, SeveralArchives):
            raise fault("channels", channel, "names: ids of plants may be the same")
        if not names:
            for day in archive.days_between(*interval):
                rows = archive.channels(day)
                names |= zip(rows["channel_id"].to_pylist(), rows["name"].to_pylist(), strict=True)
        if channel not in names:
            raise no_match(f"archive {archive.location.name}: channels", [channel])
        yield names[channel]


@contextmanager
def _only_in_plantlog(what: str) -> Iterator[None]:
    """Errors where a module is imported in the block that the package of archives lacks."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise OperationError(f"{what} needs plantlog itself, and not only its package of archives") from error


def _state(state: object) -> State:
    if state is None or isinstance(state, State):
        return state or State.current()
    return State(Path(path_of("state", state, "the state folder of an appliance")))


def _text(value: object) -> str:
    """A value as a command has it."""
    match value:
        case timedelta():
            return f"{value // timedelta(microseconds=1)} microseconds"
        case datetime():
            return value.isoformat()
        case list() | tuple():
            return ",".join(map(_text, value))
    return str(value)
