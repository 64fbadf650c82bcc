"""The programs of the database: PostgreSQL 17 with TimescaleDB, pgBackRest and pg_auto_failover.

The system's own are used where it has PostgreSQL and TimescaleDB. Else those of Debian 13 are unpacked, once for each
version, in a cache that all state folders share.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import pwd
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from core import bundle
from core.errors import OperationError
from core.files import folder_lock, write_atomically
from core.paths import user_cache
from ops.postgres import packages

CACHE = "PLANTLOG_CACHE"
PGBACKREST, PG_AUTOCTL = "pgbackrest", "pg_autoctl"
_PACKAGES_OF = {
    "postgres": ("postgresql-17", "postgresql-17-timescaledb", "libc-bin"),  # libc-bin: the locale
    PGBACKREST: ("pgbackrest",),
    PG_AUTOCTL: ("pg-auto-failover-cli", "postgresql-17-auto-failover"),
}
PACKAGES = tuple(name for names in _PACKAGES_OF.values() for name in names)
_BIN = Path("usr/lib/postgresql/17/bin")
_CONTROL = Path("usr/share/postgresql/17/extension/timescaledb.control")
_ZONES = Path("/usr/share/zoneinfo")  # PostgreSQL has no other place for it
_SYSTEM_CACHE = Path("/var/cache/plantlog")
_REMEMBERED = Path("run/cache")  # the path, in the state folder
_FORM = f"postgresql-17_*_{bundle.ARCHITECTURES.get(platform.machine(), platform.machine())}_*"
_ACCOUNT = "plantlog-postgres"
_NEEDED_MB = 250  # packages, and what is unpacked of them


@dataclass(frozen=True, slots=True)
class Binaries:
    """Programs below ``root`` (``/``: the system's own)."""

    root: Path

    @property
    def private(self) -> bool:
        """Return whether the programs are unpacked ones, and not the system's."""
        return self.root != Path("/")

    @property
    def account(self) -> str:
        """The account that they run under where root starts them."""
        return _ACCOUNT if self.private else "postgres"

    def path(self, program: str) -> Path:
        """Path of a program."""
        return self.root / ("usr/bin" if program in (PGBACKREST, PG_AUTOCTL) else _BIN) / program

    def check(self, program: str) -> None:
        """Raises OperationError where the system lacks a program; unpacked ones are there together."""
        if not self.path(program).exists():
            names = " ".join(_PACKAGES_OF[program])
            raise OperationError(f"{program} is not installed: as root, run `apt-get install {names}`")


def hidden_above(path: Path) -> Path | None:
    """The first folder on the way to ``path`` that not everybody may enter, as the server's account has to."""
    return next((above for above in reversed(path.resolve().parents) if not above.stat().st_mode & 0o001), None)


def complete(root: Path) -> bool:
    """Return whether ``root`` has all programs."""
    return (root / _BIN / "postgres").exists() and (root / _CONTROL).exists()


def chosen_cache(state: Path) -> Path | None:
    """Folder of ``PLANTLOG_CACHE``, now or at the last ``up``; None: the default."""
    variable, remembered = os.environ.get(CACHE), state / _REMEMBERED
    if not variable and remembered.exists():
        variable = remembered.read_text().strip()
    return Path(variable).absolute() if variable else None


def remember_cache(state: Path) -> None:
    """Apply ``PLANTLOG_CACHE`` to the state folder from now on."""
    if (cache := chosen_cache(state)) is not None:
        write_atomically(state / _REMEMBERED, f"{cache}\n")


def cache_folder(state: Path) -> Path:
    """Folder that programs are unpacked in."""
    if (cache := chosen_cache(state)) is not None:
        return cache
    if os.geteuid() == 0:  # the server's account can't enter a home
        return _SYSTEM_CACHE
    return user_cache()


def find(state: Path) -> Binaries | None:
    """The programs, if they are there: the newest ones that root has unpacked for all, else of the user's cache.

    A cache on NFS may have those of machines with another processor, too.
    """
    if complete(Path("/")):
        return Binaries(Path("/"))
    caches = [chosen] if (chosen := chosen_cache(state)) else [_SYSTEM_CACHE, cache_folder(state)]
    for cache in caches:
        roots = [root for root in cache.glob(_FORM) if complete(root)]
        if roots:
            return Binaries(max(roots, key=lambda root: root.stat().st_mtime_ns))
    return None


def provide(state: Path, progress: Callable[[str], None]) -> Binaries:
    """The programs and their account, made if missing. Raises OperationError, with a remedy, if that is impossible."""
    binaries = find(state) or _provide_unpacked(state, progress)
    if os.geteuid() == 0 and binaries.private:
        _make_account(binaries, progress)
    return binaries


def _make_account(binaries: Binaries, progress: Callable[[str], None]) -> None:
    """One with a name: `postgres --single`, by which pg_rewind recovers a server that was killed, asks for it."""
    with folder_lock(binaries.root.parent):
        with suppress(KeyError):
            pwd.getpwnam(binaries.account)
            return
        progress(f"creating the account {binaries.account}")
        home = ("--no-create-home", "--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin")
        packages.run(["/usr/sbin/useradd", "--system", "--user-group", *home, binaries.account])


def _provide_unpacked(state: Path, progress: Callable[[str], None]) -> Binaries:
    cache = cache_folder(state)
    try:
        if not cache.exists():
            cache.mkdir(parents=True)
            cache.chmod(0o755)  # the server's account reads it, and other users may
        if os.geteuid() == 0 and (hidden := hidden_above(cache / "any")) is not None:
            raise OperationError(f"the database's account can't enter {hidden}: set {CACHE} to another folder")
        with folder_lock(cache, lambda: progress(f"another plantlog installs PostgreSQL in {cache}: waiting for it")):
            return find(state) or _install(cache, progress)  # whoever was before us may have done it
    except OSError as error:
        remedy = "free some space, or " if error.errno == errno.ENOSPC else ""
        raise OperationError(
            f"PostgreSQL is unpacked in {cache}, where it fails: {error.strerror}: {error.filename}; {remedy}"
            f"set {CACHE} to a folder of yours on a disk that programs may run from"
        ) from error


def _install(cache: Path, progress: Callable[[str], None]) -> Binaries:
    """Whole or not at all."""
    if not (_ZONES / "UTC").exists():
        raise OperationError(f"PostgreSQL needs the time zones in {_ZONES}: install the package tzdata")
    for former in cache.glob(".partial-*"):  # of one that was killed
        shutil.rmtree(former)
    if (free_mb := shutil.disk_usage(cache).free // 1024**2) < _NEEDED_MB:
        raise OperationError(
            f"{cache} has {free_mb} MB free, and PostgreSQL needs {_NEEDED_MB}: free some space, or set {CACHE} to a "
            "folder on another disk"
        )
    origin = bundle.in_use() or "a mirror of Debian (44 MB)"
    progress(f"fetching PostgreSQL 17 with TimescaleDB from {origin}")
    with TemporaryDirectory(prefix=".partial-", dir=cache) as folder:
        files = packages.download(PACKAGES, Path(folder))
        [server] = [file.name for file in files if file.name.startswith("postgresql-17_")]
        digest = hashlib.sha256()
        for file in files:
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        root = cache / f"{server.removesuffix('.deb')}_{digest.hexdigest()[:12]}"
        progress(f"unpacking {root}")
        partial = Path(folder, "root")
        partial.mkdir()
        partial.chmod(0o755)
        packages.unpack(files, partial)
        unpacked = Binaries(partial)
        programs = [path for path in (partial / _BIN).iterdir() if path.read_bytes()[:4] == b"\x7fELF"]
        packages.patch([*programs, *map(unpacked.path, (PGBACKREST, PG_AUTOCTL))], root)
        os.utime(partial)  # the newest version is that which was unpacked last
        partial.rename(root)
    _check_runs(root)
    return Binaries(root)


def _check_runs(root: Path) -> None:
    """Raises OperationError where the programs do not run, which then do not stay."""
    try:
        packages.run([str(Binaries(root).path("postgres")), "--version"])
    except OperationError as error:
        shutil.rmtree(root)
        raise OperationError(
            f"PostgreSQL does not run in {root.parent}: is it mounted noexec, or does SELinux or AppArmor forbid it? "
            f"Set {CACHE} to a folder that programs may run from. {error}"
        ) from error
