"""What peers are made of: packages of lock files, and a few programs compiled on first use, in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from ingest.folder_lock import folder_lock
from ops.postgres.binaries import debian_version, make_root_file_system, with_libraries

_FOLDER = Path(__file__).parent / "peers"
_OPEN62541 = ("libopen62541-1.4-dev", "gcc", "libc6-dev")  # of Debian 13
_GCC = ("gcc", "-O1", "-Wall", "-Wextra", "-Werror")
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def node(script: str) -> list[str]:
    """The command of a script, with the packages in package-lock.json, exactly."""
    with folder_lock(_FOLDER):
        if not (_FOLDER / "node_modules" / ".package-lock.json").exists():
            _run(["npm", "ci", "--ignore-scripts", "--no-fund", "--no-audit"])
    return ["node", str(_FOLDER / script)]


def milo() -> list[str]:
    """The command of Eclipse Milo's server, with the libraries in pom.xml, exactly."""
    source = _FOLDER / "milo"
    sums = source / "libraries.sha256"

    def build(folder: Path) -> None:
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}")
        _run(["mvn", "-q", "-B", "--strict-checksums", "-f", str(source / "pom.xml"), *copy])
        libraries = sorted((folder / "lib").iterdir())
        found = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in libraries)
        assert found == sums.read_text(), f"{sums} lists other libraries than these:\n{found}"
        _run(["javac", "-d", str(folder), "-cp", str(folder / "lib" / "*"), str(source / "MiloServer.java")])

    folder = _built("milo", [source / "pom.xml", sums, source / "MiloServer.java"], build)
    return [*_JAVA, "-cp", f"{folder}:{folder / 'lib' / '*'}", "MiloServer"]


def open62541() -> list[str]:
    """The command of open62541's server: Debian 13 has the library, so does a root file system of it elsewhere."""
    source = _FOLDER / "opcua-server.c"
    root = Path("/") if debian_version() >= 13 else _cache() / "open62541-root"

    def build(folder: Path) -> None:
        if root != Path("/") and not root.exists():
            make_root_file_system(root, _OPEN62541, print)
        inside = [] if root == Path("/") else ["chroot", str(root)]
        output = (folder if root == Path("/") else Path("/")) / "opcua-server"
        _run([*inside, *_GCC, "-x", "c", "-", "-o", str(output), "-lopen62541"], source.read_bytes())
        if inside:
            (root / "opcua-server").rename(folder / "opcua-server")

    return with_libraries(root, _built("open62541", [source], build) / "opcua-server")


def device() -> list[str]:
    """The command of libmodbus' device."""
    source = _FOLDER / "modbus-device.c"

    def build(folder: Path) -> None:
        flags = _run(["pkg-config", "--cflags", "--libs", "libmodbus"]).split()
        _run([*_GCC, "-o", str(folder / "device"), str(source), *flags])

    return [str(_built("libmodbus", [source], build) / "device")]


def versitygw() -> str:
    """The path of an S3 server."""
    module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
    folder = _cache() / f"versitygw-{module.rpartition('@')[2]}"
    with folder_lock(_cache()):
        if not (folder / "versitygw").exists():
            partial = folder.with_suffix(".partial")
            _run(["env", f"GOBIN={partial}", "GOFLAGS=-mod=mod -buildvcs=false", "go", "install", module])
            folder.mkdir(exist_ok=True)
            (partial / "versitygw").rename(folder / "versitygw")
    return str(folder / "versitygw")


def _cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "plantlog" / "peers"


def _built(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder that ``build`` filled, once for each content of ``sources``: whole or not at all."""
    key = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources)).hexdigest()
    folder = _cache() / f"{name}-{key[:12]}"
    with folder_lock(_cache()):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(partial)
            partial.rename(folder)
    return folder


def _run(command: list[str], given: bytes = b"") -> str:
    run = subprocess.run(command, cwd=_FOLDER, input=given, capture_output=True, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{(run.stdout + run.stderr).decode(errors='replace')}"
    return run.stdout.decode()
