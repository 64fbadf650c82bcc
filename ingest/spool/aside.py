"""What can't be kept in a spool file goes to the folder ``damaged`` beside it, whole, for people to look at."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import asdict
from pathlib import Path

from ingest.spool.format import Record

FOLDER = "damaged"


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


def sync(folder: Path) -> None:
    """Make durable which files a folder has."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
