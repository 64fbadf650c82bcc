"""Databases as releases left them, to be upgraded in tests: ``integration/releases/VERSION.tar.xz``.

Each has the release's files of ``schema``, and ``data.sql``: the rows of every table after a short run of the example
plant, cut down to a few channels. ``python -m ops.release`` adds its own by ``python -m tests.releases``: the newest
one, upgraded, with the rows of ``releases/next.sql``. So this folder is where tests find which releases there are.
"""

from __future__ import annotations

import asyncio
import io
import subprocess
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg

from core.paths import CHECKOUT, plantlog_version
from ops.migration.migrate import migrate
from ops.postgres.bootstrap import create_database
from ops.postgres.server import Server
from schema import FOLDER
from tests.database import connected

_RELEASES = Path(__file__).parent / "integration" / "releases"
_NEXT = _RELEASES / "next.sql"
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
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 of Debian 12 has none
        archive.extractall(folder)
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


async def upgraded(dsn: str) -> None:
    """Make the database that the next release is recorded with."""
    await restore(dsn, releases()[-1])
    await migrate(dsn)
    async with connected(dsn) as owner:
        await owner.execute(f"{_NEXT.read_text()}SELECT")  # asyncpg runs no comment alone


def commit_of(release: Path) -> str:
    """Commit of a release: that which gave the changelog its heading with this date, as a clone may have no tags."""
    version = release.name.removesuffix(".tar.xz")
    lines = (CHECKOUT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    (heading,) = (line for line in lines if line.startswith(f"## [{version}] - "))
    search = ["git", "log", "--format=%H", "-S", heading, "--", "CHANGELOG.md"]
    commits = subprocess.run(search, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.split()
    assert commits, f"{heading}: the history is needed, not just one commit"
    return commits[-1]


if __name__ == "__main__":
    with TemporaryDirectory(prefix="plantlog-test-") as _folder, Server(Path(_folder)) as _server:
        asyncio.run(upgraded(_server.owner_dsn))
        print(asyncio.run(record(_server.owner_dsn, plantlog_version())))
    _NEXT.write_text(_NEXT.read_text().partition("\n\n")[0] + "\n")
