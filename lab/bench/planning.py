"""Planning of questions about a year of plants: what it costs to know which files and row groups have the samples.

Manifests, channels, events and gaps of each day are written in their real formats, and their seals are signed. There
are no files of samples, because planning opens none.
"""

from __future__ import annotations

import json
import pickle
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.timestamps import begin, microseconds
from history.archive.channel_table import Place, channel_table, write_channels
from history.archive.location import Location
from history.archive.manifest import FORMAT, ArchivedFile, DayFolder, Manifest, Proof, Table
from history.archive.parquet_writers import RowFile
from history.archive_days.plants import Plant, Plants
from history.archive_days.writer import files_of
from history.codec.row_groups import MAX_GROUP, TIME
from history.sql.sources.plant_samples import PlantSamples
from history.sql.sources.plants import PlantArchives
from history.standalone import Key, Seal, schema_of

START = date(2026, 1, 1)
_UNIT = 20  # channels
_SOURCES = 20
_SAMPLES = 86_400  # of a channel and day: 1 Hz
_BYTES = 0.5  # of a sample (docs/performance.md)
_GROUPS = -(-_SAMPLES // MAX_GROUP)
_HASH = "0" * 64
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Span:
    """A question: days from the first one on, and channels (None: all)."""

    name: str
    days: int
    channels: int | None


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Costs of planning a question."""

    span: str
    samples: int
    portions: int
    task_bytes: int  # of the portions as they are sent to other processes
    seconds: float
    cpu_seconds: float
    peak_mib: float
    listings: int
    reads: int  # of small files as a whole
    opened: int  # Parquet files


class CountedLocation(Location):
    """A location that counts accesses."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.counts = Counter[str]()

    def listing(self, path: str) -> list[str]:
        """Count it."""
        self.counts["listings"] += 1
        return super().listing(path)

    def read(self, path: str) -> bytes:
        """Count it."""
        self.counts["reads"] += 1
        return super().read(path)

    def opened(self, path: str) -> Any:
        """Count it."""
        self.counts["opened"] += 1
        return super().opened(path)


class _Planned(Executor):
    """Takes portions, and computes nothing."""

    def __init__(self) -> None:
        self.portions = 0
        self.bytes = 0

    def submit(self, call: Callable[..., Result], /, *arguments: Any, **options: Any) -> Future[Result]:
        """Result of no samples."""
        self.portions += 1
        self.bytes += len(pickle.dumps(arguments, pickle.HIGHEST_PROTOCOL))
        done: Future[Any] = Future()
        done.set_result([])
        return done


def write_plant(folder: Path, name: str, channels: int, days: int) -> Plant:
    """A plant with units of 20 channels at 1 Hz, archived for so many days."""
    secret = Ed25519PrivateKey.generate()
    public = secret.public_key().public_bytes_raw().hex()
    key = Key(public, microseconds(begin(START)))
    key = replace(key, own_signature=secret.sign(key.statement()).hex())
    plant = Plant(name, 0, UUID(int=1), (public,))
    document = json.dumps(
        {
            "sources": [{"id": i, "name": f"plc{i}", "kind": "opcua", "address": "opc.tcp://plc"} for i in _sources()],
            "channels": [
                {
                    "id": i,
                    "name": f"area{i // 1000}/unit{i // _UNIT}/channel{i % _UNIT}",
                    "source": 1 + i % _SOURCES,
                    "kind": "analog",
                    "unit": "bar",
                    "range_lo": 0.0,
                    "range_hi": 100.0,
                    "address": f"ns=2;s=unit{i // _UNIT}.channel{i % _UNIT}",
                    "attributes": {"expected_interval": 1.0},
                }
                for i in range(1, channels + 1)
            ],
        }
    )
    names = {entry["id"]: entry["name"] for entry in json.loads(document)["channels"]}
    places = files_of(dict.fromkeys(names, _SAMPLES), names)
    location, previous = Location.at(str(folder)), "0" * 64
    first = _first_table(document, places, DayFolder(plant.installation, START))
    for number in range(days):
        at = DayFolder(plant.installation, START + timedelta(days=number))
        files = list(_write_day(location, at, first))
        files.append(ArchivedFile(at.seal(1), "seal", 1, 1, _HASH))  # which planning does not read
        files += [
            ArchivedFile(at.file("samples", 1, i), "samples", n, round(n * _BYTES), _HASH, footer_crc32=i)
            for i, n in enumerate((len(ids) * _SAMPLES for ids in places), 1)
        ]
        seal = Seal(
            serial=number + 1,
            day=str(at.day),
            revision=0,
            kind="first",
            root=_HASH,
            previous=previous,
            read_from=0,
            sealed_at=microseconds(begin(at.day, 30)),
            samples=channels * _SAMPLES,
            channels=channels,
            events=0,
            gaps=0,
            differs=_HASH,
            key=key.fingerprint,
        )
        seal = replace(seal, signature=secret.sign(seal.statement()).hex())
        previous = seal.hash()
        proof = Proof((seal,), (key,), tuple(json.loads(document)["sources"]))
        manifest = Manifest(
            FORMAT, name, str(at.installation), str(at.day), 1, 0, seal.serial, _HASH, seal.samples, channels,
            tuple(files), proof,
        )  # fmt: skip
        location.write(at.manifest, manifest.encode())
    return plant


def _sources() -> range:
    return range(1, _SOURCES + 1)


def _first_table(document: str, places: list[list[int]], folder: DayFolder) -> Any:
    by_channel = dict[int, Place]()
    for number, ids in enumerate(places, 1):
        path = folder.file("samples", 1, number)
        for i, channel in enumerate(ids):
            by_channel[channel] = Place(_SAMPLES, path, i * _GROUPS, (i + 1) * _GROUPS - 1)
    return channel_table(document, folder, by_channel)


def _write_day(location: Location, folder: DayFolder, first: Any) -> Iterator[ArchivedFile]:
    """The small files of a day. ``first``: its channels on the first one."""
    table = first
    for name, moment in (("valid_from", begin(folder.day)), ("valid_to", begin(folder.day, 24))):
        column = pa.array([moment] * table.num_rows, TIME)
        table = table.set_column(table.schema.get_field_index(name), table.schema.field(name), column)
    path = pc.replace_substring(table["file"], f"day={START}", f"day={folder.day}")
    table = table.set_column(table.schema.get_field_index("file"), table.schema.field("file"), path)
    kinds: tuple[Table, ...] = ("channels", "events", "gaps")
    for kind in kinds:
        name = folder.file(kind, 1)
        with location.created(name) as sink:
            if kind == "channels":
                write_channels(sink, table, folder.identity(kind))
            else:
                RowFile(sink, schema_of(kind)).close(folder.identity(kind))
        digest = location.digest(name)
        rows = table.num_rows if kind == "channels" else 0
        yield ArchivedFile(name, kind, rows, digest.bytes, digest.sha256)


def spans(days: int) -> list[Span]:
    """The spans that are planned."""
    return [
        Span("a day, all channels", 1, None),
        Span("30 days, all channels", min(30, days), None),
        Span("all days, 1 channel", days, 1),
        Span("all days, 50 channels", days, 50),
    ]


def measure(folder: Path, channels: int, days: int, report: Callable[[str], None]) -> list[PlanCost]:
    """Write a plant, and plan questions in a process of each."""
    report(f"writing {days} days of {channels:,} channels")
    plant = write_plant(folder, "plant", channels, days)
    costs = []
    for span in spans(days):
        report(span.name)
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            costs.append(process.submit(plan, folder, plant, channels, span).result())
    return costs


def plan(folder: Path, plant: Plant, channels: int, span: Span) -> PlanCost:
    """Plan a question."""
    location, executor = CountedLocation.at(str(folder)), _Planned()
    assert isinstance(location, CountedLocation)
    since, until = begin(START), begin(START, 24 * span.days)
    started, before = time.perf_counter(), time.process_time()
    archives = PlantArchives(Plants(location, [plant], 1), since, until)
    source = PlantSamples(archives, executor, executor, 2)
    ids = None if span.channels is None else archives.matching(["*"])[: span.channels]
    within = microseconds(since), microseconds(until)
    for _ in source.results(ids, within, _nothing, ("value", "status"), in_parts=True):
        pass
    return PlanCost(
        span.name,
        (channels if span.channels is None else span.channels) * span.days * _SAMPLES,
        executor.portions,
        executor.bytes,
        time.perf_counter() - started,
        time.process_time() - before,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        location.counts["listings"],
        location.counts["reads"],
        location.counts["opened"],
    )


def _nothing(_: Any) -> tuple[()]:
    return ()
