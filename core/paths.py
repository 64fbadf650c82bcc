"""Paths of the checkout and the state folder."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from core.errors import OperationError
from core.files import make_trust_folders

CHECKOUT = Path(__file__).resolve().parents[1]
EXAMPLE = CHECKOUT / "ops" / "example" / "plant.toml"

_MARKER = "plantlog-state"
_MARKER_TEXT = "This folder belongs to plantlog; `plantlog down --wipe` removes it.\n"
_OWN_FILES = frozenset(
    {
        *("config", "installation", "log", "pki", "plant", "postgres", "push.json", "registry.json"),
        *("run", "secrets", "simulator", "spool", "users.json"),
        "lost+found",  # of a disk of its own, such as a volume of Kubernetes
    }
)


def plantlog_version() -> str:
    """Version as ``plantlog --version`` prints it."""
    import tomllib  # noqa: PLC0415  (few commands need it)

    with (CHECKOUT / "pyproject.toml").open("rb") as file:
        return str(tomllib.load(file)["project"]["version"])


def state_folder() -> Path:
    """``PLANTLOG_STATE``, or ``.state`` in the checkout."""
    return Path(os.environ.get("PLANTLOG_STATE") or CHECKOUT / ".state").absolute()


def user_cache() -> Path:
    """Folder of what this user has downloaded, unpacked or built."""
    return Path(os.environ.get("XDG_CACHE_HOME") or f"{os.environ.get('HOME', '/')}/.cache", "plantlog").absolute()


def temporary_folder(name: str) -> Path:
    """A folder of this user among the temporary files, which nobody else can write to or replace.

    Raises OperationError if another user has it, or can.
    """
    parent = Path(tempfile.gettempdir())
    folder = parent / f"{name}-{os.geteuid()}"
    remedy = "remove it, or set TMPDIR to a folder of your own"
    parent_status = parent.stat()
    if parent_status.st_mode & 0o022 and not parent_status.st_mode & stat.S_ISVTX:
        raise OperationError(f"others can replace what is in {parent}: run chmod +t, or set TMPDIR to another folder")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()  # may be a link of another user
    if not stat.S_ISDIR(status.st_mode):
        raise OperationError(f"{folder} is not a folder, but a link: {remedy}")
    if status.st_uid != os.geteuid():
        raise OperationError(f"{folder} belongs to another user: {remedy}")
    if status.st_mode & 0o022:
        raise OperationError(f"{folder} can be written to by others: {remedy}")
    return folder


@dataclass(frozen=True, slots=True)
class State:
    """The state folder, which holds all data of the appliance."""

    root: Path

    @classmethod
    def current(cls) -> State:
        """The state folder of this command."""
        return cls(state_folder())

    @property
    def registry(self) -> Path:
        """Ids of sources and channels."""
        return self.root / "registry.json"

    @property
    def installation(self) -> Path:
        """The id of this installation."""
        return self.root / "installation"

    @property
    def spool(self) -> Path:
        """Spool files."""
        return self.root / "spool"

    @property
    def pki(self) -> Path:
        """plantlog's own OPC UA certificate, and those of servers."""
        return self.root / "pki"

    @property
    def trusted(self) -> Path:
        """Certificates of OPC UA servers that the collector trusts."""
        return self.pki / "trusted" / "certs"

    @property
    def log(self) -> Path:
        """Log files, one per process."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """The supervisor's socket and configuration, and the last deployment."""
        return self.root / "run"

    @property
    def simulator(self) -> Path:
        """The simulator's ground truth and certificate."""
        return self.root / "simulator"

    @property
    def plant(self) -> Path:
        """The generated plant of load mode."""
        return self.root / "plant"

    @property
    def external_database_marker(self) -> Path:
        """File that exists if the database is not the state folder's own."""
        return self.run / "given-database"

    @property
    def has_external_database(self) -> bool:
        """Return whether the database is that of PLANTLOG_DSN, now or at the last ``up``."""
        return bool(os.environ.get("PLANTLOG_DSN")) or self.external_database_marker.exists()

    def dsn_file(self, role: str) -> Path:
        """The file with the DSN of ``owner``, ``ingest``, ``reader`` or ``maintenance``."""
        return self.root / "secrets" / f"{role}.dsn"

    def dsn(self, role: str) -> str:
        """The DSN of a role. Raises OperationError if it is not created yet."""
        try:
            return self.dsn_file(role).read_text().strip()
        except FileNotFoundError:
            raise OperationError(f"{self.root} has no database yet: run `plantlog up`") from None

    @property
    def claimed(self) -> bool:
        """Return whether the folder is known to be plantlog's own."""
        return (self.root / _MARKER).exists()

    def claim(self) -> None:
        """Create the folder or reuse it. Raises OperationError if it contains other files."""
        os.umask(0o077)  # for what this command makes, and for the processes that it starts
        self.root.mkdir(parents=True, exist_ok=True)
        unknown = sorted(path.name for path in self.root.iterdir() if path.name not in _OWN_FILES)
        if unknown and not self.claimed:
            raise OperationError(
                f"{self.root} contains {unknown[0]!r} and is not a plantlog state folder: "
                "set PLANTLOG_STATE to a new or empty folder"
            )
        make_trust_folders(self.pki)
        for folder in (self.spool, self.log, self.run):
            folder.mkdir(parents=True, exist_ok=True)
        (self.root / _MARKER).write_text(_MARKER_TEXT)
        self._restrict_permissions()

    def _restrict_permissions(self) -> None:
        """Remove permissions of group and others, as copies have them. The database handles its own files.

        A server of several machines gets through the folder to its own.
        """
        passable = 0o001 if (self.root / "postgres" / "failover.json").exists() else 0
        for folder, names, files in os.walk(self.root):
            if Path(folder) == self.root:
                names[:] = [name for name in names if name != "postgres"]
            for path in (Path(folder), *(Path(folder, name) for name in files)):
                with suppress(OSError):  # gone meanwhile, or a secret that is mounted read-only
                    mode = path.lstat().st_mode
                    legal = 0o700 | (passable if path == self.root else 0)
                    if mode & 0o777 & ~legal and not stat.S_ISLNK(mode):
                        path.chmod(stat.S_IMODE(mode) & legal)
