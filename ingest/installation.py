"""The identity of a state folder in the database, which several installations can share."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

from ingest.errors import OperationError


def installation_of(folder: Path) -> UUID | None:
    """The installation id of a state folder; None: it has none yet. Raises OperationError if its file is damaged."""
    path = folder / "installation"
    try:
        text = path.read_text().strip()
        return UUID(text)
    except FileNotFoundError:
        return None
    except ValueError:
        raise OperationError(
            f"{path} contains {text[:40]!r}, which is not an installation id: restore the file, or delete it and run "
            "`plantlog up --take-over INSTALLATION`"
        ) from None
