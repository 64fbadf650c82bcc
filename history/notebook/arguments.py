"""Arguments of the functions of a notebook: what is wrong with one is an error that names it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex
from uuid import UUID

from core.durations import seconds_of
from core.errors import OperationError
from core.timestamps import begin

if TYPE_CHECKING:
    from history.archive.location import S3Options
    from history.archive_days.plants import Plants
    from history.notebook.archive import Archive
    from history.notebook.several import SeveralArchives

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
_POINTS = 1000  # of a curve


def fault(name: str, value: object, legal: str) -> OperationError:
    """Error of an argument."""
    return OperationError(f"{name}: found {value!r}; legal: {legal}")


def path_of(name: str, value: object, legal: str = "a folder, a file of plants, or s3://BUCKET/PATH") -> str:
    """A path as text, of a text or a Path. Raises OperationError."""
    if not isinstance(value, str | os.PathLike) or not isinstance(path := os.fspath(value), str) or not path:
        raise fault(name, value, legal)
    return path


def opened_archive(location: object, installation: object, s3: S3Options | None) -> Archive:
    """The archive at a location. Raises OperationError."""
    from history.archive.location import S3Options  # noqa: PLC0415
    from history.notebook.archive import Archive  # noqa: PLC0415

    path = path_of("location", location, "a folder, or s3://BUCKET/PATH")
    if not isinstance(s3, S3Options | None):
        raise fault("s3", s3, "S3Options(…)")
    return Archive.open(path, _uuid(installation), s3)


def opened(
    location: object,
    start: object,
    end: object,
    installation: object,
    s3: S3Options | None,
    verify: bool,
    key: object,
    plant: object = (),
) -> tuple[Archive | SeveralArchives, Plants, datetime, datetime]:
    """The archive, or those of a file of plants, its plants, and start and end (UTC).

    With ``verify``, what is read is as sealed; with ``key``, its seals are by that key. Raises OperationError.
    """
    since, until = time_of("start", start, FIRST), time_of("end", end, LAST)
    archive: Archive | SeveralArchives
    if (plants := plants_at(location, plant, installation=installation, s3=s3, key=key)) is not None:
        from history.notebook.several import SeveralArchives  # noqa: PLC0415

        archive = SeveralArchives(plants)
    else:
        archive = opened_archive(location, installation, s3)
        plants = plant_of(archive, key)
        if verify and key is None:
            raise OperationError("key: found none; legal: the plant's public key, which verify requires")
    if verify:
        for verdict in plants.verify(lambda plant: plants.days_between(plant, since, until)):
            if verdict.problems:
                what = f"{verdict.plant.label}{verdict.day or 'chain of seals'}"
                raise OperationError(f"archive {location}: {what}: {'; '.join(verdict.problems)}")
    elif key is not None:
        plants.read([(of, day) for of in plants.plants for day in plants.days_between(of, since, until)])
    return archive, plants, since, until


def plant_of(archive: Archive, key: object) -> Plants:
    """The only plant of an archive, whose names are as they are. ``key``: None: it is not known whose data they are."""
    from history.archive_days.plants import Plant, Plants  # noqa: PLC0415

    keys = None if key is None else tuple(keys_of(key))
    return Plants(archive.location, [Plant("", 0, archive.installation, keys)], 1)


def plants_at(location: object, names: object, **others: object) -> Plants | None:
    """The plants of a file at a location that have one of some names (none: all); None: it is no file.

    ``others``: arguments that such a file has itself. Raises OperationError.
    """
    path = path_of("location", location)
    if not Path(path).is_file():
        require_none("an archive that no file of plants lists", plant=names or None)
        return None
    require_none("a file of plants", **others)
    from history.notebook.questions import listed_plants  # noqa: PLC0415

    return listed_plants(path, names_of("plant", names))


def keys_of(key: object) -> list[str]:
    """The public keys to trust, in hex, of a file or a text in PEM form. Raises OperationError."""
    from history.standalone import UnverifiableError, read_keys  # noqa: PLC0415

    text = path_of("key", key, "the plant's public key, a file or its text in PEM form")
    try:
        is_text = isinstance(key, str) and text.lstrip().startswith("-----BEGIN")
        return read_keys(text.encode() if is_text else Path(text).read_bytes())
    except (OSError, UnverifiableError) as error:
        raise OperationError(f"key: {error}") from error


def channels_of(channels: object) -> list[int | str]:
    """Ids and names, in which ``*`` stands for any text; None: all. Raises OperationError."""
    if channels is None:
        return ["*"]
    several = channels if isinstance(channels, Iterable) and not isinstance(channels, str) else [channels]
    chosen = list[int | str]()
    for channel in several:
        if isinstance(channel, bool) or not isinstance(channel, str | SupportsIndex):
            raise fault("channels", channel, "a name, a name with *, or an id; or a list of them")
        chosen.append(channel if isinstance(channel, str) else index(channel))
    return chosen


def require_none(of: str, **arguments: object) -> None:
    """Raise OperationError for arguments that something does not have."""
    for name, value in arguments.items():
        if value is not None:
            raise fault(name, value, f"no value for {of}")


def names_of(name: str, value: object) -> list[str]:
    """Names, of one or several. Raises OperationError."""
    names: list[object] = list(value) if isinstance(value, Iterable) and not isinstance(value, str) else [value]
    for each in names:
        if not isinstance(each, str):
            raise fault(name, each, "a name, in which * stands for any text; or a list of them")
    return [str(each) for each in names]


def archived(archive: Archive | SeveralArchives, since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """The part of an interval from the first to the last archived day of it."""
    days = archive.days_between(since, until)
    if not days:
        raise OperationError(f"archive {archive.location.name}: no day from {since} to {until} is archived")
    return max(since, begin(days[0])), min(until, begin(days[-1], 24))


def step_of(since: datetime, until: datetime) -> timedelta:
    """Length of a bucket of a curve."""
    return max(timedelta(microseconds=1), -(-(until - since) // _POINTS))


def length_of(name: str, value: object) -> timedelta | None:
    """A duration, of a timedelta or a text; None stays. Raises OperationError."""
    try:
        length = timedelta(seconds=seconds_of(value)) if isinstance(value, str) else value
        if not isinstance(length, timedelta | None) or (length is not None and length <= timedelta()):
            raise ValueError("a duration longer than none, such as '1m' or timedelta(minutes=1)")
    except ValueError as error:
        raise fault(name, value, str(error)) from None
    return length


def times_of(name: str, values: object) -> list[datetime]:
    """Times, of one or several, ascending. Raises OperationError."""
    several = values if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    return sorted(time_of(name, value, FIRST) for value in several)


def time_of(name: str, value: object, default: datetime) -> datetime:
    """A time in UTC, of a datetime or a text; None: the default. Raises OperationError."""
    try:
        moment = default if value is None else datetime.fromisoformat(value) if isinstance(value, str) else value
        if not isinstance(moment, datetime):
            raise ValueError
    except ValueError:
        raise fault(name, value, "a time such as 2026-03-09T10:00:00Z") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _uuid(value: object) -> UUID | None:
    try:
        return value if isinstance(value, UUID | None) else UUID(path_of("installation", value, ""))
    except (OperationError, ValueError):
        raise fault("installation", value, f"an id such as {UUID(int=0)}") from None
