"""The manifest of an archived day: which files it has, of which plant, and the seal that they were verified with.

It is written last, at once or not at all: readers find the files of one generation or of the other. A file that no
manifest names is of a writer that was killed, and is removed later.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import Any, Literal, get_args
from uuid import UUID

from core.errors import OperationError
from history.archive.location import Location, is_bucket
from history.standalone import Key, Seal, SealBundle, UnverifiableError

FORMAT = 1
MARKER = "plantlog-archive.json"
MANIFESTS = "manifests"
INCOMING = "incoming"  # files of days that are being written
_IGNORED_ENTRIES = (f"{MARKER}.partial", "lost+found")  # of a writer that was killed, and of an empty disk
PROBE = f"{INCOMING}/answers"  # is written to see whether the storage answers
_DAY = re.compile(r"\d{4}-[01]\d-[0-3]\d")
_FILE, _SEAL = re.compile(r"[0-9]+-[0-9]+\.parquet"), re.compile(r"[0-9]+\.json\.gz")
_TAIL_BYTES = 8  # bytes at the end of a Parquet file: the footer's length, and PAR1
METADATA = b"plantlog.archive"  # key of the file's identity in the metadata of a Parquet file

Table = Literal["samples", "channels", "events", "gaps", "seal"]
_ONE_FILE: tuple[Table, ...] = ("channels", "events", "gaps", "seal")


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of a day."""

    path: str  # from the archive's root
    table: Table
    rows: int
    bytes: int
    sha256: str
    amendment: bool = False  # samples that came after others of the day were archived
    footer_crc32: int | None = None  # of a Parquet file: pages have checksums, but its footer has none


@dataclass(frozen=True, slots=True)
class Proof:
    """Statements of a day's seals: who sealed it, without the digests of its channels and hours."""

    seals: tuple[Seal, ...]  # by revision
    keys: tuple[Key, ...]
    sources: tuple[dict[str, Any], ...]  # id, name, kind and address, by the sealed document

    @classmethod
    def of_bundle(cls, bundle: SealBundle) -> Proof:
        """The proof within a bundle. Raises UnverifiableError."""
        try:
            sources = json.loads(bundle.document)["sources"]
        except (ValueError, KeyError, TypeError) as error:
            raise UnverifiableError(f"the sealed document is damaged: {error}") from error
        return cls(tuple(bundle.seals), tuple(bundle.keys), tuple(sources))

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Proof:
        """The proof in a manifest. Raises KeyError or TypeError."""
        seals, keys = (Seal(**seal) for seal in fields["seals"]), (Key(**key) for key in fields["keys"])
        return cls(tuple(seals), tuple(keys), tuple(fields["sources"]))


@dataclass(frozen=True, slots=True)
class Manifest:
    """A day as it was archived."""

    format: int
    plant: str
    installation: str  # id
    day: str
    generation: int  # from 1; each time that the day is written, its new files have the next one in their names
    revision: int  # of the seal
    serial: int
    root: str  # of the seal, in hex
    samples: int
    channels: int
    files: tuple[ArchivedFile, ...]
    proof: Proof | None = None  # None: an earlier version archived it

    def encode(self) -> bytes:
        """Encode it as JSON."""
        return (json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n").encode()

    @classmethod
    def decode(cls, content: bytes, name: str) -> Manifest:
        """The inverse. ``name``: what errors call it. Raises OperationError."""
        try:
            data = json.loads(content)
            if not isinstance(data, dict) or data.get("format") != FORMAT:
                actual = data.get("format") if isinstance(data, dict) else data
                raise OperationError(f"{name}: format: found {actual!r}; legal: {FORMAT}")
            data["files"] = tuple(ArchivedFile(**file) for file in data["files"])
            proof = data.get("proof")
            data["proof"] = None if proof is None else Proof.of_fields(proof)
            manifest = cls(**{field.name: data[field.name] for field in fields(cls)})
            date.fromisoformat(manifest.day)
            return manifest
        except (ValueError, KeyError, TypeError) as error:
            raise OperationError(f"{name} is not a manifest: {type(error).__name__}: {error}") from error

    @property
    def bytes(self) -> int:
        """Size of all files."""
        return sum(file.bytes for file in self.files)

    def of_table(self, table: Table) -> list[ArchivedFile]:
        """The files of a table."""
        return [file for file in self.files if file.table == table]

    def differences(self, seal: Seal) -> Iterator[str]:
        """Differences from the newest seal of its day."""
        for name in ("day", "revision", "serial", "root", "samples", "channels"):
            listed, sealed = getattr(self, name), getattr(seal, name)
            if listed != sealed:
                yield f"{name}: {listed} by the manifest, {sealed} by the seal"


@dataclass(frozen=True, slots=True)
class DayFolder:
    """The paths of an installation's day."""

    installation: UUID
    day: date

    def table(self, table: Table) -> str:
        """The folder of a table's files."""
        return f"{table}/installation={self.installation}/day={self.day}"

    def file(self, table: Table, generation: int, number: int = 1) -> str:
        """A file of a table."""
        return f"{self.table(table)}/{generation:05}-{number:05}.parquet"

    @property
    def manifest(self) -> str:
        """The manifest."""
        return f"{MANIFESTS}/installation={self.installation}/{self.day}.json"

    @property
    def seals(self) -> str:
        """The folder of the seals with their digests, of all days."""
        return f"seals/installation={self.installation}"

    def seal(self, generation: int) -> str:
        """The seal with its digests."""
        return f"{self.seals}/{self.day}-{generation:05}.json.gz"

    @property
    def incoming(self) -> str:
        """Folder of its files until they are verified."""
        return f"{INCOMING}/{self.installation}/{self.day}"

    def identity(self, table: Table) -> dict[bytes, bytes]:
        """Identity of a file, from its metadata."""
        content = {"format": FORMAT, "installation": str(self.installation), "day": str(self.day), "table": table}
        return {METADATA: json.dumps(content).encode()}


def footer_crc32(source: Any) -> int:
    """Checksum of the part of a Parquet file behind its pages. ``source``: a file object of pyarrow."""
    size = source.size()
    length = int.from_bytes(source.read_at(min(size, _TAIL_BYTES), max(0, size - _TAIL_BYTES))[:4], "little")
    footer = min(size, length + _TAIL_BYTES)
    return zlib.crc32(source.read_at(footer, size - footer))


def find_manifest(location: Location, folder: DayFolder) -> Manifest | None:
    """The manifest of a day; None: it is not archived."""
    return None if location.size(folder.manifest) is None else read_manifest(location, folder)


def read_manifest(location: Location, folder: DayFolder) -> Manifest:
    """The manifest of a day. Raises OperationError if it is not archived, or that of another day or installation."""
    file_name = f"archive {location.name}: {folder.manifest}"
    try:
        content = location.read(folder.manifest)
    except OperationError:
        if location.size(folder.manifest) is not None:
            raise
        _require_marker(location)
        raise OperationError(
            f"archive {location.name}: {folder.day} of installation {folder.installation} is not in it"
        ) from None
    manifest = Manifest.decode(content, file_name)
    for name, actual, legal in (
        ("installation", manifest.installation, str(folder.installation)),
        ("day", manifest.day, str(folder.day)),
    ):
        if actual != legal:
            raise OperationError(f"{file_name}: {name}: found {actual}, of plant {manifest.plant}; legal: {legal}")
    for file in manifest.files:
        begin, pattern, words = f"{folder.table(file.table)}/", _FILE, "NUMBER-NUMBER.parquet"
        if file.table == "seal":
            begin, pattern, words = f"{folder.seals}/{folder.day}-", _SEAL, "NUMBER.json.gz"
        if not (file.path.startswith(begin) and pattern.fullmatch(file.path, len(begin))):
            raise OperationError(f"{file_name}: files: found {file.path}; legal: {begin}{words}")
    for table in _ONE_FILE:
        if (n := len(manifest.of_table(table))) != 1:
            raise OperationError(f"{file_name}: files: found {n} of the table {table}; legal: 1")
    return manifest


def archived_days(location: Location, installation: UUID | None = None) -> dict[UUID, list[date]]:
    """The archived days, ascending, of each installation, or of one. Ignores what has not the name of a manifest.

    Raises OperationError.
    """
    days: dict[UUID, list[date]] = {}
    for path in location.listing(MANIFESTS if installation is None else f"{MANIFESTS}/installation={installation}"):
        with suppress(ValueError):
            _, folder, name = path.split("/")
            day = DayFolder(UUID(folder.partition("=")[2]), date.fromisoformat(name.removesuffix(".json")))
            if day.manifest == path:
                days.setdefault(day.installation, []).append(day.day)
    return {each: sorted(days[each]) for each in sorted(days)}


def remove_leftovers(location: Location, folder: DayFolder) -> None:
    """Remove what a writer made of a day and its manifest does not name."""
    manifest = find_manifest(location, folder)
    kept = {file.path for file in manifest.files} if manifest is not None else set()
    tables = [(f"{folder.table(table)}/", _FILE) for table in get_args(Table) if table != "seal"]
    for begin, pattern in (*tables, (f"{folder.seals}/{folder.day}-", _SEAL)):
        for path in location.listing(begin.rpartition("/")[0]):
            if path.startswith(begin) and pattern.fullmatch(path, len(begin)) and path not in kept:
                location.remove(path)
    location.clear(folder.incoming)  # last: as long as it is there, the day is swept


def unfinished_days(location: Location, installation: UUID) -> list[DayFolder]:
    """Days of which a writer that was killed may have left files."""
    days = {path.split("/")[2] for path in location.listing(f"{INCOMING}/{installation}")}
    return [DayFolder(installation, date.fromisoformat(day)) for day in sorted(days) if _DAY.fullmatch(day)]


def _require_marker(location: Location) -> None:
    if location.size(MARKER) is None:
        raise OperationError(
            f"archive {location.name}: {MARKER} is missing, although days were archived: is it mounted?"
        )


def _require_empty(location: Location) -> None:
    if others := [name for name in location.entries() if name not in _IGNORED_ENTRIES]:
        raise OperationError(f"archive {location.name} contains {others[0]}, and is no archive: choose an empty folder")


def folder_problem(name: str) -> str | None:
    """Reason why a folder can't be an archive; None: it can, or the location is S3, which is not checked."""
    if is_bucket(name):
        return None
    try:
        location = Location.at(name)
        if location.size(MARKER) is None:
            _require_empty(location)
    except OperationError as error:
        return str(error)
    return None if os.access(name, os.W_OK | os.X_OK) else f"archive {name} can't be written to by this user"


def claim(location: Location, has_days: bool) -> None:
    """Make sure that a location is an archive; an empty one becomes one.

    ``has_days``: days were archived there, so that an empty one is another. Raises OperationError.
    """
    if location.size(MARKER) is not None:
        marker_format: Any = None
        with_marker = location.read(MARKER)
        try:
            marker_format = json.loads(with_marker)["format"]
        except (ValueError, KeyError, TypeError):
            marker_format = with_marker[:40]
        if marker_format != FORMAT:
            raise OperationError(f"archive {location.name}: {MARKER}: format: found {marker_format!r}; legal: {FORMAT}")
        return
    if has_days:
        _require_marker(location)
    _require_empty(location)
    location.write(MARKER, (json.dumps({"format": FORMAT}) + "\n").encode())
