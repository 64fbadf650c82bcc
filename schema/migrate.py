"""Bring a database to the schema of this version: numbered SQL files, applied in order, under a lock.

Each file runs in a transaction of its own and is recorded with its SHA-256 in ``plant.migration``. Files only add; one
that was applied never changes again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from ingest.errors import DatabaseError
from schema import editions, extension, forensics
from schema.queries import load

FOLDER = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: ``0001_plant.sql`` is version 1, name ``plant``."""

    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Digest of the file's text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(folder: Path = FOLDER) -> list[Migration]:
    """All files of ``folder``, by version. Raises DatabaseError where a number is missing, double or malformed."""
    found = []
    for path in sorted(folder.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", path.name)
        if match is None:
            raise DatabaseError(f"{path.name} is not named like a migration (0001_name.sql)")
        found.append(Migration(int(match[1]), match[2], path.read_text(encoding="utf-8")))
    for expected, migration in enumerate(found, 1):
        if migration.version != expected:
            raise DatabaseError(f"migration {expected:04d} is missing before {migration.version:04d}_{migration.name}")
    return found


async def migrate(dsn: str, folder: Path = FOLDER) -> list[int]:
    """Apply what is not yet applied, and say which versions that was; renew what files make anew. Safe to run twice."""
    await extension.update(dsn)
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(load("migrate")["lock"])
        await extension.create(connection)
        await connection.execute(load("migrate")["applied_table"])
        pending = _pending(migrations(folder), await connection.fetch(load("migrate")["applied"]))
        for migration in pending:
            async with connection.transaction():
                await connection.execute(f"{migration.sql}\nSELECT")  # asyncpg takes no file of comments alone
                await connection.execute(load("migrate")["record"], migration.version, migration.name, migration.sha256)
        if folder == FOLDER:  # else the database may stop at a version that lacks what the functions read
            await editions.bring(connection)
            await forensics.bring(connection)
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseError(f"{error}: the DSN's user must own the database and may create roles") from error
    finally:
        await connection.close()  # which gives the lock back
    return [migration.version for migration in pending]


def _pending(ours: list[Migration], applied: list[asyncpg.Record]) -> list[Migration]:
    known = {migration.version: migration for migration in ours}
    for row in applied:
        version, name = row["version"], row["name"]
        if version not in known:
            raise DatabaseError(
                f"the database has schema version {version} ({name}), this plantlog knows {len(ours)}: "
                "it was written by a newer plantlog; upgrade this one"
            )
        if known[version].sha256 != row["sha256"]:
            raise DatabaseError(
                f"{version:04d}_{name}.sql is not the file that was applied to this database "
                f"(sha256 {row['sha256'][:12]}… there, {known[version].sha256[:12]}… here): restore the file; "
                "changes go into a new migration"
            )
    done = {row["version"] for row in applied}
    return [migration for migration in ours if migration.version not in done]


async def create_logins(
    dsn: str, passwords: Mapping[str, str], mark: str = "", ours: Container[str] | None = None
) -> list[str]:
    """Make the logins ``plantlog_<role>`` for roles ``ingest``, ``reader``, ``maintenance``, where they don't work.

    Logins are the server's, and another installation may have them: each bears the mark of whose it is. One that takes
    its password keeps it; one that does not is given it where its mark is one of ``ours`` (None: any), else
    DatabaseError is raised before anything is altered. Returns the logins that were given another password.
    """
    queries = load("migrate")
    marks, dead = await check_logins(dsn, passwords, ours)
    connection = await asyncpg.connect(dsn)
    try:
        for role, password in passwords.items():
            login, group = f"plantlog_{role}", f"plant_{role}"
            if login not in marks or login in dead:
                await connection.execute(await connection.fetchval(queries["login"], login, password))
            elif marks[login] not in ("", mark):
                continue  # another's, and it works for us as well
            await connection.execute(await connection.fetchval(queries["member"], login, group))
            if mark and marks.get(login) != mark:
                await connection.execute(await connection.fetchval(queries["mark"], login, mark))
            if group == "plant_reader" and (limits := await connection.fetchval(queries["reader_limits"], login)):
                await connection.execute(limits)
        return dead
    finally:
        await connection.close()


async def check_logins(
    dsn: str, passwords: Mapping[str, str], ours: Container[str] | None
) -> tuple[dict[str, str], list[str]]:
    """The marks of the logins that there are, and those logins that don't take their password; as create_logins."""
    by_login = {f"plantlog_{role}": password for role, password in passwords.items()}
    connection = await asyncpg.connect(dsn)
    try:
        rows = await connection.fetch(load("migrate")["logins"], list(by_login))
    finally:
        await connection.close()
    marks = {row["login"]: row["mark"] for row in rows}
    dead = [login for login in marks if not await _works(dsn, login, by_login[login])]
    if others := [login for login in dead if ours is not None and marks[login] not in ours]:
        raise DatabaseError(
            f"{', '.join(others)} on this server: another password than this state folder's, and "
            f"{' and '.join({marks[login] or 'no mark' for login in others})} as its owner. Logins are the server's, "
            "whatever its databases, so one plantlog can use it. Nothing was changed: take a server of your own, or "
            "--take-over, which gives the logins this state folder's passwords and locks the other plantlog out"
        )
    return marks, dead


async def _works(dsn: str, login: str, password: str) -> bool:
    """Whether the server lets a login in; what keeps it out besides its password is not its password's fault."""
    try:
        connection = await asyncpg.connect(dsn, user=login, password=password)
    except asyncpg.InvalidAuthorizationSpecificationError:
        return False
    except asyncpg.PostgresError:
        return True
    await connection.close()
    return True
