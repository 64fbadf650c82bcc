"""Files of a member of a redundant pair in its spool folder."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID, uuid4

from core.files import write_atomically

LEASE_SECONDS = 1.5  # duration of a lease
PATIENCE = 10.0  # s without a heartbeat after which a member is away, as in plant.member_seen

_MEMBER, _FOLDER, _TOKEN, _HOLDER = "member", "folder", "lease", "holder"  # files


def read_member(spool: Path) -> int | None:
    """The number of the member; None: there is no pair."""
    try:
        return int((spool / _MEMBER).read_text())
    except FileNotFoundError:
        return None


def write_member(spool: Path, number: int) -> None:
    """Write the number of the member, before the collectors start: sequences in their spool files depend on it."""
    write_atomically(spool / _MEMBER, f"{number}\n")


def folder_id(spool: Path) -> UUID:
    """The identity of a state folder, by which a new folder is noticed: data that only the former one had are lost."""
    path = spool / _FOLDER
    if not path.exists():
        write_atomically(path, f"{uuid4()}\n")
    return UUID(path.read_text().strip())


def read_token(spool: Path) -> int:
    """The highest token of the lease that the member has seen; 0: none."""
    try:
        return int((spool / _TOKEN).read_text())
    except (OSError, ValueError):
        return 0


def write_token(spool: Path, token: int) -> None:
    """Write the highest token seen. Raises OSError."""
    write_atomically(spool / _TOKEN, f"{token}\n")


def stands_by(spool: Path) -> bool:
    """Return whether the other member of the pair writes, as far as this one knows; False if there is no pair."""
    return not (spool / _HOLDER).exists() and (spool / _MEMBER).exists()


def write_holder(spool: Path, is_holder: bool) -> None:
    """Tell the collectors whether this member holds the lease. Roles do not change while the database is away."""
    path = spool / _HOLDER
    if is_holder:
        path.touch()
    else:
        path.unlink(missing_ok=True)
