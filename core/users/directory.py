"""The users of an installation: ``users.json`` in the state folder, so that the database may be away.

A user is never deleted, because the audit trail names them: they are disabled. There is always an enabled engineer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from core.accounts import as_owner_of
from core.addresses import is_loopback
from core.errors import OperationError
from core.files import folder_lock, write_atomically
from core.timestamps import now_us

Role: TypeAlias = Literal["viewer", "operator", "engineer", "auditor"]
ROLES: tuple[Role, ...] = get_args(Role)
OPERATORS: frozenset[Role] = frozenset({"operator", "engineer"})  # who acknowledges and shelves alarms

FILE = "users.json"
AUDIT_SPOOL = "audit.sqlite"  # in the spool folder
ROOT = "root"  # the superuser at the console, who needs no entry in the file
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}")
_NAME_LEGAL = "at most 64 letters, digits and . _ @ -, beginning with a letter, other than root"


@dataclass(frozen=True, slots=True)
class User:
    """A user. Any change ends the user's sessions."""

    name: str
    role: Role
    password: str  # its argon2id hash, in the PHC string format
    enabled: bool
    created_at: int  # µs
    changed_at: int  # µs


class UserDirectory:
    """The users of a state folder. The file is read again when it has changed."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._path = state / FILE
        self._version: tuple[int, ...] | None = None  # fingerprint of the file that was read
        self._users: Mapping[str, User] = {}

    def users(self) -> Mapping[str, User]:
        """Name → user; none if there is no file. Raises OperationError if it can't be read: then nobody has access."""
        try:
            status = self._path.stat()
            version = (status.st_ino, status.st_size, status.st_mtime_ns)
            if version != self._version:
                self._users = _parse(self._path.read_bytes())
                self._version = version
        except FileNotFoundError:
            self._version, self._users = None, {}
        except PermissionError as error:
            raise OperationError(
                f"{self._path}: {error.strerror}: run the command as the owner of the state folder, or by sudo"
            ) from error
        except (OSError, ValueError, TypeError, AttributeError) as error:
            raise OperationError(
                f"{self._path} can't be read: {error}. Restore it from a backup; or, as root, delete it and add the "
                "users again"
            ) from error
        return self._users

    def add(self, name: str, role: Role, password: str) -> None:
        """Add a user; ``password``: its hash. Raises OperationError."""
        with self._changing() as users:
            check_new(users, name, role)
            now = now_us()
            users[name] = User(name, role, password, True, now, now)

    def change(self, name: str, **changes: Any) -> bool:
        """Change ``role``, ``password`` (its hash) or ``enabled``. Returns whether that is a change.

        Raises OperationError.
        """
        names = sorted(self.users())
        if name not in names:
            raise OperationError(f"there is no user {name}; known: {', '.join(names) or 'none'}")
        with self._changing() as users:
            before = users[name]
            users[name] = after = replace(before, **changes)
            if after == before:
                return False
            users[name] = replace(after, changed_at=now_us())
            if not any(user.enabled and user.role == "engineer" for user in users.values()):
                raise OperationError(
                    f"{name} is the last engineer who can log in: make another user an engineer first "
                    "(`plantlog user role NAME engineer`)"
                )
            return True

    @contextmanager
    def _changing(self) -> Iterator[dict[str, User]]:
        """The users, to be changed in the block by one process at a time; written if the block ends well."""
        try:
            with as_owner_of(self._state), folder_lock(self._state / "run"):
                before = self.users()
                users = dict(before)
                yield users
                if users != before:
                    content = {name: _fields(user) for name, user in sorted(users.items())}
                    write_atomically(self._path, json.dumps(content, indent=2) + "\n", 0o600)
        except OSError as error:
            raise OperationError(f"{self._path} can't be written: {error}") from error


def check_new(users: Mapping[str, User], name: str, role: Role) -> None:
    """Raise OperationError if a user of this name and role can't be added to ``users``."""
    if not _NAME.fullmatch(name) or name == ROOT:
        raise OperationError(f"user: found {name!r}; legal: {_NAME_LEGAL}")
    if name in users:
        raise OperationError(
            f"there is a user {name} already: `plantlog user role` and `plantlog user password` change it"
        )
    if not users and role != "engineer":
        raise OperationError("the first user must be an engineer, who can add the others: --role engineer")


def closed_viewer(host: str, users: Mapping[str, User]) -> str | None:
    """Reason why nobody can use the viewer on ``host``, with advice; None: people can."""
    if users or is_loopback(host):
        return None
    return (
        f"[viewer] host {host} is not a loopback address, and there are no users: the dashboards are closed until "
        "`plantlog user add NAME --role engineer`"
    )


def _parse(content: bytes) -> dict[str, User]:
    users = {name: User(name, **fields) for name, fields in json.loads(content).items()}
    for user in users.values():
        if user.role not in ROLES or not isinstance(user.password, str) or not isinstance(user.enabled, bool):
            raise ValueError(f"user {user.name} is not valid")
    return users


def _fields(user: User) -> dict[str, Any]:
    return {
        "role": user.role,
        "password": user.password,
        "enabled": user.enabled,
        "created_at": user.created_at,
        "changed_at": user.changed_at,
    }
