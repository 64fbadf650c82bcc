"""Archive without a database, for notebooks, as Arrow tables and Polars frames (docs/archive.md), and the questions of
an investigator by :func:`ask` (docs/questions.md). The package ``plantlog_archive`` is this module, and installs alone
(ops/packaging/wheel.py).

What they need is imported when they are called: a notebook starts at once.

Whatever is wrong with the archive or an argument is an :class:`ArchiveError` that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from core.errors import OperationError as ArchiveError
from history.notebook.arguments import (
    FIRST,
    LAST,
    archived,
    channels_of,
    fault,
    length_of,
    names_of,
    opened,
    opened_archive,
    plant_of,
    plants_at,
    require_none,
    step_of,
    time_of,
    times_of,
)

if TYPE_CHECKING:
    from core.paths import State
    from history.archive.location import S3Options
    from history.sql.sources.execution import Limits

__all__ = [
    "ArchiveError",
    "S3Options",
    "aggregates",
    "ask",
    "gaps",
    "interpolated",
    "plot",
    "polars",
    "samples",
    "series",
]


def __getattr__(name: str) -> Any:
    if name != "S3Options":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from history.archive.location import S3Options  # noqa: PLC0415 (it imports pyarrow)

    return S3Options


def samples(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """A ``pyarrow.Table`` of the samples with start <= time < end, sorted by day, channel and time.

    Its columns are ``channel_id``, ``time``, ``value``, ``status``, and ``name`` and ``unit`` as they were at the time.

    ``location``: a folder, ``s3://BUCKET/PATH``, or a file of plants (docs/archive.md), of which ``plant`` names some
    (none: all): names of channels begin with the plant. ``channels``: ids, or names as of each day, in which ``*``
    stands for any text; or one; None: all. Times are datetimes or in ISO 8601, in UTC where they have no zone; None: as
    far as the archive reaches. ``installation``: its id, where the archive has several.

    Size and identity of each file that is read are compared with the manifest, and its pages with their checksums.
    ``key``: the file with the plant's public key (``plantlog evidence seal --public-key``), or its text in PEM form:
    the seals of each day that is read must be by this key. ``verify``, which requires it: each of these days is first
    compared with its seal as a whole, which reads all of it, and the seals of all archived days with each other.

    Raises ArchiveError, also if nothing is archived there.
    """
    archive, _, since, until = opened(location, start, end, installation, s3, verify, key, plant)
    return archive.samples(channels_of(channels), since, until)


def series(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    step: timedelta | str | None = None,
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """Curves of channels as a ``pyarrow.Table``, by channel and time: what a chart needs of any number of samples.

    A row for each channel and bucket that has samples: ``channel_id``, ``name``, ``unit``, ``time`` (when the bucket
    begins, at multiples of ``step``), ``min``, ``avg`` and ``max`` of the samples that are not Bad and not NaN (null:
    all are), ``n_good`` (how many these are), and ``n`` (of all). A bucket in which the name or the unit changes has a
    row of each.

    ``step``: a timedelta or a text such as ``"1m"``; None: that of at most 1,001 buckets. The other parameters are
    those of :func:`samples`. Raises ArchiveError.
    """
    archive, _, since, until = opened(location, start, end, installation, s3, verify, key, plant)
    width = length_of("step", step) or step_of(*archived(archive, since, until))
    return archive.series(channels_of(channels), since, until, width // timedelta(microseconds=1))


def gaps(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
    s3: S3Options | None = None,
    verify: bool = False,
    key: str | Path | None = None,
) -> Any:
    """The recorded gaps of channels that overlap start <= time < end, as a ``pyarrow.Table``, by channel and time.

    Its columns are ``channel_id``, ``name``, ``from_time``, ``to_time``, ``reason``, ``detail`` (JSON) and
    ``backfilled``. A gap of a whole source is one of each of its channels; one that was open lasts until the end of the
    last archived day. The parameters are those of :func:`samples`. Raises ArchiveError.
    """
    archive, _, since, until = opened(location, start, end, installation, s3, verify, key, plant)
    return archive.gaps(channels_of(channels), since, until)


def ask(
    location: str | Path | None = None,
    question: str | None = None,
    *,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    channels: str | Iterable[str] = (),
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
    s3: S3Options | None = None,
    key: str | Path | None = None,
    state: str | Path | State | None = None,
    limits: Limits | None = None,
    **options: object,
) -> Any:
    """The answer to a question as a ``pyarrow.Table``: ``ask("/srv/archive", "stuck_sensors", since="2026-03-09")``.

    ``location``: of an archive, as of :func:`samples`, or a file of plants (docs/archive.md), of which ``plant`` names
    some (none: all). Without it, ``ask("stuck_sensors", …)``, the appliance of the state folder ``state`` (None: the
    current one) is asked, which needs plantlog itself.

    ``since``, ``until``: times, or texts as the command line takes them (``--from``, ``--to``; until: None: now);
    ``channels``: names or patterns (none: all); ``key``: the plant's public key, which each day's seals are compared
    with, as of :func:`samples`; ``installation``: its id; of an appliance also the beginning of it, its plant, or
    ``all``; ``options``: the question's own, such as ``hold="2 min"``, ``least_score=10`` or ``times=[one, another]``.

    What the command says below the answer is in ``table.schema.metadata[b"notes"]``.

    Raises ArchiveError for invalid parameters and limits, DatabaseError where the database of an appliance fails.
    """
    if question is None:
        location, question = None, location if isinstance(location, str) else None
    if not isinstance(question, str):
        raise fault("question", question, "the name of a question: ask('/srv/archive', 'stuck_sensors', …)")
    from history.notebook.questions import answered  # noqa: PLC0415

    if location is None:
        require_none("an appliance", plant=plant or None, s3=s3, key=key)
        plants = None
    else:
        require_none("an archive", state=state)
        plants = plants_at(location, plant, installation=installation, s3=s3, key=key)
        plants = plants or plant_of(opened_archive(location, installation, s3), key)
    chosen = names_of("channels", channels)
    return answered(plants, question, (since, until), chosen, options, installation, state, limits)


def aggregates(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    aggregate: str | Sequence[str] = "time_average",
    step: timedelta | str | None = None,
    in_state: float = 1,
    fraction: float = 0.5,
    per: timedelta | str | None = None,
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
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
    from history.notebook.questions import historian  # noqa: PLC0415

    archive, plants, *interval = opened(location, start, end, installation, s3, verify, key, plant)
    options = {"aggregate": names_of("aggregate", aggregate), "in_state": in_state, "fraction": fraction}
    lengths = {"step": length_of("step", step), "per": length_of("per", per)}
    return historian(archive, plants, "aggregates", channels, interval, {**options, **lengths, **configuration})


def interpolated(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    step: timedelta | str | None = None,
    times: Iterable[datetime | str] | None = None,
    plant: str | Iterable[str] = (),
    installation: str | UUID | None = None,
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
    from history.notebook.questions import historian  # noqa: PLC0415

    if times is not None:
        moments = times_of("times", times)
        if not moments or start is not None or end is not None or step is not None:
            raise ArchiveError("times: legal: at least one, without start, end and step")
        start, end = moments[0], moments[-1] + timedelta(microseconds=1)
        configuration["times"] = moments
    archive, plants, *interval = opened(location, start, end, installation, s3, verify, key, plant)
    configuration["step"] = length_of("step", step)
    return historian(archive, plants, "interpolated", channels, interval, configuration)


def plot(
    location: str | Path,
    channels: int | str | Iterable[int | str] | None = None,
    start: datetime | str | None = None,
    end: datetime | str | None = None,
    *,
    answer: Any = None,
    installation: str | UUID | None = None,
    s3: S3Options | None = None,
) -> Any:
    """The curves of the first eight channels with their gaps, as a figure of matplotlib, which must be installed.

    Drawn as by ``plantlog ask --plot``: a value holds until the next one. ``answer``: a ``pyarrow.Table`` with the
    columns of a question's, such as ``channel`` and ``time``: only the channels that it names, in its order, with its
    times and intervals marked. The other parameters are those of :func:`samples`. Raises ArchiveError.
    """
    from history.notebook.curves import drawing  # noqa: PLC0415

    archive = opened_archive(location, installation, s3)
    since, until = archived(archive, time_of("start", start, FIRST), time_of("end", end, LAST))
    return drawing(archive, channels_of(channels), answer, since, until).figure()


def polars(location: str | Path, *arguments: Any, **options: Any) -> Any:
    """The rows of :func:`samples` as a ``polars.DataFrame``; Polars must be installed."""
    from polars import from_arrow  # noqa: PLC0415  (only who wants this needs it)

    return from_arrow(samples(location, *arguments, **options))
