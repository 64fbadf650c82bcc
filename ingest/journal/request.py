"""Requests to write a part of the journal again: files in the spool folder, which the writer removes when it has."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from core.files import write_atomically

SUFFIX = ".replay"
BY_OTHER = f".by-other{SUFFIX}"  # only what the other member of a redundant pair wrote


@dataclass(frozen=True, slots=True)
class Request:
    """Request for batches committed from ``since`` to ``until`` (µs), from a segment on."""

    since: int
    until: int
    rows: int  # that they have
    segment: str = ""  # name of the first segment that is not done yet

    def save(self, path: Path) -> None:
        """Write it durably. Raises OSError."""
        write_atomically(path, json.dumps(asdict(self)))


def load(path: Path) -> Request:
    """Raises OSError, and ValueError if it is not a request."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return Request(int(fields["since"]), int(fields["until"]), int(fields["rows"]), str(fields["segment"]))
    except (TypeError, KeyError) as error:
        raise ValueError(f"{path.name} is not a request for a replay: {error!r}") from error


def is_request(path: Path) -> bool:
    """Whether a file is a request, by its name."""
    return path.name.endswith(SUFFIX)


def has_requests(spool: Path, own: bool = False) -> bool:
    """Whether something of the journal waits to be written again; ``own``: that this appliance itself wrote."""
    with os.scandir(spool) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(SUFFIX)]
    return any(not (own and name.endswith(BY_OTHER)) for name in names)
