"""Bring a database to the schema of this version, under a lock.

An empty database gets ``roles.sql`` and ``tables/*.sql``, which are the tables as they are now. One that has a schema
gets the numbered files of ``migrations/`` that it lacks, each in a transaction of its own. They are recorded with their
SHA-256 in ``plant.migration``, and never change. The numbers begin behind the baseline, which is the schema of 1.0. A
test makes sure that both ways end the same. Then routines and views are made anew where their files changed: see
:mod:`ops.migration.renewal`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import asyncpg

from core.database import connect, connected
from core.errors import DatabaseError
from ops.migration import editions, renewal
from ops.migration.editions import create_extension, in_order, update_extension
from schema import FOLDER
from schema.queries import load

BASELINE = 190  # the schema version of 1.0: tables/ as they were then, without a file
_LAST_BEFORE_1_0 = "67455028"  # the commit whose plantlog brings a database to the baseline


@dataclass(frozen=True, slots=True)
class Migration:
    """One file: ``0200_channel_area.sql`` is version 200, name ``channel_area``."""

    version: int
    name: str
    sql: str

    @property
    def sha256(self) -> str:
        """Digest of the file's text."""
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(folder: Path = FOLDER) -> list[Migration]:
    """The baseline and the files of ``migrations/``, by version. Raises DatabaseError for a wrong or double number."""
    by_version = {BASELINE: Migration(BASELINE, "version_1_0", "")}
    for path in sorted((folder / "migrations").glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_(\w+)\.sql", path.name)
        if match is None or int(match[1]) <= BASELINE:
            first = f"{BASELINE + 1:04d}_name.sql"
            raise DatabaseError(f"{path.name} is not a valid migration name; legal: {first}, and higher numbers")
        if int(match[1]) in by_version:
            raise DatabaseError(f"{path.name}: another migration has this number")
        by_version[int(match[1])] = Migration(int(match[1]), match[2], path.read_text(encoding="utf-8"))
    return list(by_version.values())


def tables(folder: Path = FOLDER) -> list[str]:
    """SQL that makes the tables of an empty database: the files' texts, in an order in which they can be run."""
    files = {path.stem: path.read_text(encoding="utf-8") for path in sorted((folder / "tables").glob("*.sql"))}
    return [(folder / "roles.sql").read_text(encoding="utf-8"), *in_order(files).values()]


async def migrate(dsn: str, folder: Path = FOLDER) -> list[int]:
    """Make or upgrade the schema, and say which versions that brought; renew routines and views. Safe to run twice."""
    queries = load("migrate")
    await update_extension(dsn)
    connection = await connect(dsn, "plantlog up")
    try:
        await connection.execute(queries["lock_migration"])
        await create_extension(connection)
        supported = migrations(folder)
        applied = await connection.fetch(queries["select_migrations"]) if await has_schema(connection) else []
        if applied:
            pending = _pending(supported, applied)
            for migration in pending:
                async with connection.transaction():
                    await connection.execute(f"{migration.sql}\nSELECT")  # asyncpg takes no file of comments alone
                    await _record(connection, migration)
        else:
            pending = supported
            async with connection.transaction():
                for sql in tables(folder):
                    await connection.execute(sql)
                for migration in pending:
                    await _record(connection, migration)
        edition = await editions.detect(connection)
        await renewal.renew(connection, editions.routines(edition, folder / "routines"))
    except asyncpg.InsufficientPrivilegeError as error:
        raise DatabaseError(f"{error}: the DSN's user must own the database and have CREATEROLE") from error
    finally:
        await connection.close()  # which gives the lock back
    return [migration.version for migration in pending]


async def has_schema(connection: asyncpg.Connection[Any]) -> bool:
    """Return whether the database has a schema of plantlog."""
    return bool(await connection.fetchval(load("migrate")["schema_exists"]))


async def is_current(connection: asyncpg.Connection[Any]) -> bool:
    """Return whether the database has the schema version of this plantlog. Raises DatabaseError if ``migrate`` would
    refuse it."""
    rows = await connection.fetch(load("migrate")["select_migrations"])
    return bool(rows) and not _pending(migrations(), rows)


async def _record(connection: asyncpg.Connection[Any], migration: Migration) -> None:
    await connection.execute(load("migrate")["insert_migration"], migration.version, migration.name, migration.sha256)


def _pending(supported: list[Migration], applied: list[asyncpg.Record]) -> list[Migration]:
    newest = applied[-1]["version"]
    if newest < BASELINE:
        raise DatabaseError(
            f"the database has schema version {newest}, from before plantlog 1.0, which has {BASELINE}: run `up` of "
            f"the last version before 1.0 (commit {_LAST_BEFORE_1_0}) on the database first"
        )
    by_version = {migration.version: migration for migration in supported}
    for row in applied:
        version, name = row["version"], row["name"]
        if version <= BASELINE:
            continue
        if version not in by_version:
            raise DatabaseError(
                f"the database has schema version {version} ({name}), this plantlog supports up to "
                f"{supported[-1].version}: the database was upgraded by a newer plantlog; upgrade this one"
            )
        if by_version[version].sha256 != row["sha256"]:
            raise DatabaseError(
                f"{version:04d}_{name}.sql is not the file that was applied to this database "
                f"(sha256 {row['sha256'][:12]}… there, {by_version[version].sha256[:12]}… here): restore the file; "
                "changes go into a new migration"
            )
    applied_versions = {row["version"] for row in applied}
    return [migration for migration in supported if migration.version not in applied_versions]


@dataclass(frozen=True, slots=True)
class DatabaseLogin:
    """A login of the server."""

    name: str
    password: str

    @classmethod
    def of_dsn(cls, dsn: str) -> DatabaseLogin:
        """Login that a DSN has."""
        parts = urlsplit(dsn)
        return cls(unquote(parts.username or ""), unquote(parts.password or ""))

    def dsn(self, other: str) -> str:
        """The DSN of this login for the database of another DSN."""
        parts = urlsplit(other)
        credentials = f"{quote(self.name, safe='')}:{quote(self.password, safe='')}"
        return urlunsplit(parts._replace(netloc=f"{credentials}@{parts.netloc.rpartition('@')[2]}"))


def standard_logins(passwords: Mapping[str, str]) -> dict[str, DatabaseLogin]:
    """The logins ``plantlog_<role>``, by role."""
    return {role: DatabaseLogin(f"plantlog_{role}", password) for role, password in passwords.items()}


async def create_logins(dsn: str, logins: Mapping[str, DatabaseLogin], mark: str = "") -> list[str]:
    """Make the logins for roles ``ingest``, ``reader``, ``maintenance``, where they don't work.

    Logins are the server's, and another installation may have them: each bears the mark of whose it is. One that takes
    its password keeps it; one that does not is given it if it bears ``mark`` (empty: any), else DatabaseError is raised
    before anything is altered. Returns the logins that were given another password.
    """
    queries = load("migrate")
    marks, rejected = await check_logins(dsn, logins.values())
    if others := [login for login in rejected if mark and marks[login] != mark]:
        raise DatabaseError(
            f"{', '.join(others)} on this server: the password is not that of this state folder, and "
            f"the owner is {' and '.join({marks[login] or 'unknown' for login in others})}. Nothing was changed: use "
            "logins with other names in the files secrets/*.dsn"
        )
    async with connected(dsn, "plantlog up") as connection:
        for role, login in logins.items():
            name, group = login.name, f"plant_{role}"
            if name not in marks or name in rejected:
                await connection.execute(await connection.fetchval(queries["format_login"], name, login.password))
            elif marks[name] not in ("", mark):
                continue  # another's, and it works for us as well
            await connection.execute(await connection.fetchval(queries["format_grant"], name, group))
            if mark and marks.get(name) != mark:
                await connection.execute(await connection.fetchval(queries["format_comment"], name, mark))
            if group == "plant_reader" and (limits := await connection.fetchval(queries["format_reader_limits"], name)):
                await connection.execute(limits)
        return rejected


async def check_logins(dsn: str, logins: Iterable[DatabaseLogin]) -> tuple[dict[str, str], list[str]]:
    """The marks of existing logins, and the names of logins that refuse their password."""
    passwords = {login.name: login.password for login in logins}
    async with connected(dsn, "plantlog up") as connection:
        rows = await connection.fetch(load("migrate")["select_logins"], list(passwords))
    marks = {row["login"]: row["comment"] for row in rows}
    return marks, [name for name in marks if not await _can_log_in(DatabaseLogin(name, passwords[name]).dsn(dsn))]


async def lock_logins(connection: asyncpg.Connection[Any], mark: str, new_mark: str) -> None:
    """Nobody can log in with the logins that bear a mark; they get another one."""
    for row in await connection.fetch(load("migrate")["format_lock"], mark, new_mark):
        await connection.execute(row["statement"])


async def _can_log_in(dsn: str) -> bool:
    """Return whether the server accepts a login's password; refusals for other reasons count as accepted."""
    try:
        connection = await connect(dsn, "plantlog up")
    except asyncpg.InvalidAuthorizationSpecificationError:
        return False
    except asyncpg.PostgresError:
        return True
    await connection.close()
    return True
