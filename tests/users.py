"""Users of a state folder, for tests."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from argon2 import PasswordHasher

from core.batch import Event
from core.users import passwords
from core.users.directory import AUDIT_SPOOL, Role, UserDirectory
from tests.batches import events_of
from tests.spooling import Spooled

PASSWORD = "correct horse battery"
_QUICK = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)  # the least that argon2id takes, not 64 MiB


def add_users(state: Path, **roles: Role) -> UserDirectory:
    """Users by name, who all have one password; an engineer has to be the first."""
    directory = UserDirectory(state)
    for name, role in roles.items():
        directory.add(name, role, password_hash())
    return directory


def hash_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes of passwords that a test makes take hardly any time."""
    monkeypatch.setattr(passwords, "_hasher", _QUICK)
    passwords._nobody.cache_clear()


@cache
def password_hash() -> str:
    """Hash of :data:`PASSWORD`, which is computed and verified in hardly any time."""
    return _QUICK.hash(PASSWORD)


def recorded_actions(state: Path) -> list[Event]:
    """The audit trail that waits in the spool, oldest first."""
    return events_of(Spooled(state / "spool" / AUDIT_SPOOL).read())
