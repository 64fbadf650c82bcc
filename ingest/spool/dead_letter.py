"""Dead letters: batches that cannot be stored, as JSON files in the folder ``damaged``, until they are retried."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from core.errors import OperationError
from core.files import write_atomically
from ingest.spool.format import Record

FOLDER = "damaged"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One spool row moved out of its file."""

    why: str
    sequence: int
    record: Record


def write(spool: Path, sequence: int, record: Record, why: str) -> Path:
    """Write one spool row durably to ``damaged/<spool>-<sequence>.json``. Raises OSError on disk errors."""
    folder = spool.parent / FOLDER
    folder.mkdir(exist_ok=True)
    path = folder / f"{spool.stem}-{sequence}.json"
    body = base64.b64encode(record.body).decode()
    write_atomically(path, json.dumps({"why": why, "sequence": sequence, **asdict(record), "body": body}))
    return path


def read(path: Path) -> DeadLetter:
    """Read a file written by :func:`write`. Raises OperationError if it is not one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        why, sequence, body = content.pop("why"), content.pop("sequence"), base64.b64decode(content.pop("body"))
        return DeadLetter(str(why), int(sequence), Record(**content, body=body))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise OperationError(f"cannot read {path}: {error}") from error
