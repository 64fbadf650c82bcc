"""The location of an archive by the configuration, which names the keys of S3."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import OperationError
from history.archive.location import Location, S3Options, is_bucket

if TYPE_CHECKING:
    from core.config.model import ArchiveOptions


def location_in_force(state: Path, name: str) -> Location:
    """The location with a name, by the configuration that is in force in a state folder.

    Raises OperationError if it or the key can't be used.
    """
    if not is_bucket(name):  # it needs no key: the configuration takes 0.2 s to import
        return Location.at(name)
    from core.config.model import ArchiveOptions  # noqa: PLC0415
    from core.config.snapshot import in_force  # noqa: PLC0415

    current = in_force(state, ())
    options = ArchiveOptions() if current is None else current.plant.archive
    return location_of(options.model_copy(update={"location": name}))


def location_of(options: ArchiveOptions) -> Location:
    """The location that ``[archive]`` names. Raises OperationError if it or the key can't be used."""
    assert options.location is not None
    if options.key_file is None or options.s3_endpoint is None:
        return Location.at(options.location)
    try:
        words = options.key_file.read_text().split()
    except (OSError, UnicodeDecodeError) as error:
        raise OperationError(f"[archive] key_file: {options.key_file}: {error}") from error
    if len(words) != 2:
        raise OperationError(
            f"[archive] key_file: {options.key_file}: found {len(words)} words; legal: one line with the access key "
            "ID, a space, and the secret access key"
        )
    s3 = S3Options(
        access_key=words[0],
        secret_key=words[1],
        endpoint=options.s3_endpoint,
        region=options.s3_region,
        ca_file=str(options.ca_file or ""),
        host_style=options.s3_uri_style == "host",
    )
    return Location.at(options.location, s3)
