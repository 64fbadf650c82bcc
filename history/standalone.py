#!/usr/bin/env python3
"""Contents of a seal, and the check of an exported Parquet file; needs Python 3.11, pyarrow and cryptography only.

    python3 verify_plantlog.py FILE.parquet [--key PUBLIC.pem] [--json]

Specification 1. Numbers are big-endian two's complement, days and hours are UTC. H(tag, …) is the SHA-256 of
"plantlog 1 ", tag, a zero byte, and all that follows.

    sample    int64 µs since 1970, the value's 64 bits (IEEE 754), the status' 32 bits: 20 bytes
    hour      H("hour", samples by ascending time); an hour without samples has no digest
    channel   H("channel", int32 id, for each of 24 hours: int64 n, digest or 32 zero bytes)
    field     int32 length in bytes (-1: null), bytes; numbers in their width, texts in UTF-8
    event     fields: int64 µs, int64 id, type, int32 source id, int32 channel id, int32 status, text, detail (jsonb
              as PostgreSQL writes it)
    events    as a channel with id 0 and tags "event hour", "events"; events of an hour by ascending time, id
    gap       fields: int32 source id, int32 channel id (null: whole source), int64 from µs, int64 to µs (at most the
              day's end), reason, detail, int8 backfilled; of all gaps with from < end of day and to > begin of day, or
              from within the day
    gaps      H("gaps", gaps by ascending source id, channel id (null first), from)
    document  what the ids mean on the day: JSON text; its digest is H("document", text). A channel has an entry for
              each meaning, and those from within the day say since when: valid_from, µs since 1970
    root      H("day", day as YYYY-MM-DD, document, events, gaps, int32 number of channels with samples, for each by
              ascending id: int32 id, channel digest)
    seal      Ed25519 signature over the statement that Seal.statement() writes down, in which "previous" is the SHA-256
              of the statement of the seal before (64 zeros for the first): a chain in the order of sealing
    key       each key's statement is signed by the key itself, and by the key that it succeeds

An amended seal proves that what was sealed before is still there. "differs", whose SHA-256 is in the statement, lists
what it has otherwise than the revision before, as JSON:

    channels  for each hour: id, name, hour, before and after (numbers of samples), and "added", the samples that came:
              a bit for each sample of the hour as amended, by time, the highest bit of a byte first, compressed (zlib)
              and in Base64. Without them, the hour has the digest that the revision before says
    events    the same for hours of events
    gaps      before and after, and "rows": for each gap that was added or reported anew its key (source id, channel id,
              from), and "was", the row as it was (null: there was none). With these, the digest is that of the
              revision before
    receipts  numbers of the signed receipts of gaps that this seal used up: none of them counts again
    deleted   from, to, why, by: the hours of this revision had samples deleted by `plantlog evidence delete`, which
              signs the seal; they have no "added"

An hour that differs and has neither was amended by a version of plantlog that kept no proof.

Specification 2, for databases that several installations share. Each has a chain with keys of its own, and its seals
cover only its own channels, events and gaps: their statement ends with the line "installation: " and its number, and
their document names it. The first installation has number 1, and covers what belongs to no other. A seal without that
line is of specification 1: it covers all of the database. The hashes are those of specification 1.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any

SPECIFICATION = 1
INSTALLATIONS = 2  # the specification of seals that cover one installation
METADATA = b"plantlog"  # key of the seal in the Parquet file's metadata
ZERO = bytes(32)
_HOUR_US = 3_600_000_000


class UnverifiableError(Exception):
    """Input that can't be verified at all; the message says why."""


def schema_of(table: str) -> Any:
    """The pyarrow schema of an exported table: samples, events or gaps."""
    import pyarrow as pa  # noqa: PLC0415

    time, text = pa.timestamp("us", tz="UTC"), pa.dictionary(pa.int32(), pa.string())
    columns: dict[str, list[tuple[str, Any]]] = {
        "samples": [
            ("time", time), ("channel_id", pa.int32()), ("channel", text), ("unit", text), ("value", pa.float64()),
            ("status", pa.uint32()),
        ],
        "events": [
            ("time", time), ("id", pa.int64()), ("type", pa.string()), ("source_id", pa.int32()),
            ("channel_id", pa.int32()), ("status", pa.int32()), ("text", pa.string()), ("detail", pa.string()),
        ],
        "gaps": [
            ("source_id", pa.int32()), ("channel_id", pa.int32()), ("from_time", time), ("to_time", time),
            ("reason", pa.string()), ("detail", pa.string()), ("backfilled", pa.bool_()),
        ],
    }  # fmt: skip
    return pa.schema([pa.field(name, kind, nullable=table != "samples") for name, kind in columns[table]])


def require_schema(file: Any, schema: Any) -> None:
    """Compare the columns of a pyarrow ParquetFile, also as readers other than Arrow see them: an integer is another
    time with another unit or zone. Raises UnverifiableError.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    sink = pa.BufferOutputStream()
    pq.write_table(schema.empty_table(), sink)
    legal = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    if file.schema_arrow.equals(legal.schema_arrow) and file.schema.equals(legal.schema):
        return
    for index in range(max(len(file.schema_arrow), len(schema))):
        actual, expected = (
            str(columns.field(index)) if index < len(columns) else "none" for columns in (file.schema_arrow, schema)
        )
        if actual != expected:
            raise UnverifiableError(f"column {index + 1}: found {actual}; legal: {expected}")
    raise UnverifiableError(f"columns: found {file.schema}; legal: {legal.schema}")


def tagged_hash(tag: str, *parts: bytes) -> bytes:
    """Digest H(tag, …)."""
    digest = hashlib.sha256(f"plantlog {SPECIFICATION} {tag}\0".encode())
    for part in parts:
        digest.update(part)
    return digest.digest()


@dataclass(frozen=True, slots=True)
class HourDigests:
    """Counts and digests of a channel's (or of the events') 24 hours."""

    n: tuple[int, ...]
    digests: tuple[bytes, ...]  # of hours with n > 0 only

    @classmethod
    def of_hours(cls, hours: Mapping[int, tuple[int, bytes]]) -> HourDigests:
        """Make it from hour → (n, digest)."""
        return cls(tuple(hours.get(h, (0, b""))[0] for h in range(24)), tuple(hours[h][1] for h in sorted(hours)))

    @classmethod
    def unpacked(cls, n: Sequence[int], joined: bytes) -> HourDigests:
        """Make it from counts and joined digests. Raises UnverifiableError where they don't fit."""
        digests = tuple(joined[i : i + 32] for i in range(0, len(joined), 32))
        if len(n) != 24 or len(digests) != sum(1 for count in n if count) or len(joined) % 32:
            raise UnverifiableError("counts and digests of 24 hours do not fit together")
        return cls(tuple(n), digests)

    def by_hour(self) -> dict[int, tuple[int, bytes]]:
        """Hour → (n, digest), of hours that have something."""
        rest = iter(self.digests)
        return {hour: (n, next(rest)) for hour, n in enumerate(self.n) if n}

    def digest(self, tag: str, number: int) -> bytes:
        """The digest of a channel, or of a day's events."""
        hours = self.by_hour()
        parts = (struct.pack(">q", n) + hours.get(h, (0, ZERO))[1] for h, n in enumerate(self.n))
        return tagged_hash(tag, struct.pack(">i", number), *parts)


def row_bytes(*values: int | str | bool | None, widths: str) -> bytes:
    """A row of fields. ``widths``: a letter each: q int64, i int32, b int8, s text."""
    parts = []
    for value, width in zip(values, widths, strict=True):
        if value is None:
            parts.append(b"\xff\xff\xff\xff")
            continue
        data = str(value).encode() if width == "s" else struct.pack(f">{width}", value)
        parts.append(struct.pack(">i", len(data)) + data)
    return b"".join(parts)


EVENT_WIDTHS = "qqsiiiss"
GAP_WIDTHS = "iiqqssb"


def root(day: str, document: bytes, events: bytes, gaps: bytes, channels: Mapping[int, bytes]) -> bytes:
    """A day's root, from the digests of its parts; ``channels``: id → digest of those with samples."""
    listed = (struct.pack(">i", number) + channels[number] for number in sorted(channels))
    return tagged_hash("day", day.encode(), document, events, gaps, struct.pack(">i", len(channels)), *listed)


@dataclass(frozen=True, slots=True)
class Seal:
    """One seal; digests in hex, times in µs since 1970."""

    serial: int
    day: str
    revision: int  # 0: the first
    kind: str  # first, amended
    root: str
    previous: str
    read_from: int  # samples were read from then on
    sealed_at: int
    samples: int
    channels: int  # with samples
    events: int
    gaps: int
    differs: str  # SHA-256 of what an amended seal says of its difference from the revision before
    key: str  # fingerprint of the signer's key: SHA-256 of its 32 bytes
    signature: str = ""
    installation: int = 0  # that the seal covers; 0: all

    @property
    def chain(self) -> int:
        """The number of the installation that made the seal."""
        return max(self.installation, 1)

    def as_dict(self) -> dict[str, Any]:
        """The fields that the seal's specification has."""
        return {name: value for name, value in asdict(self).items() if name != "installation" or value}

    def statement(self) -> bytes:
        """Statement that is signed."""
        lines = (f"{name}: {value}\n" for name, value in self.as_dict().items() if name != "signature")
        return (f"plantlog seal {SPECIFICATION}\n" + "".join(lines)).encode()

    def hash(self) -> str:
        """Hash that the next seal calls ``previous``."""
        return hashlib.sha256(self.statement()).hexdigest()


@dataclass(frozen=True, slots=True)
class Key:
    """A public key and who vouches for it; in hex."""

    public: str
    made_at: int  # µs since 1970
    succeeds: str = ""  # fingerprint of the key before
    own_signature: str = ""
    former_signature: str = ""  # of the key before

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the key's 32 bytes."""
        return hashlib.sha256(bytes.fromhex(self.public)).hexdigest()

    def statement(self) -> bytes:
        """Statement that is signed."""
        lines = f"public: {self.public}\nmade_at: {self.made_at}\nsucceeds: {self.succeeds}\n"
        return f"plantlog seal key {SPECIFICATION}\n{lines}".encode()


def signed(public: str, signature: str, statement: bytes) -> bool:
    """Return whether the signature is that key's on that statement."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), statement)
    except (InvalidSignature, ValueError):
        return False
    return True


def read_keys(pem: bytes) -> list[str]:
    """Public keys, in hex, of a PEM file with one or more. Raises UnverifiableError."""
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

    end = b"-----END PUBLIC KEY-----"
    keys = []
    for block in pem.split(end)[:-1]:
        try:
            key = serialization.load_pem_public_key(block[block.index(b"-----BEGIN") :] + end)
        except ValueError as error:
            raise UnverifiableError(f"not a public key in PEM format: {error}") from error
        if not isinstance(key, Ed25519PublicKey):
            raise UnverifiableError("the public key is not Ed25519")
        keys.append(key.public_bytes_raw().hex())
    if not keys:
        raise UnverifiableError("not a public key in PEM format")
    return keys


def trusted_keys(keys: Sequence[Key], anchors: Sequence[str]) -> set[str]:
    """Fingerprints of all keys that a succession with both signatures ties to one of ``anchors`` (public keys)."""
    trusted = {hashlib.sha256(bytes.fromhex(public)).hexdigest() for public in anchors}
    by_fingerprint = {key.fingerprint: key for key in keys}
    ties = [
        (key.fingerprint, key.succeeds)
        for key in keys
        if key.succeeds in by_fingerprint
        and signed(key.public, key.own_signature, key.statement())
        and signed(by_fingerprint[key.succeeds].public, key.former_signature, key.statement())
    ]
    for _ in ties:
        trusted |= {fingerprint for tie in ties if trusted & set(tie) for fingerprint in tie}
    return trusted


def wrong_key(seals: Sequence[Seal], keys: Sequence[Key], anchors: Sequence[str] | None) -> str:
    """Why none of the seals is by a trusted key, in words; empty: one of them is, or ``anchors`` is None."""
    if anchors is None or not seals or {seal.key for seal in seals} & trusted_keys(keys, anchors):
        return ""
    signers = " and ".join(dict.fromkeys(f"key {seal.key[:16]}" for seal in seals))
    trusted = " or ".join(f"key {hashlib.sha256(bytes.fromhex(public)).hexdigest()[:16]}" for public in anchors)
    return (
        f"WRONG KEY: signed by {signers}; {trusted}, which is trusted, does not vouch for it. Either this is the key "
        "of another plant, or the seals are forged"
    )


def deposited_problem(seals: Sequence[Seal], deposited: str) -> str:
    """Why seals are not those of which one has the deposited hash, or follows it; empty: they are.

    Raises UnverifiableError if it is no hash.
    """
    if not re.fullmatch("[0-9a-f]{64}", deposited.lower()):
        raise UnverifiableError(f"--deposited: found {deposited!r}; legal: the 64 hexadecimal digits of a seal's hash")
    if any(deposited.lower() in (seal.hash(), seal.previous) for seal in seals):
        return ""
    return f"no seal here has the deposited hash {deposited[:16]}…, or follows the one that has it"


def seal_problems(seals: Sequence[Seal], keys: Sequence[Key], anchors: Sequence[str] | None) -> Iterator[str]:
    """Problems of signatures. ``anchors``: public keys to trust; None: those that came with the seals."""
    publics = {key.fingerprint: key.public for key in keys}
    publics.update({hashlib.sha256(bytes.fromhex(public)).hexdigest(): public for public in anchors or ()})
    trusted = set(publics) if anchors is None else trusted_keys(keys, anchors)
    trusted_hash: str | None = None  # hash of the seal that a trusted later one builds on
    problems = []
    for seal in sorted(seals, key=lambda seal: -seal.serial):
        name = f"seal {seal.serial} ({seal.day}, revision {seal.revision})"
        if seal.key not in publics:
            problems.append(f"{name}: signed by the unknown key {seal.key[:16]}")
        elif not signed(publics[seal.key], seal.signature, seal.statement()):
            problems.append(f"{name}: the signature does not match key {seal.key[:16]} and the content of the seal")
            trusted_hash = None
            continue
        elif seal.key not in trusted and trusted_hash != seal.hash():
            problems.append(f"{name}: signed by key {seal.key[:16]}, which no trusted key vouches for")
        else:
            trusted_hash = seal.previous
            continue
        trusted_hash = None
    yield from reversed(problems)


@dataclass(frozen=True, slots=True)
class ChannelDigests:
    """A channel's digests in one revision: its hours, or (channels that are not in the file) its digest alone."""

    channel_id: int
    revision: int
    hours: HourDigests | None
    digest: bytes  # of the channel; empty where it has no samples in this revision


def effective(rows: Sequence[ChannelDigests], revision: int) -> dict[int, ChannelDigests]:
    """Channel id → its newest row up to a revision, of channels that have samples then."""
    newest: dict[int, ChannelDigests] = {}
    for row in sorted(rows, key=lambda row: row.revision):
        if row.revision <= revision:
            newest[row.channel_id] = row
    return {number: row for number, row in newest.items() if row.digest}


@dataclass(frozen=True, slots=True)
class Revision:
    """Parts of a root besides the channels."""

    document: bytes
    events: HourDigests
    gaps: bytes


def root_of(seal: Seal, parts: Revision, rows: Sequence[ChannelDigests]) -> bytes:
    """The root that the kept digests make up."""
    channels = {number: row.digest for number, row in effective(rows, seal.revision).items()}
    return root(seal.day, parts.document, parts.events.digest("events", 0), parts.gaps, channels)


@dataclass(frozen=True, slots=True)
class SealBundle:
    """Metadata of a file beside its rows: a day's seals and all that they need."""

    table: str  # samples, events, gaps
    day: str
    complete: bool  # all channels of the day are in the file
    seals: list[Seal]
    parts: list[Revision]  # one for each seal
    rows: list[ChannelDigests]
    keys: list[Key]
    document: str  # of the last revision
    differs: list[str]  # of each seal

    def encode(self) -> bytes:
        """Encode it as JSON."""
        hours = [[list(r.hours.n), _b64(b"".join(r.hours.digests))] if r.hours else [] for r in self.rows]
        rows = [[r.channel_id, r.revision, _b64(r.digest), *h] for r, h in zip(self.rows, hours, strict=True)]
        parts = [
            [_b64(p.document), list(p.events.n), _b64(b"".join(p.events.digests)), _b64(p.gaps)] for p in self.parts
        ]
        data = {
            "specification": INSTALLATIONS if any(seal.installation for seal in self.seals) else SPECIFICATION,
            "table": self.table,
            "day": self.day,
            "complete": self.complete,
            "seals": [seal.as_dict() for seal in self.seals],
            "parts": parts,
            "rows": rows,
            "keys": [asdict(key) for key in self.keys],
            "document": _b64(zlib.compress(self.document.encode())),
            "differs": self.differs,
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, text: bytes) -> SealBundle:
        """Decode it, the inverse of :meth:`encode`. Raises UnverifiableError."""
        try:
            data = json.loads(text)
            if data["specification"] not in (SPECIFICATION, INSTALLATIONS):
                raise UnverifiableError(
                    f"specification {data['specification']} is not supported, only {SPECIFICATION} and {INSTALLATIONS}"
                )
            unpack = base64.b64decode
            rows = [
                ChannelDigests(
                    r[0], r[1], HourDigests.unpacked(r[3], unpack(r[4])) if len(r) > 3 else None, unpack(r[2])
                )
                for r in data["rows"]
            ]
            parts = [
                Revision(base64.b64decode(d), HourDigests.unpacked(n, base64.b64decode(e)), base64.b64decode(g))
                for d, n, e, g in data["parts"]
            ]
            return cls(
                data["table"], data["day"], data["complete"], [Seal(**seal) for seal in data["seals"]], parts, rows,
                [Key(**key) for key in data["keys"]], zlib.decompress(base64.b64decode(data["document"])).decode(),
                data["differs"],
            )  # fmt: skip
        except (ValueError, KeyError, TypeError, zlib.error) as error:
            raise UnverifiableError(f"cannot read the seal: {type(error).__name__}: {error}") from error

    def problems(self, anchors: Sequence[str] | None) -> list[str]:
        """Problems of the seals themselves."""
        problems = list(seal_problems(self.seals, self.keys, anchors))
        for row in self.rows:
            if row.hours is not None and row.digest and row.hours.digest("channel", row.channel_id) != row.digest:
                problems.append(f"channel {row.channel_id}: its hours do not make up its digest")
        for seal, parts, differs in zip(self.seals, self.parts, self.differs, strict=True):
            name = f"seal {seal.serial} (revision {seal.revision})"
            if seal.day != self.day:
                problems.append(f"{name} is of {seal.day}, not of {self.day}")
            if root_of(seal, parts, self.rows).hex() != seal.root:
                problems.append(f"{name}: the digests in the file do not make up its root")
            if hashlib.sha256(differs.encode()).hexdigest() != seal.differs:
                problems.append(f"{name}: its list of differences from the revision before was altered")
        for seal, parts in zip(self.seals, self.parts, strict=True):
            sealed = effective(self.rows, seal.revision)
            hours = [row.hours for row in sealed.values() if row.hours is not None]
            counts = [("events", seal.events, sum(parts.events.n)), ("channels", seal.channels, len(sealed))]
            if len(hours) == len(sealed):
                counts.append(("samples", seal.samples, sum(sum(counts_of_hours.n) for counts_of_hours in hours)))
            problems += [
                f"seal {seal.serial} (revision {seal.revision}) says {number:,} {noun}, its digests {n:,}"
                for noun, number, n in counts
                if number != n
            ]
        if [seal.revision for seal in self.seals] != list(range(len(self.seals))) or not self.seals:
            problems.append("revisions of the day's seal are missing")
        elif tagged_hash("document", self.document.encode()) != self.parts[-1].document:
            problems.append("the names of channels are not the sealed ones")
        return problems


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def canonical_bytes(time: bytes, value: bytes, status: bytes) -> bytes:
    """Canonical bytes of samples from little-endian columns of int64, float64 and uint32."""
    samples = bytearray(len(status) // 4 * 20)
    for first, width, column in ((0, 8, time), (8, 8, value), (16, 4, status)):
        for byte in range(width):
            samples[first + byte :: 20] = column[width - 1 - byte :: width]
    return bytes(samples)


def _column(batch: Any, name: str, kind: Any) -> bytes:
    import pyarrow as pa  # noqa: PLC0415

    array = batch.column(name)
    if array.null_count:
        raise UnverifiableError(f"column {name} has empty values")
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.type != kind:
        raise UnverifiableError(f"column {name} is {array.type}, not {kind}")
    width = kind.bit_width // 8
    buffer = array.buffers()[1]
    return buffer[array.offset * width : (array.offset + len(array)) * width].to_pybytes() if len(array) else b""


def _begin(day: str) -> int:
    from datetime import UTC, datetime  # noqa: PLC0415

    moment = datetime.fromisoformat(day).replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000


def sample_hours(
    file: Any,
    day: str,
    names_in_file: NamesInFile,
    kept: dict[tuple[int, int], bytes],
    labels: Mapping[int, Sequence[ChannelLabel]],
) -> Iterator[tuple[int, int, int, bytes]]:
    """(channel id, hour, n, digest) in the order of a pyarrow ParquetFile. Raises UnverifiableError.

    ``names_in_file`` is filled with what the rows call the channels, to be compared with ``labels``; the values of
    ``kept`` with the samples of those channels and hours.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    begin = _begin(day)
    # A channel that gets its first name back has it at both ends of the day.
    periods = {
        channel: [(label[0], after[0]) for label, after in pairwise([*sealed, (2**62, "", "")])]
        for channel, sealed in labels.items()
        if len(sealed) > 1
    }
    columns = ["time", "channel_id", "channel", "unit", "value", "status"]
    current: tuple[int, int] | None = None
    n, digest = 0, hashlib.sha256()
    for batch in file.iter_batches(batch_size=262_144, columns=columns):
        time, value = _column(batch, "time", pa.int64()), _column(batch, "value", pa.float64())
        status, _ = _column(batch, "status", pa.uint32()), _column(batch, "channel_id", pa.int32())
        hour = pc.divide(pc.subtract(batch.column("time").cast(pa.int64()), begin), _HOUR_US)
        key = pc.add(pc.multiply(batch.column("channel_id").cast(pa.int64()), 1 << 20), hour)
        first = 0
        texts = [batch.column(name).cast(pa.string()) for name in ("channel", "unit")]
        times = batch.column("time").cast(pa.int64())
        names = pa.table([batch.column("channel_id"), *texts, times], ["channel_id", "channel", "unit", "time"])
        _add_names(names, names_in_file)
        for last in pc.run_end_encode(key, run_end_type=pa.int32()).run_ends.to_pylist():
            channel_hour = (batch.column("channel_id")[first].as_py(), hour[first].as_py())
            if channel_hour != current:
                if current is not None:
                    yield *current, n, digest.digest()
                current, n, digest = channel_hour, 0, hashlib.sha256(f"plantlog {SPECIFICATION} hour\0".encode())
            for since, until in periods.get(channel_hour[0], ()):
                of_hour = names.slice(first, last - first)
                within = pc.and_(pc.greater_equal(of_hour["time"], since), pc.less(of_hour["time"], until))
                _add_names(of_hour.filter(within), names_in_file, since)
            part = slice(first * 8, last * 8)
            content = canonical_bytes(time[part], value[part], status[first * 4 : last * 4])
            digest.update(content)
            if channel_hour in kept:
                kept[channel_hour] += content
            n += last - first
            first = last
    if current is not None:
        yield *current, n, digest.digest()


NamesInFile = dict[tuple[int, str, str, int], tuple[int, int]]
"""(channel id, name, unit, since when the channel has a label, µs; 0: all day) → first and last time (µs) in rows."""


def _add_names(rows: Any, names_in_file: NamesInFile, since: int = 0) -> None:
    spans = rows.group_by(["channel_id", "channel", "unit"]).aggregate([("time", "min"), ("time", "max")])
    for row in spans.to_pylist():
        name = (row["channel_id"], row["channel"], row["unit"], since)
        span = names_in_file.get(name, (row["time_min"], row["time_max"]))
        names_in_file[name] = (min(span[0], row["time_min"]), max(span[1], row["time_max"]))


def misnamed(names_in_file: NamesInFile, labels: Mapping[int, Sequence[ChannelLabel]]) -> Iterator[str]:
    """Problems of rows with a name that the channel did not have at their time; each name once."""
    reported: set[tuple[int, str, str]] = set()
    for (channel, name, unit, _), span in sorted(names_in_file.items()):
        label = (name, unit)
        sealed_as = {label_at(labels[channel], us) for us in span} if channel in labels else {label}
        if sealed_as != {label} and (channel, *label) not in reported:
            reported.add((channel, *label))
            in_file, in_seal = (
                " in ".join(filter(None, name_and_unit)) for name_and_unit in (label, min(sealed_as - {label}))
            )
            yield f"channel {channel} is called {in_file} in rows of the file, and {in_seal} in the seal"


def event_hours(file: Any, day: str) -> dict[int, list[bytes]]:
    """Hour → events, as fields, of a file of events. Raises UnverifiableError."""
    begin = _begin(day)
    schema = schema_of("events")
    require_schema(file, schema)
    hours: dict[int, list[bytes]] = {}
    for values in rows_of(file, schema.names):
        hours.setdefault((values[0] - begin) // _HOUR_US, []).append(row_bytes(*values, widths=EVENT_WIDTHS))
    return hours


def event_digests(hours: Mapping[int, Sequence[bytes]]) -> dict[int, tuple[int, bytes]]:
    """Hour → (n, digest)."""
    return {hour: (len(rows), tagged_hash("event hour", *rows)) for hour, rows in hours.items() if rows}


GapRow = tuple[Any, ...]  # the fields of a gap


def gaps_in(file: Any) -> list[GapRow]:
    """The rows of a file of gaps. Raises UnverifiableError."""
    schema = schema_of("gaps")
    require_schema(file, schema)
    return list(rows_of(file, schema.names))


def gaps_digest(rows: Iterable[GapRow]) -> bytes:
    """The digest of a day's gaps."""
    return tagged_hash("gaps", *(row_bytes(*row, widths=GAP_WIDTHS) for row in rows))


def rows_of(file: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """The rows of a Parquet file; times are µs since 1970."""
    import pyarrow as pa  # noqa: PLC0415

    for batch in file.iter_batches(columns=list(names)):
        arrays = [batch.column(name) for name in names]
        times = [a.cast(pa.int64()) if pa.types.is_timestamp(a.type) else a for a in arrays]
        yield from zip(*(a.to_pylist() for a in times), strict=True)


@dataclass(frozen=True, slots=True)
class HourDifference:
    """An hour whose rows are not the sealed ones."""

    what: str  # a channel's name, events, gaps
    channel_id: int | None
    hour: int | None  # of the day
    sealed: int  # rows
    found: int

    @property
    def kind(self) -> str:
        """Kind of the least change that explains it: rows were added, are missing, or were changed."""
        return "added" if self.found > self.sealed else "missing" if self.found < self.sealed else "changed"

    def describe(self, rest_is_sealed: bool = False) -> str:
        """Text for people. ``rest_is_sealed``: it is proven that rows were added, and none of the others changed."""
        rows = f"{self.found - self.sealed:,} added" if rest_is_sealed else least_change(self.sealed, self.found)
        hour = "" if self.hour is None else f", hour {self.hour:02}"
        return f"{self.what}{hour}: {rows} ({self.sealed:,} sealed, {self.found:,} found)"


def least_change(before: int, after: int) -> str:
    """The least change between two numbers of rows with different digests, which don't tell what else was changed."""
    if before == after:
        return "at least 1 changed"
    rows = f"{abs(after - before):,} {'added' if after > before else 'missing'}"
    return f"at least {rows}, and others may have changed" if before and after else rows


def compare(
    name: str, channel_id: int | None, sealed: Mapping[int, tuple[int, bytes]], actual: Mapping[int, tuple[int, bytes]]
) -> Iterator[HourDifference]:
    """Hours of one channel, or of the events, that differ."""
    for hour in sorted(set(sealed) | set(actual)):
        was, now = sealed.get(hour, (0, b"")), actual.get(hour, (0, b""))
        if was != now:
            yield HourDifference(name, channel_id, hour, was[0], now[0])


ChannelLabel = tuple[int, str, str]  # since when, µs; name, unit


def labels_of(document: str) -> dict[int, list[ChannelLabel]]:
    """Channel id → what it meant on the day, as sealed, by time; what was so before the day is so since 0."""
    by_channel: dict[int, list[ChannelLabel]] = {}
    for entry in json.loads(document)["channels"]:
        by_channel.setdefault(int(entry["id"]), []).append(
            (int(entry.get("valid_from", 0)), entry["name"], entry["unit"])
        )
    return {number: sorted(labels) for number, labels in by_channel.items()}


def plant_of(document: str) -> str:
    """The plant of the installation that a seal covers, in words; empty where it covers all."""
    installation = json.loads(document).get("installation")
    return f" (plant {installation['plant']})" if installation else ""


def names_of(document: str) -> dict[int, tuple[str, str]]:
    """Channel id → (name, unit), as sealed, at the day's end."""
    return {number: labels[-1][1:] for number, labels in labels_of(document).items()}


def label_at(labels: Sequence[ChannelLabel], us: int) -> tuple[str, str]:
    """Name and unit at a time."""
    return next((label[1:] for label in reversed(labels) if label[0] <= us), labels[0][1:])


@dataclass(frozen=True, slots=True)
class Amendment:
    """A difference of an amended seal from the revision before."""

    revision: int
    what: str  # in words
    proven: bool  # that all rows of the revision before are there as they were

    def describe(self) -> str:
        """Text for people."""
        return f"revision {self.revision}: {self.what}"


@dataclass(slots=True)
class AmendedRows:
    """The rows of the newest revision where an amended seal differs: those of the hours that have its digests."""

    samples: dict[tuple[int, int], bytes] = field(default_factory=dict)  # (channel id, hour) → samples, 20 bytes each
    events: dict[int, list[bytes]] = field(default_factory=dict)  # hour → rows
    gaps: list[GapRow] | None = None


def amended_hours(differs: Sequence[str]) -> set[tuple[int, int]]:
    """(channel id, hour) of all samples that amended seals have otherwise."""
    try:
        return {(change["id"], change["hour"]) for text in differs if text for change in json.loads(text)["channels"]}
    except (ValueError, KeyError, TypeError):
        return set()  # amendments() says so


def rows_before(rows: Sequence[bytes], added: str) -> list[bytes]:
    """Rows without those that came. ``added``: a bit for each (see above)."""
    bits = zlib.decompress(base64.b64decode(added))
    return [row for index, row in enumerate(rows) if not bits[index >> 3] >> (7 - (index & 7)) & 1]


def gaps_before(rows: Iterable[GapRow], changed: Sequence[Mapping[str, Any]]) -> list[GapRow]:
    """Gaps as they were before the changes of an amended seal, in the order of the specification."""
    keys = {tuple(change["gap"]) for change in changed}
    former = [tuple(change["was"]) for change in changed if change["was"] is not None]
    kept = [row for row in rows if tuple(row[:3]) not in keys]
    return sorted([*kept, *former], key=lambda row: (row[0], row[1] is not None, row[1] or 0, row[2]))


def amendments(
    differs: Sequence[str], parts: Sequence[Revision], sealed: Sequence[ChannelDigests], rows: AmendedRows
) -> tuple[list[Amendment], list[str]]:
    """All differences of a day's revisions, oldest first, and what does not hold of their proofs.

    Proofs of hours that ``rows`` lacks are not checked: whoever signed the seal did. ``rows`` goes back to revision 0.
    """
    try:
        return _amendments(differs, parts, sealed, rows)
    except (ValueError, KeyError, IndexError, TypeError, zlib.error) as error:
        return [], [f"the list of differences between its revisions was altered: {type(error).__name__}: {error}"]


def _amendments(
    differs: Sequence[str], parts: Sequence[Revision], sealed: Sequence[ChannelDigests], rows: AmendedRows
) -> tuple[list[Amendment], list[str]]:
    all_amendments: list[Amendment] = []
    problems: list[str] = []
    for revision in range(len(differs) - 1, 0, -1):
        changes = json.loads(differs[revision])
        before = effective(sealed, revision - 1)
        deletion = changes.get("deleted")
        why = f", deleted by {deletion['by']} ({deletion['why']})" if deletion else ""
        of_revision = []
        for change in changes["channels"]:
            name, channel_hour = change["name"] or f"channel {change['id']}", (change["id"], change["hour"])
            row = before.get(change["id"])
            was = row.hours.by_hour().get(change["hour"], (0, b"")) if row and row.hours else (0, b"")
            text, proven = _amended(change, f"{name}, hour {change['hour']:02}", "sample", why)
            of_revision.append(Amendment(revision, text, proven))
            if channel_hour in rows.samples:
                content = rows.samples.pop(channel_hour)
                samples = [content[i : i + 20] for i in range(0, len(content), 20)]
                rest = rows_before(samples, change["added"]) if "added" in change else []
                if proven and (len(rest), tagged_hash("hour", *rest) if rest else b"") != was:
                    problems.append(f"revision {revision}: {name}, hour {change['hour']:02}: {_NO_PROOF}")
                elif proven and rest:
                    rows.samples[channel_hour] = b"".join(rest)
        for change in changes.get("events", ()):
            was = parts[revision - 1].events.by_hour().get(change["hour"], (0, b""))
            text, proven = _amended(change, f"events, hour {change['hour']:02}", "event", "")
            of_revision.append(Amendment(revision, text, proven))
            if change["hour"] in rows.events:
                events = rows.events.pop(change["hour"])
                rest = rows_before(events, change["added"]) if "added" in change else []
                if proven and (len(rest), tagged_hash("event hour", *rest) if rest else b"") != was:
                    problems.append(f"revision {revision}: events, hour {change['hour']:02}: {_NO_PROOF}")
                elif proven and rest:
                    rows.events[change["hour"]] = rest
        if "gaps" in changes:
            listed = changes["gaps"].get("rows")
            of_revision += _amended_gaps(revision, changes["gaps"], listed)
            rows.gaps = None if rows.gaps is None or listed is None else gaps_before(rows.gaps, listed)
            if rows.gaps is not None and gaps_digest(rows.gaps) != parts[revision - 1].gaps:
                problems.append(f"revision {revision}: gaps: {_NO_PROOF}")
                rows.gaps = None
        all_amendments = [*of_revision, *_amended_otherwise(revision, changes), *all_amendments]
    return all_amendments, problems


_NO_PROOF = "without what is said to have been added, the rows are not those of the revision before"


def _amended(change: Mapping[str, Any], where: str, noun: str, why: str) -> tuple[str, bool]:
    """An hour that was amended, in words; whether its rows of before must be there."""
    n = change["after"] - change["before"]
    proven = "added" in change or (change["before"] == 0 and n > 0 and not why)
    if not proven and not why:
        return f"{where}: {least_change(change['before'], change['after'])}, by a version that kept no proof", False
    return f"{where}: {abs(n):,} {noun}{'' if abs(n) == 1 else 's'} {'added' if n > 0 else 'missing'}{why}", proven


def _amended_gaps(
    revision: int, changes: Mapping[str, Any], listed: Sequence[Mapping[str, Any]] | None
) -> Iterator[Amendment]:
    if listed is None:
        text = f"gaps: {changes['before']} before, {changes['after']} after, by a version that kept no proof"
        yield Amendment(revision, text, False)
        return
    for change in listed:
        source, channel, since = change["gap"]
        subject = f"source {source}" if channel is None else f"channel {channel}"
        action = "was added" if change["was"] is None else "was reported anew"
        yield Amendment(revision, f"gap of {subject} from {_words(since)} {action}", True)


def _amended_otherwise(revision: int, changes: Mapping[str, Any]) -> Iterator[Amendment]:
    """Amendments that change no row."""
    if "receipts" in changes and "gaps" not in changes:
        yield Amendment(revision, "gaps were changed, and changed back", True)
    if "document" in changes:
        yield Amendment(revision, f"meanings were added: {', '.join(changes['document'])}", True)


def _words(us: int) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return f"{datetime.fromtimestamp(us // 1_000_000, UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict on a file."""

    bundle: SealBundle
    problems: list[str]  # of the seals
    differences: list[HourDifference]  # of the rows
    rows: int
    amended: list[Amendment]  # what later revisions of the seal have otherwise than the first one
    wrong_key: str = ""  # why nobody can say who sealed it; the rest is compared with the seals all the same
    missing: Sequence[str] = ()  # files of the day that are not beside this one

    @property
    def ok(self) -> bool:
        """Return whether everything is as sealed."""
        return not self.problems and not self.differences and not self.wrong_key

    @property
    def strictly_ok(self) -> bool:
        """Return whether, besides, no sealed row was deleted or amended without proof, and no file is missing."""
        return self.ok and not self.missing and all(amendment.proven for amendment in self.amended)


def open_file(path: str) -> tuple[Any, SealBundle]:
    """A Parquet file and its seal. Raises UnverifiableError with the reason in words."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        if os.path.isdir(path):  # noqa: PTH112
            raise UnverifiableError(f"{path}: found a folder; legal: a Parquet file")
        file = pq.ParquetFile(path)
    except FileNotFoundError as error:
        raise UnverifiableError(f"{path}: found no such file; legal: a Parquet file") from error
    except PermissionError as error:
        legal = "a Parquet file"
        raise UnverifiableError(f"{path}: found a file that this account may not read; legal: {legal}") from error
    except (pa.ArrowException, OSError) as error:
        raise UnverifiableError(f"{path} is not a complete Parquet file: {error}") from error
    text = (file.metadata.metadata or {}).get(METADATA)
    if text is None:
        file.close()
        raise UnverifiableError(f"{path} contains no seal: it was not written by `plantlog evidence export`")
    bundle = SealBundle.decode(text)
    suffix = next((table for table in ("events", "gaps") if path.endswith(f".{table}.parquet")), "samples")
    if bundle.table != suffix:
        file.close()
        raise UnverifiableError(
            f"{path}: by its name it has {suffix}, by its seal {bundle.table}; legal: NAME.parquet for samples, "
            "NAME.events.parquet, NAME.gaps.parquet"
        )
    return file, bundle


def verify_day(path: str, anchors: Sequence[str] | None, deposited: str | None = None) -> dict[str, Verdict]:
    """Verdicts on an exported file and, where it has samples, on those of the day's events and gaps beside it.

    ``deposited``: hash of a seal that a third party has. Raises UnverifiableError.
    """
    stem, is_parquet, _ = path.rpartition(".parquet")
    is_samples = is_parquet and not stem.endswith((".events", ".gaps"))
    others = [f"{stem}.{table}.parquet" for table in ("events", "gaps") if is_samples]
    present = [other for other in others if os.path.exists(other)]  # noqa: PTH110
    verdicts = {file: verify_file(file, anchors) for file in (path, *present)}
    missing = [other for other in others if other not in present]
    verdicts[path] = replace(verdicts[path], missing=missing)
    seals = verdicts[path].bundle.seals
    for file, verdict in verdicts.items():
        if [seal.hash() for seal in verdict.bundle.seals] != [seal.hash() for seal in seals]:
            verdict.problems.append(f"{file} has other seals than {path}: export both again")
    if deposited is not None and (problem := deposited_problem(seals, deposited)):
        verdicts[path].problems.append(problem)
    return verdicts


def verify_file(path: str, anchors: Sequence[str] | None) -> Verdict:
    """Check signatures, digests and every row. ``anchors``: trusted public keys; None: any.

    Raises UnverifiableError.
    """
    import pyarrow as pa  # noqa: PLC0415

    file, bundle = open_file(path)
    try:
        wrong = wrong_key(bundle.seals, bundle.keys, anchors)
        problems = bundle.problems(None if wrong else anchors)
        if not bundle.parts:
            raise UnverifiableError(f"{path}: its seal is empty")
        check = {"samples": _samples, "events": _events, "gaps": _gaps}[bundle.table]
        rows = AmendedRows()
        differences = list(check(file, bundle, problems, rows))
        amended, unproven = amendments(bundle.differs, bundle.parts, bundle.rows, rows)
        return Verdict(bundle, problems + unproven, differences, file.metadata.num_rows, amended, wrong)
    except UnverifiableError as error:
        raise UnverifiableError(f"{path}: {error}") from error
    except (pa.ArrowException, OSError, KeyError, IndexError, ValueError, TypeError, zlib.error) as error:
        raise UnverifiableError(f"{path} is damaged: {error}") from error
    finally:
        file.close()


def _samples(file: Any, bundle: SealBundle, problems: list[str], rows: AmendedRows) -> Iterator[HourDifference]:
    require_schema(file, schema_of("samples"))
    kept = dict.fromkeys(amended_hours(bundle.differs), b"")
    names, labels = names_of(bundle.document), labels_of(bundle.document)
    hours_by_channel: dict[int, dict[int, tuple[int, bytes]]] = {}
    names_in_file: NamesInFile = {}
    for channel, hour, n, digest in sample_hours(file, bundle.day, names_in_file, kept, labels):
        hours = hours_by_channel.setdefault(channel, {})
        if hour in hours:
            problems.append(f"channel {channel}, hour {hour:02}: its rows are not contiguous")
        hours[hour] = (n, digest)
    problems += misnamed(names_in_file, labels)
    rows.samples = {channel_hour: content for channel_hour, content in kept.items() if content}
    sealed = effective(bundle.rows, len(bundle.seals) - 1)
    for channel in sorted(set(hours_by_channel) | set(sealed)):
        row = sealed.get(channel)
        if row is None or row.hours is not None:
            name = names.get(channel, (f"channel {channel}", ""))[0]
            was = row.hours.by_hour() if row and row.hours else {}
            for difference in compare(name, channel, was, hours_by_channel.get(channel, {})):
                # It differs from its newest seal: that says enough.
                rows.samples.pop((channel, difference.hour or 0), None)
                yield difference
        elif channel in hours_by_channel or bundle.complete:
            problems.append(f"channel {channel}: the file lacks the digests of its hours")


def _events(file: Any, bundle: SealBundle, _: list[str], rows: AmendedRows) -> Iterator[HourDifference]:
    rows.events = event_hours(file, bundle.day)
    for difference in compare("events", None, bundle.parts[-1].events.by_hour(), event_digests(rows.events)):
        rows.events.pop(difference.hour or 0, None)
        yield difference


def _gaps(file: Any, bundle: SealBundle, problems: list[str], rows: AmendedRows) -> Iterator[HourDifference]:
    gaps, seal = gaps_in(file), bundle.seals[-1]
    if gaps_digest(gaps) != bundle.parts[-1].gaps:
        yield HourDifference("gaps", None, None, seal.gaps, len(gaps))
        return
    rows.gaps = gaps
    if len(gaps) != seal.gaps:
        problems.append(
            f"seal {seal.serial} (revision {seal.revision}) says {seal.gaps:,} gaps, its digest {len(gaps):,}"
        )


def report(path: str, verdict: Verdict, anchored: bool) -> str:
    """The verdict for people."""
    bundle = verdict.bundle
    lines = [f"{path}: {bundle.table} of {bundle.day}, {verdict.rows:,} rows"]
    if bundle.seals and (number := bundle.seals[-1].installation):
        lines.append(f"contains only installation {number}{plant_of(bundle.document)} of the database")
    if bundle.table == "samples" and not bundle.complete:
        lines.append("contains only some of the day's channels")
    lines += [f"  seal: {problem}" for problem in verdict.problems]
    lines += [f"  {difference.describe()}" for difference in verdict.differences]
    lines += [f"  amended: {amendment.describe()}" for amendment in verdict.amended]
    if not anchored and bundle.seals:
        lines.append(
            f"signed by key {bundle.seals[-1].key}, which is in the file: compare it with the plant's public key, "
            "or use --key"
        )
    if bundle.seals:
        lines.append(sealing(bundle.seals[-1]))
    if findings := len(verdict.problems) + len(verdict.differences):
        lines.append(f"NOT as sealed: {findings} findings")
    elif verdict.wrong_key:
        lines.append("every row is as these seals say")
    elif bundle.seals:
        last = bundle.seals[-1]
        lines.append(f"every row is as sealed (serial {last.serial}, revision {last.revision})")
    lines += [verdict.wrong_key] if verdict.wrong_key else []
    lines += [f"not verified: {other} is not there" for other in verdict.missing]
    return "\n".join(lines)


def sealing(seal: Seal) -> str:
    """Time and root of a seal, in words."""
    return f"sealed at {_words(seal.sealed_at)}, root {seal.root}"


def as_json(path: str, verdict: Verdict) -> dict[str, Any]:
    """The verdict for programs."""
    differences = [{**asdict(difference), "kind": difference.kind} for difference in verdict.differences]
    return {
        "ok": verdict.ok, "file": path, "table": verdict.bundle.table, "day": verdict.bundle.day,
        "complete": verdict.bundle.complete, "rows": verdict.rows, "problems": verdict.problems,
        "wrong_key": verdict.wrong_key or None, "differences": differences,
        "amended": [asdict(amendment) for amendment in verdict.amended],
        "seals": [seal.as_dict() for seal in verdict.bundle.seals], "missing": list(verdict.missing),
    }  # fmt: skip


def report_of_day(verdicts: Mapping[str, Verdict], anchored: bool, in_json: bool) -> str:
    """The verdicts of :func:`verify_day`, for people or in JSON: those of events and gaps in that of samples."""
    if not in_json:
        return "\n".join(report(path, verdict, anchored) for path, verdict in verdicts.items())
    first, *others = (as_json(path, verdict) for path, verdict in verdicts.items())
    return json.dumps({**first, "ok": all(v.ok for v in verdicts.values()), "beside": others}, indent=2)


def main() -> int:
    """Verify the files of a day: 0 as sealed, 1 not, 2 cannot be verified here."""
    parser = argparse.ArgumentParser(description="Verify a Parquet file that plantlog exported.")
    parser.add_argument("file", help="NAME.parquet; NAME.events.parquet and NAME.gaps.parquet are verified with it")
    parser.add_argument("--key", help="the plant's public key in PEM form (plantlog evidence seal --public-key)")
    parser.add_argument("--deposited", metavar="HASH", help="the hash of a seal that a third party has")
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--strict", action="store_true", help="also exit with 1 if sealed rows were deleted, or amended without proof"
    )
    arguments = parser.parse_args()
    try:
        anchors = None
        if arguments.key:
            with open(arguments.key, "rb") as file:  # noqa: PTH123
                anchors = read_keys(file.read())
        verdicts = verify_day(arguments.file, anchors, arguments.deposited)
    except (UnverifiableError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        print(f"{error}: run python3 -m pip install pyarrow cryptography", file=sys.stderr)
        return 2
    print(report_of_day(verdicts, bool(arguments.key), arguments.json))
    return 0 if all(v.strictly_ok if arguments.strict else v.ok for v in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
