"""Archive without a database, for notebooks, as Arrow tables and Polars frames (docs/archive.md), and the questions of
an investigator by :func:`ask` (docs/questions.md). The package ``plantlog_archive`` is this module without
:func:`ask`, and installs alone (ops/packaging/wheel.py).

What they need is imported when they are called: a notebook starts at once.

Whatever is wrong with the archive is an :class:`ArchiveError` that names the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from core.durations import seconds_of
from core.errors import OperationError as ArchiveError
from core.timestamps import begin

if TYPE_CHECKING:
    from history.archive.location import S3Options
    from history.notebook.archive import Archive
    from history.questions.ask import ask as ask

# Without ask, which the package of archives lacks.
__all__ = ["ArchiveError", "S3Options", "aggregates", "gaps", "interpolated", "plot", "polars", "samples", "series"]

_IMPORTED = {"S3Options": "history.archive.location", "ask": "history.questions.ask"}  # when they are used
_POINTS = 1000  # of a curve
_FIRST, _LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_IMPORTED[name]), name)
    except ModuleNotFoundError as error:
        raise ArchiveError(f"{name} needs plantlog itself, and not only its package of archives: {error}") from error


def samples(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    installation: str | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """A ``pyarrow.Table`` of the samples with start <= time < end, sorted by day, channel and time.

    Its columns are ``channel_id``, ``time``, ``value``, ``status``, and ``name`` and ``unit`` as they were at the time.

    ``location``: a folder or ``s3://BUCKET/PATH``. ``channels``: ids, or names as of each day, in which ``*`` stands
    for any text; or one; None: all. Times are datetimes or in ISO 8601, in UTC where they have no zone; None: as far as
    the archive reaches. ``installation``: its id, where the archive has several.

    Size and identity of each file that is read are compared with the manifest, and its pages with their checksums.
    ``verify``: each day is first compared with its seal as a whole, which reads all of it, and the seals of all
    archived days with each other. It requires ``key``: the file with the plant's public key (``plantlog evidence seal
    --public-key``), or its text in PEM form.

    Raises ArchiveError, also if nothing is archived there.
    """
    archive, since, until = _opened(location, start, end, installation, s3, verify, key)
    return archive.samples(_chosen(channels), since, until)


def series(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    step: timedelta | str | None = None,
    installation: str | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """Curves of channels as a ``pyarrow.Table``, by channel and time: what a chart needs of any number of samples.

    A row for each channel and bucket that has samples: ``channel_id``, ``name``, ``unit``, ``time`` (when the bucket
    begins, at multiples of ``step``), ``min``, ``avg`` and ``max`` of the samples that are not Bad and not NaN (null:
    all are), ``n_good`` (how many these are), and ``n`` (of all).

    ``step``: a timedelta or a text such as ``"1m"``; None: that of at most 1,001 buckets. The other parameters are
    those of :func:`samples`. Raises ArchiveError.
    """
    archive, since, until = _opened(location, start, end, installation, s3, verify, key)
    width = _step(*_archived(archive, since, until)) if step is None else _microseconds(step)
    return archive.series(_chosen(channels), since, until, width)


def gaps(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    installation: str | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """The recorded gaps of channels that overlap start <= time < end, as a ``pyarrow.Table``, by channel and time.

    Its columns are ``channel_id``, ``name``, ``from_time``, ``to_time``, ``reason``, ``detail`` (JSON) and
    ``backfilled``. A gap of a whole source is one of each of its channels; one that was open lasts until the end of the
    last archived day. The parameters are those of :func:`samples`. Raises ArchiveError.
    """
    archive, since, until = _opened(location, start, end, installation, s3, verify, key)
    return archive.gaps(_chosen(channels), since, until)


def aggregates(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    aggregate: str | Sequence[str] = "time_average",
    step: timedelta | str | None = None,
    in_state: float = 1,
    fraction: float = 0.5,
    per: timedelta | str | None = None,
    installation: str | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
    **configuration: Any,
) -> Any:
    """Aggregates of intervals, as a ``pyarrow.Table`` with the columns of the question ``aggregates``.

    ``aggregate``: one or several of ``time_average``, ``total``, ``duration_in_state``, ``count_transitions``,
    ``increase``, ``rate``, ``percentile``, ``minimum`` and ``maximum``; ``step``: length of an interval (None: one);
    ``in_state``, ``fraction``, ``per`` and ``configuration`` (``stepped``, ``simple_bounds``,
    ``treat_uncertain_as_bad``, ``percent_data_bad``, ``percent_data_good``, ``use_sloped_extrapolation``) are those of
    the question (docs/questions.md), the other parameters those of :func:`samples`. Raises ArchiveError.
    """
    from history.notebook.historian import Historian  # noqa: PLC0415

    archive, since, until = _opened(location, start, end, installation, s3, verify, key)
    historian = Historian(archive, _chosen(channels), *_archived(archive, since, until))
    names = [aggregate] if isinstance(aggregate, str) else list(aggregate)
    lengths = [None if length is None else _microseconds(length) for length in (step, per)]
    return historian.aggregates(names, lengths[0], in_state, fraction, lengths[1], configuration)


def interpolated(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    step: timedelta | str | None = None,
    times: Iterable[datetime | str] | None = None,
    installation: str | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
    **configuration: Any,
) -> Any:
    """Values at times, as a ``pyarrow.Table`` with the columns of the question ``interpolated``.

    From ``start`` on every ``step`` (None: only there), or at ``times``. ``configuration``: ``stepped``,
    ``simple_bounds``, ``treat_uncertain_as_bad``, ``use_sloped_extrapolation``, as of :func:`aggregates`. Raises
    ArchiveError.
    """
    from history.notebook.historian import Historian  # noqa: PLC0415

    at = None if times is None else sorted(_time("times", time, _FIRST) for time in times)
    if at is not None:
        if not at or start is not None or end is not None or step is not None:
            raise ArchiveError("times: legal: at least one, without start, end and step")
        start, end = at[0], at[-1] + timedelta(microseconds=1)
    archive, since, until = _opened(location, start, end, installation, s3, verify, key)
    if at is None:
        since, until = _archived(archive, since, until)
    historian = Historian(archive, _chosen(channels), since, until)
    return historian.values(None if step is None else _microseconds(step), at, configuration)


def plot(
    location: str,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    answer: Any = None,
    installation: str | None = None,
    s3: S3Options | None = None,
) -> Any:
    """The curves of the first eight channels with their gaps, as a figure of matplotlib, which must be installed.

    Drawn as by ``plantlog ask --plot``: a value holds until the next one. ``answer``: a ``pyarrow.Table`` with the
    columns of a question's, such as ``channel`` and ``time``: only the channels that it names, in its order, with its
    times and intervals marked. The other parameters are those of :func:`samples`. Raises ArchiveError.
    """
    from history.notebook.curves import drawing  # noqa: PLC0415

    archive, since, until = _opened(location, start, end, installation, s3, False, None)
    return drawing(archive, _chosen(channels), answer, *_archived(archive, since, until)).figure()


def polars(location: str, *arguments: Any, **options: Any) -> Any:
    """The rows of :func:`samples` as a ``polars.DataFrame``; Polars must be installed."""
    from polars import from_arrow  # noqa: PLC0415  (only who wants this needs it)

    return from_arrow(samples(location, *arguments, **options))


def _opened(
    location: str,
    start: datetime | str | None,
    end: datetime | str | None,
    installation: str | None,
    s3: S3Options | None,
    verify: bool,
    key: str | Path | None,
) -> tuple[Archive, datetime, datetime]:
    """The archive, and start and end (UTC); with ``verify``, as sealed."""
    from history.notebook.archive import Archive  # noqa: PLC0415

    archive = Archive.open(location, _uuid(installation), s3)
    since, until = _time("start", start, _FIRST), _time("end", end, _LAST)
    if verify:
        anchors = _anchors(key)
        if problems := archive.chain_problems(anchors):
            raise ArchiveError(f"archive {location}: {'; '.join(problems)}")
        for day in archive.days_between(since, until):
            if problems := archive.verify(day, anchors):
                raise ArchiveError(f"archive {location}: {day} is not as sealed: {'; '.join(problems)}")
    return archive, since, until


def _anchors(key: str | Path | None) -> list[str]:
    """The public keys to trust."""
    from history.standalone import UnverifiableError, read_keys  # noqa: PLC0415

    if key is None:
        raise ArchiveError("key: found none; legal: the plant's public key, which verify requires")
    try:
        is_text = isinstance(key, str) and key.lstrip().startswith("-----BEGIN")
        return read_keys(str(key).encode() if is_text else Path(key).read_bytes())
    except (OSError, UnverifiableError) as error:
        raise ArchiveError(f"key: {error}") from error


def _chosen(channels: int | str | Iterable[int | str] | None) -> list[int | str]:
    """Ids and names, in which ``*`` stands for any text."""
    return ["*"] if channels is None else [channels] if isinstance(channels, int | str) else list(channels)


def _archived(archive: Archive, since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """The part of an interval from the first to the last archived day of it."""
    days = archive.days_between(since, until)
    if not days:
        raise ArchiveError(f"archive {archive.location.name}: no day from {since} to {until} is archived")
    return max(since, begin(days[0])), min(until, begin(days[-1], 24))


def _step(since: datetime, until: datetime) -> int:
    """Length of a bucket (µs) of a curve."""
    return max(1, -(-(until - since) // timedelta(microseconds=_POINTS)))


def _microseconds(step: timedelta | str) -> int:
    try:
        length = timedelta(seconds=seconds_of(step)) if isinstance(step, str) else step
        if length <= timedelta():
            raise ValueError("a duration longer than none")
    except ValueError as error:
        raise ArchiveError(f"step: found {step!r}; legal: {error}") from None
    return length // timedelta(microseconds=1)


def _uuid(text: str | None) -> UUID | None:
    try:
        return None if text is None else UUID(text)
    except ValueError:
        raise ArchiveError(f"installation: found {text!r}; legal: an id such as {UUID(int=0)}") from None


def _time(name: str, value: datetime | str | None, default: datetime) -> datetime:
    try:
        moment = default if value is None else datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError:
        raise ArchiveError(f"{name}: found {value!r}; legal: a time such as 2026-03-09T10:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
