"""The ground truth: every value published by the simulator, to be compared with the table.

Numbers are appended as blocks of fixed-size records, texts as JSON lines; each start of the simulator has own files.
An OPC UA row is a value written to the server (channel, source timestamp, value, status, and when that was: a source's
clock may jump). A Modbus row is a value in an answer, with the time of sending. A push row is a value
measured by a gateway, which repeats it until it is accepted.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from core.timestamps import now_us

ROW = np.dtype([("tag", "<i4"), ("status", "<u4"), ("time", "<i8"), ("value", "<f8"), ("at", "<i8")])
_BLOCK_ROWS = 1_000_000  # read at once
MAX_BYTES = 1024**3  # half an hour of 20,000 values/s, or weeks of the demo plant
Via: TypeAlias = Literal["opcua", "modbus", "push"]
VIAS: tuple[Via, ...] = get_args(Via)


class PublishedText(NamedTuple):
    """One value of a text channel."""

    via: Via
    name: str
    time: int  # µs, source time
    text: str
    status: int
    at: int  # µs, when it was published


class TruthWriter:
    """Appends to the files of one start; each block is written immediately, so a killed process loses nothing.

    A file that reaches ``max_bytes`` is rotated to ``.old``, so that a forgotten simulator
    never fills the disk.
    """

    def __init__(self, folder: Path, names: list[str], started: int, max_bytes: int = MAX_BYTES) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._max_bytes = max_bytes
        (folder / f"{started}.names.json").write_text(json.dumps(names))
        self._files = {via: (folder / f"{started}.{via}.truth").open("ab", buffering=0) for via in VIAS}
        self._texts = (folder / f"{started}.texts.jsonl").open("a", buffering=1)

    def numbers(
        self,
        via: Via,
        tags: NDArray[Any],
        time: NDArray[np.int64] | int,
        values: NDArray[np.float64],
        status: NDArray[np.uint32] | int = 0,
    ) -> None:
        """Append values of ``tags`` (indices), all columns (n,); ``time`` in µs, one for all or one each."""
        block = np.empty(len(tags), ROW)
        block["tag"], block["status"], block["time"], block["value"] = tags, status, time, values
        block["at"] = time if via == "modbus" else now_us()
        file = self._files[via]
        file.write(block.tobytes())
        if file.tell() >= self._max_bytes:
            path = Path(file.name)
            path.replace(path.with_suffix(".old"))
            file.close()
            self._files[via] = path.open("ab", buffering=0)

    def text(self, via: Via, tag: int, time: int, text: str, status: int = 0) -> None:
        """Append one text value."""
        self._texts.write(json.dumps([via, tag, time, text, status, now_us() if via == "opcua" else time]) + "\n")

    def close(self) -> None:
        """Close the files."""
        for file in (*self._files.values(), self._texts):
            file.close()


@dataclass(frozen=True, slots=True)
class Truth:
    """The truth of all starts. ``rows``: via → records (n,) of :data:`ROW` with tags as indices into ``names``."""

    names: list[str]
    rows: dict[Via, NDArray[Any]]
    texts: list[PublishedText]


def truth_names(folder: Path) -> list[str]:
    """The channels of all starts."""
    return list(dict.fromkeys(name for _, names in _starts(folder) for name in names))


def truth_rows(folder: Path) -> int:
    """Number of rows of all starts."""
    return sum(len(_mapped(path)) for started, _ in _starts(folder) for via in VIAS for path in _files(started, via))


def read_truth(folder: Path, since: int = 0, names: Collection[str] | None = None) -> Truth:
    """Read the files of all starts; a truncated last block is ignored.

    ``since``: µs; skip numbers whose source time and time of publishing are before. ``names``: only these channels.
    """
    index = {name: i for i, name in enumerate(truth_names(folder) if names is None else names)}
    rows: dict[Via, list[NDArray[Any]]] = {via: [] for via in VIAS}
    texts: list[PublishedText] = []
    for started, tag_names in _starts(folder):
        tags = np.array([index.get(name, -1) for name in tag_names], np.int32)
        for via, blocks in rows.items():
            for path in _files(started, via):
                for first in range(0, len(mapped := _mapped(path)), _BLOCK_ROWS):
                    block = np.array(mapped[first : first + _BLOCK_ROWS])
                    block["tag"] = tags[block["tag"]]
                    late = (block["time"] >= since) | (block["at"] >= since)
                    blocks.append(block[late & (block["tag"] >= 0)])
        for line in started.with_suffix(".texts.jsonl").read_text().splitlines():
            if not line.endswith("]"):
                continue
            via, tag, time, text, status, at = json.loads(line)
            if tag_names[tag] in index:
                texts.append(PublishedText(via, tag_names[tag], time, text, status, at))
    return Truth(list(index), {via: np.concatenate([*r, np.empty(0, ROW)]) for via, r in rows.items()}, texts)


def _starts(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Path of each start's files without their suffixes, and its channels."""
    for file in sorted(folder.glob("*.names.json")):
        yield folder / file.name.split(".", maxsplit=1)[0], json.loads(file.read_text())


def _files(started: Path, via: Via) -> Iterator[Path]:
    """The files of numbers that exist, in their order."""
    paths = (started.with_suffix(f".{via}.old"), started.with_suffix(f".{via}.truth"))
    return (path for path in paths if path.exists())


def _mapped(path: Path) -> NDArray[Any]:
    """The whole rows of a file, not yet read."""
    count = path.stat().st_size // ROW.itemsize
    return np.memmap(path, ROW, "r", shape=(count,)) if count else np.empty(0, ROW)
