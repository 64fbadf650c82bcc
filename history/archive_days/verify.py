"""Compares the files of an archived day with the seal that lies beside them."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from core.errors import OperationError
from history.archive.channel_table import same_meaning
from history.archive.day_files import DayFiles
from history.archive.location import Location
from history.archive.manifest import Manifest, Proof
from history.reading.hours import hour_digests
from history.seals.seal_store import chain_problems
from history.standalone import (
    AmendedRows,
    Amendment,
    HourDifference,
    Key,
    Seal,
    SealBundle,
    UnverifiableError,
    amended_hours,
    amendments,
    compare,
    effective,
    event_digests,
    event_hours,
    gaps_digest,
    gaps_in,
    names_of,
    seal_problems,
    wrong_key,
)


def verify_files(
    files: DayFiles, anchors: Sequence[str] | None, changed: Set[int] | None = None
) -> tuple[list[str], list[Amendment]]:
    """Differences from the seal or the manifest (none: it is as sealed), and those of the seal's revisions.

    ``anchors``: trusted public keys; None: those beside the seal. ``changed``: read only these channels, and files that
    are not published yet (the others were verified before); None: all. Raises OperationError if the storage fails.
    """
    problems = []
    location, manifest = files.location, files.manifest
    for file in manifest.files:
        path = files.path(file)
        if (size := location.size(path)) is None:
            problems.append(f"{path} is missing")
        elif size != file.bytes:
            problems.append(f"{path} has {size:,} bytes, {file.bytes:,} by the manifest")
        elif (changed is None or path != file.path) and location.digest(path).sha256 != file.sha256:
            problems.append(f"{path} is not the file of the manifest: its SHA-256 differs")
    if problems:
        return problems, []
    try:
        [seal] = manifest.of_table("seal")
        bundle = read_bundle(location, files.path(seal))
        problems += bundle.problems(anchors)
        if not bundle.seals:
            return [*problems, f"{seal.path} has no seal"], []
        problems += _Check.of_manifest(files, bundle)
        check = _Check(files, bundle, changed)
        differences = [difference.describe() for difference in check.differences()]
        amended, unproven = amendments(bundle.differs, bundle.parts, bundle.rows, check.rows)
        return [*problems, *check.channels(), *check.lacking, *differences, *unproven], amended
    except UnverifiableError as error:
        return [*problems, str(error)], []


def read_bundle(location: Location, path: str) -> SealBundle:
    """The seal of a day with all its digests. Raises UnverifiableError."""
    content = location.read(path)
    try:
        return SealBundle.decode(gzip.decompress(content))
    except (OSError, EOFError, zlib.error) as error:
        raise UnverifiableError(f"{path} is damaged: {error}") from error


def proof_of(location: Location, manifest: Manifest) -> Proof:
    """The statements of a day's seals; not in the manifest if an earlier version archived it. Raises OperationError."""
    if manifest.proof is not None:
        return manifest.proof
    [file] = manifest.of_table("seal")
    try:
        return Proof.of_bundle(read_bundle(location, file.path))
    except UnverifiableError as error:
        raise OperationError(f"archive {location.name}: {error}") from error


def problems_of_chain(proofs: Iterable[Proof], anchors: Sequence[str] | None) -> list[str]:
    """Places where the chain of seals of archived days is cut or signed by another key. ``anchors``: as of
    :func:`verify_files`.

    The days that were sealed before all others may have gone from the archive.
    """
    chain, keys = list[Seal](), dict[str, Key]()
    for proof in proofs:
        chain += proof.seals
        keys |= {key.fingerprint: key for key in proof.keys}
    chain.sort(key=lambda seal: seal.serial)
    if wrong := wrong_key(chain, list(keys.values()), anchors):
        return [wrong]
    return [*chain_problems(chain, None, from_first=False), *seal_problems(chain, list(keys.values()), anchors)]


class _Check:
    """The rows of one day against its seal."""

    def __init__(self, files: DayFiles, bundle: SealBundle, changed: Set[int] | None) -> None:
        self._files = files
        self._bundle = bundle
        self._changed = changed
        self.rows = AmendedRows()  # filled by differences()
        self.lacking: list[str] = []  # the same

    @staticmethod
    def of_manifest(files: DayFiles, bundle: SealBundle) -> Iterator[str]:
        """Differences of the manifest from the seal and the files."""
        manifest = files.manifest
        yield from manifest.differences(bundle.seals[-1])
        if manifest.proof not in (None, Proof.of_bundle(bundle)):
            yield "the manifest has other seals, keys or sources than the file of the seal"
        for file in manifest.files:
            if file.table == "seal":
                continue
            with files.opened(file) as parquet:
                if parquet.metadata.num_rows != file.rows:
                    yield f"{file.path} has {parquet.metadata.num_rows:,} rows, {file.rows:,} by the manifest"

    def channels(self) -> Iterator[str]:
        """Differences of the table of channels from the seal."""
        [file] = self._files.manifest.of_table("channels")
        if not same_meaning(self._files.channels(), self._bundle.document, self._files.folder):
            yield f"{file.path}: the channels are not described as sealed"

    def differences(self) -> Iterator[HourDifference]:
        """Hours whose rows are not the sealed ones."""
        sealed = effective(self._bundle.rows, len(self._bundle.seals) - 1)
        names = names_of(self._bundle.document)
        checked: set[int] = set()
        manifest, day = self._files.manifest, self._files.folder.day
        kept = dict.fromkeys(amended_hours(self._bundle.differs), b"")
        for number, samples in self._files.samples(self._changed):
            row = None if number in checked else sealed.get(number)
            sealed_hours = row.hours.by_hour() if row and row.hours else {}
            checked.add(number)
            for difference in compare(_name(names, number), number, sealed_hours, hour_digests(samples, day, kept)):
                kept.pop((number, difference.hour or 0), None)
                yield difference
        self.rows.samples = {hour: content for hour, content in kept.items() if content}
        self.lacking = [
            f"the seal lacks the digests of the hours of {_name(names, number)}"
            for number, row in sealed.items()
            if row.hours is None
        ]
        for number in sorted((set(sealed) if self._changed is None else set(self._changed)) - checked):
            hours = sealed[number].hours if number in sealed else None
            yield from compare(_name(names, number), number, hours.by_hour() if hours else {}, {})
        parts = self._bundle.parts[-1]
        [events] = manifest.of_table("events")
        with self._files.opened(events) as parquet:
            self.rows.events = event_hours(parquet, manifest.day)
        for difference in compare("events", None, parts.events.by_hour(), event_digests(self.rows.events)):
            self.rows.events.pop(difference.hour or 0, None)
            yield difference
        [gaps] = manifest.of_table("gaps")
        with self._files.opened(gaps) as parquet:
            rows = gaps_in(parquet)
        if gaps_digest(rows) == parts.gaps:
            self.rows.gaps = rows
        else:
            yield HourDifference("gaps", None, None, self._bundle.seals[-1].gaps, len(rows))


def _name(names: Mapping[int, tuple[str, str]], number: int) -> str:
    return names.get(number, (f"channel {number}", ""))[0]
