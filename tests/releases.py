"""Databases as releases left them, to be upgraded in tests: ``integration/releases/VERSION.tar.xz``.

Each has the release's files of ``schema``, and ``data.sql``: the rows of every table after a short run of the example
plant, cut down to a few channels. When a version is released, this records it: the newest recorded database, upgraded::

    .venv/bin/python -m tests.releases [ROWS.sql]

``ROWS.sql`` adds rows to the tables that the release has added; each table must have one.
"""

from __future__ import annotations

import asyncio
import io
import sys
import tarfile
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from core.paths import CHECKOUT
from ops.migration.migrate import migrate
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from schema import FOLDER
from tests.database import connected

_RELEASES = Path(__file__).parent / "integration" / "releases"
_SETTINGS = "key NOT LIKE 'routine/%' AND key NOT IN ('edition', 'timescaledb_version')"  # those of the plant
_TABLES = """
SELECT c.relname, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
       format('%L || concat_ws('', '', %s) || %L', '(',
              string_agg(format('quote_nullable(%I::text)', a.attname), ', ' ORDER BY a.attnum), ')')
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
WHERE c.relnamespace = 'plant'::regnamespace AND c.relkind = 'r' AND c.relname <> 'migration'
GROUP BY c.relname
ORDER BY c.relname
"""
_SEQUENCES = """
SELECT format('SELECT setval(%L, %s);', 'plant.' || s.sequencename, s.last_value)
FROM pg_sequences AS s
WHERE s.schemaname = 'plant' AND s.last_value IS NOT NULL
ORDER BY s.sequencename
"""


def releases() -> list[Path]:
    """The recorded databases, oldest first."""
    return sorted(_RELEASES.glob("*.tar.xz"), key=lambda path: [int(part) for part in path.stem[:-4].split(".")])


async def restore(dsn: str, release: Path) -> None:
    """Make the database as that release left it."""
    with TemporaryDirectory() as name, tarfile.open(release) as archive:
        folder = Path(name)
        archive.extractall(folder, filter="data")
        await create_database(dsn)
        await migrate(dsn, folder / "schema")
        async with connected(dsn) as owner:  # which ends what the file sets for its session
            await owner.execute((folder / "data.sql").read_text())


async def data_of(owner: asyncpg.Connection) -> str:
    """Statements that give another database of the same release the rows of this one."""
    lines = ["SET session_replication_role = replica; -- triggers have had their turn"]
    for table, columns, values in await owner.fetch(_TABLES):
        condition = _SETTINGS if table == "setting" else "true"
        lines.append(f"DELETE FROM plant.{table} WHERE {condition};")
        rows = await owner.fetch(f"SELECT {values} FROM plant.{table} WHERE {condition} ORDER BY 1")
        if rows:
            lines.append(f"INSERT INTO plant.{table} ({columns}) OVERRIDING SYSTEM VALUE VALUES")
            lines.append(",\n".join(row[0] for row in rows) + ";")
    lines += [row[0] for row in await owner.fetch(_SEQUENCES)]
    return "\n".join(lines) + "\n"


async def record(dsn: str, version: str) -> Path:
    """Write what :func:`restore` reads."""
    path = _RELEASES / f"{version}.tar.xz"
    if path.exists():
        raise SystemExit(f"{path} exists: a released database never changes; set the version in pyproject.toml first")
    async with connected(dsn) as owner:
        data = (await data_of(owner)).encode()
    with tarfile.open(path, "w:xz", preset=9) as archive:
        for name in ("roles.sql", "tables", "routines", "migrations"):
            if (FOLDER / name).exists():
                archive.add(FOLDER / name, f"schema/{name}", filter=_anonymous)
        member = tarfile.TarInfo("data.sql")
        member.size = len(data)
        archive.addfile(member, io.BytesIO(data))
    return path


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


async def _next(dsn: str, rows: str) -> Path:
    await restore(dsn, releases()[-1])
    await migrate(dsn)
    if rows:
        async with connected(dsn) as owner:
            await owner.execute(rows)
    return await record(dsn, tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"])


if __name__ == "__main__":
    _rows = "".join(Path(name).read_text() for name in sys.argv[1:])
    with TemporaryDirectory(prefix="plantlog-test-") as _folder, Server(Path(_folder)) as _server:
        print(asyncio.run(_next(_server.owner_dsn, _rows)))
