"""The binaries of PostgreSQL 17 with TimescaleDB: system packages, or a private root file system.

Debian 13 has packages of both. They are used directly (and, as root, installed if missing). On an older Debian
they are installed into a private root file system in the state folder, by debootstrap from the mirror that the
system's apt uses.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import OperationError
from core.files import write_atomically
from core.folder_lock import folder_lock
from ops.postgres.archive import PROGRAM

RELEASE = "trixie"  # Debian 13
PACKAGES = ("postgresql-17", "postgresql-17-timescaledb")
_BIN = Path("usr/lib/postgresql/17/bin")
_CONTROL = Path("usr/share/postgresql/17/extension/timescaledb.control")
_SHARED = Path("run/rootfs")  # the path, in the state folder
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True, slots=True)
class Binaries:
    """PostgreSQL's programs, below ``root`` (``/``: the system's own)."""

    root: Path

    @property
    def private(self) -> bool:
        """Whether they live in a root file system of their own."""
        return self.root != Path("/")

    def path_in_root(self, program: str) -> str:
        """Path of a program as seen from ``root``."""
        return f"/{_BIN / program}"

    def psql(self) -> list[str]:
        """psql as a command of the caller's own file system, so that ``\\copy`` and ``-f`` see the caller's files."""
        return with_libraries(self.root, self.root / _BIN / "psql")


def with_libraries(root: Path, program: Path) -> list[str]:
    """A program as a command of the caller's own file system, with the libraries of ``root``."""
    if root == Path("/"):
        return [str(program)]
    loaders = (root / "lib64/ld-linux-x86-64.so.2", *sorted((root / "usr/lib").glob("ld-linux*.so.*")))
    loader = next(path for path in loaders if path.exists())
    libraries = ":".join(str(root / "usr/lib" / folder) for folder in (f"{platform.machine()}-linux-gnu", ""))
    return [str(loader), "--library-path", libraries, str(program)]


def complete(root: Path) -> bool:
    """Whether ``root`` has all that is needed."""
    return (root / _BIN / "postgres").exists() and (root / _CONTROL).exists()


def root_file_system(state: Path) -> Path:
    """Folder of the private root file system."""
    return shared_root_file_system(state) or (state / "postgres" / "rootfs").absolute()


def shared_root_file_system(state: Path) -> Path | None:
    """Root file system of ``PLANTLOG_ROOTFS``, now or at the last ``up``, which several state folders may share."""
    variable, remembered = os.environ.get("PLANTLOG_ROOTFS"), state / _SHARED
    if not variable and remembered.exists():
        variable = remembered.read_text().strip()
    return Path(variable).absolute() if variable else None


def remember_root_file_system(state: Path) -> None:
    """Apply that of ``PLANTLOG_ROOTFS`` to the state folder from now on."""
    if (shared := shared_root_file_system(state)) is not None:
        write_atomically(state / _SHARED, f"{shared}\n")


def find(state: Path) -> Binaries | None:
    """The binaries, if they are there."""
    for root in (Path("/"), root_file_system(state)):
        if complete(root):
            return Binaries(root)
    return None


def provide(state: Path, progress: Callable[[str], None]) -> Binaries:
    """The binaries, installed if missing. Raises OperationError, with a remedy, if that is impossible."""
    installed = find(state)
    if installed is not None:
        return installed
    if os.geteuid() != 0:
        raise OperationError(
            f"PostgreSQL 17 with TimescaleDB is not installed, and installing it requires root: as root, run "
            f"`apt-get install {' '.join(PACKAGES)}` (Debian 13 or newer) or `./plantlog up` once; or set PLANTLOG_DSN "
            "to an existing server"
        )
    with folder_lock(root_file_system(state).parent):
        # Whoever was before us may have done it.
        return find(state) or _install(state, progress)


def _install(state: Path, progress: Callable[[str], None]) -> Binaries:
    if debian_version() >= 13:
        progress(f"installing system packages {' and '.join(PACKAGES)}")
        # No cluster of the distribution's own: only ours is wanted.
        settings = Path("/etc/postgresql-common/createcluster.d")
        _run(["mkdir", "--parents", str(settings)])
        (settings / "plantlog.conf").write_text("create_main_cluster = false\n")
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES])
        return Binaries(Path("/"))
    root = root_file_system(state)
    make_root_file_system(root, PACKAGES, progress)
    return Binaries(root)


def make_root_file_system(root: Path, packages: Sequence[str], progress: Callable[[str], None]) -> None:
    """A Debian of :data:`RELEASE` with ``packages`` at ``root``, whole or not at all. Raises OperationError."""
    if shutil.which("debootstrap") is None:
        progress("installing debootstrap")
        _run(["apt-get", "update", "-qq"])
        _run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "debootstrap"])
    progress(f"creating a private Debian {RELEASE} root file system with {' and '.join(packages)} (about 40 s)")
    partial = root.with_name(root.name + ".partial")  # a kill leaves nothing that looks whole
    if partial.exists():
        shutil.rmtree(partial)
    partial.parent.mkdir(parents=True, exist_ok=True)
    command = ["debootstrap", "--variant=minbase", f"--include={','.join(packages)}"]
    if KEYRING.exists():
        command.append(f"--keyring={KEYRING}")
    _run([*_contained(), *command, RELEASE, str(partial), mirror()])
    for cluster in (partial / "etc/postgresql/17", partial / "var/lib/postgresql/17"):
        shutil.rmtree(cluster, ignore_errors=True)  # the package's own cluster is not used
    shutil.rmtree(partial / "var/cache/apt", ignore_errors=True)
    partial.rename(root)


def _contained() -> list[str]:
    """Prefix of a command that ends, with what it started and mounted, when this process is killed."""
    contained = ["setpriv", "--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child", "--mount"]
    try:
        _run([*contained, "true"])
    except OperationError:  # a container without the right to mount, where debootstrap mounts nothing
        return []
    return contained


def mirror() -> str:
    """The Debian mirror in this machine's own apt configuration."""
    listed = _run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(SUITE)|$(CODENAME)|$(REPO_URI)"])
    targets = [line.split("|") for line in listed.splitlines()]
    for origin, _, codename, address in targets:
        if origin == "Debian" and "security" not in codename:
            return address.rstrip("/")
    # Before the first `apt-get update` apt knows the addresses and not yet whose they are.
    for _, _, _, address in targets:
        if address.rstrip("/").endswith("/debian"):
            return address.rstrip("/")
    raise OperationError(
        "no Debian mirror found in apt's configuration (/etc/apt/sources.list, /etc/apt/sources.list.d): "
        "add one, or set PLANTLOG_DSN to an existing server"
    )


def has_pgbackrest(binaries: Binaries) -> bool:
    """Whether pgBackRest is there."""
    return _program(binaries, PROGRAM).exists()


def provide_pgbackrest(binaries: Binaries, progress: Callable[[str], None]) -> None:
    """pgBackRest beside the server, installed if missing. Raises OperationError."""
    provide_packages(binaries, PROGRAM, ["pgbackrest"], progress)


def provide_packages(binaries: Binaries, path: str, packages: Sequence[str], progress: Callable[[str], None]) -> None:
    """Packages beside the server, installed if their program is missing. Raises OperationError."""
    program = _program(binaries, path)
    if program.exists():
        return
    if os.geteuid() != 0:
        raise OperationError(f"{program.name} is not installed: as root, run `apt-get install {' '.join(packages)}`")
    enter = ["chroot", str(binaries.root)] if binaries.private else []
    with folder_lock(binaries.root / "var/lib/apt"):
        if not program.exists():  # whoever was before us may have done it
            progress(f"installing {' and '.join(packages)}")
            _run([*enter, "apt-get", "update", "-qq"])
            _run([*enter, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages])


def _program(binaries: Binaries, path: str) -> Path:
    return binaries.root / path.lstrip("/")


def debian_version() -> int:
    """The major version of this system. Raises OperationError where it is no Debian."""
    try:
        text = Path("/etc/debian_version").read_text().strip()
    except FileNotFoundError:
        raise OperationError(
            "this is not a Debian system: set PLANTLOG_DSN to a PostgreSQL 17 server with TimescaleDB"
        ) from None
    number = text.split(".")[0]
    return int(number) if number.isdigit() else 13  # "trixie/sid" and later


def _run(command: list[str]) -> str:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    # What is installed is for everyone, whatever our own files are.
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, umask=0o022)
    if run.returncode:
        tail = "\n".join((run.stdout + run.stderr).splitlines()[-8:])
        raise OperationError(f"{' '.join(command)} exited with {run.returncode}:\n{tail}")
    return run.stdout
