"""What can't be kept in a spool file goes to the folder ``damaged`` beside it, whole, until it is tried again."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ingest.errors import OperationError
from ingest.spool.format import Record

FOLDER = "damaged"


@dataclass(frozen=True, slots=True)
class Aside:
    """One spool row that was set aside."""

    why: str
    sequence: int
    record: Record


def keep(spool: Path, sequence: int, record: Record, why: str) -> Path:
    """Write one spool row to ``damaged/<spool>-<sequence>.json``, durably. Raises OSError where the disk refuses."""
    folder = spool.parent / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{spool.stem}-{sequence}.json"
    body = base64.b64encode(record.body).decode()
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        json.dump({"why": why, "sequence": sequence, **asdict(record), "body": body}, file)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    sync(folder)
    return path


def read(path: Path) -> Aside:
    """What :func:`keep` wrote. Raises OperationError where it is not that."""
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        why, sequence, body = said.pop("why"), said.pop("sequence"), base64.b64decode(said.pop("body"))
        return Aside(str(why), int(sequence), Record(**said, body=body))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise OperationError(f"{path} can't be read: {error}") from error


def sync(folder: Path) -> None:
    """Make durable which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
