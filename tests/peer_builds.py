"""Parts of peers: packages of lock files, and a few programs compiled on first use, in the user's cache."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import pytest

from core.files import folder_lock
from core.paths import user_cache
from ops.postgres import packages
from tests import certificates
from tests.ports import free_ports

_FOLDER = Path(__file__).parent / "peers"
_CACHE = user_cache() / "peers"
_OPEN62541 = ("libopen62541-1.4-dev",)  # of Debian 13
_OPTIONS = (
    "-DUA_ENABLE_SUBSCRIPTIONS_ALARMS_CONDITIONS=ON",
    "-DUA_NAMESPACE_ZERO=FULL",
    "-DUA_ENABLE_ENCRYPTION=OFF",
    "-DUA_ENABLE_PUBSUB=OFF",
    "-DUA_ENABLE_PUBSUB_INFORMATIONMODEL=OFF",
    "-DCMAKE_BUILD_TYPE=Debug",
    "-DCMAKE_C_FLAGS_DEBUG=-O0",  # the fastest to build
    "-DCMAKE_INSTALL_LIBDIR=lib",
)
_GCC = ("gcc", "-O1", "-Wall", "-Wextra", "-Werror")
_JAVA = ("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xlog:disable")  # else warnings are output


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
    programs = [source / "MiloServer.java", source / "Conditions.java"]

    def build(folder: Path) -> None:
        copy = ("dependency:copy-dependencies", f"-DoutputDirectory={folder / 'lib'}")
        _run(["mvn", "-q", "-B", "--strict-checksums", "-f", str(source / "pom.xml"), *copy])
        libraries = sorted((folder / "lib").iterdir())
        actual = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in libraries)
        assert actual == sums.read_text(), f"{sums} lists other libraries than these:\n{actual}"
        _run(["javac", "-d", str(folder / "classes"), "-cp", str(folder / "lib" / "*"), *map(str, programs)])
        _run(["jar", "--create", "--file", str(folder / "lib" / "server.jar"), "-C", str(folder / "classes"), "."])

    sources = [source / "pom.xml", sums, *programs]
    server = ("-cp", str(_built("milo-server", sources, build) / "lib" / "*"), "MiloServer")

    def share(folder: Path) -> None:
        """Keep the classes as they are after a start, which makes the next one take half the processor time."""
        with TemporaryDirectory() as work:
            certificates.make(Path(work) / "pki")
            archive = f"-XX:ArchiveClassesAtExit={folder / 'classes.jsa'}"
            _run([*_JAVA, archive, *server, str(free_ports(1)), work, "milo", "15", "0"])

    return [*_JAVA, f"-XX:SharedArchiveFile={_built('milo-classes', sources, share) / 'classes.jsa'}", *server]


def open62541() -> list[str]:
    """The command of open62541's server: Debian 13 has the library; elsewhere, it is unpacked with what it needs."""
    source = _FOLDER / "opcua-server.c"

    def build(folder: Path) -> None:
        here = Path("/usr/include/open62541").exists()
        output, root = folder / "opcua-server", folder / "root"
        options = []
        if not here:
            with TemporaryDirectory() as work:
                packages.unpack(packages.download(_OPEN62541, Path(work)), root)
            library = next(root.glob("usr/lib/*/libopen62541.so")).parent
            options = ["-isystem", str(root / "usr/include"), f"-L{library}", "-Wl,--allow-shlib-undefined"]
        _run([*_GCC, "-x", "c", "-", "-o", str(output), *options, "-lopen62541"], source.read_bytes())
        if not here:
            packages.patch([output], folder.with_suffix("") / "root")

    return [str(_built("open62541-server", [source], build) / "opcua-server")]


def root_of_1_0() -> Path:
    """The root file system that 1.0 ran PostgreSQL in, without what it does not need: debootstrap takes minutes."""

    def build(folder: Path) -> None:
        with TemporaryDirectory() as work:
            names = ("dash", "libc-bin", "postgresql-17", "postgresql-17-timescaledb")
            packages.unpack(packages.download(names, Path(work)), folder)
        for name in ("bin", "lib", "lib64"):
            if not (folder / name).exists():
                (folder / name).symlink_to(f"usr/{name}")
        for name in ("dev", "proc", "tmp", "var/lib/postgresql"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "etc" / "passwd").touch()
        shutil.copytree("/usr/share/zoneinfo", folder / "usr/share/zoneinfo", symlinks=True)

    return _built("root-of-1.0", [], build)


def open62541_conditions() -> list[str]:
    """The command of open62541's server with conditions, by a library that is built with them."""
    source, conditions = _FOLDER / "opcua-server.c", _FOLDER / "opcua-conditions.h"
    library = _built("open62541-library", [], _build_open62541)

    def build(folder: Path) -> None:
        linked = ("-isystem", str(library / "include"), str(source), str(library / "lib" / "libopen62541.a"))
        _run([*_GCC, "-o", str(folder / "opcua-server"), *linked])

    return [str(_built("open62541-conditions", [source, conditions], build) / "opcua-server")]


def _build_open62541(folder: Path) -> None:
    """The library, from the source and the schema of Debian 13, which builds it without conditions."""
    with TemporaryDirectory() as temporary:
        work = Path(temporary)
        (work / "lists" / "partial").mkdir(parents=True)
        source = f"[signed-by={packages.keyring(work)}] {packages.mirror(work)} {packages.RELEASE} main\n"
        (work / "sources.list").write_text(f"deb {source}deb-src {source}")
        files = {"SourceList": work / "sources.list", "SourceParts": "-"}
        options = [f"-oDir::Etc::{name}={value}" for name, value in files.items()]
        apt = ["apt-get", "-qq", *options, f"-oDir::State::Lists={work / 'lists'}", f"-oDir::Cache={work}"]
        try:
            _run([*apt, "update"])
            archive = _download([*apt, "source", "--tar-only", "open62541"], r"open62541_[0-9.]+\.orig\.tar\.gz", work)
            tools = _download([*apt, "download", "libopen62541-1.4-tools"], r"libopen62541\S+\.deb", work)
        except AssertionError as error:
            pytest.skip(f"the mirror of Debian's packages lacks the source of open62541: {error}")
        (work / "source").mkdir()
        _run(["tar", "--extract", f"--file={archive}", "--strip-components=1", f"--directory={work / 'source'}"])
        _run(["dpkg-deb", "--extract", str(tools), str(work / "tools")])
        (work / "nodeset").mkdir()
        (work / "nodeset" / "Schema").symlink_to(work / "tools/usr/share/open62541/schema")
        places = (f"-DUA_NODESET_DIR={work / 'nodeset'}", f"-DCMAKE_INSTALL_PREFIX={folder}")
        _run(["cmake", "-S", str(work / "source"), "-B", str(work / "build"), *_OPTIONS, *places])
        _run(["cmake", "--build", str(work / "build"), "--parallel", "2", "--target", "install"])


def _download(apt: list[str], name: str, folder: Path) -> Path:
    """The file that ``apt`` would fetch, checked against Debian's signed index. ``name``: a regular expression."""
    file = re.search(rf"^'(\S+)' ({name}) \d+ (\S+)$", _run([*apt, "--print-uris"]), re.MULTILINE)
    assert file is not None, name
    _run(["/usr/lib/apt/apt-helper", "download-file", file[1], str(folder / file[2]), file[3]])
    return folder / file[2]


def device() -> list[str]:
    """The command of libmodbus' device."""
    source = _FOLDER / "modbus-device.c"

    def build(folder: Path) -> None:
        flags = _run(["pkg-config", "--cflags", "--libs", "libmodbus"]).split()
        _run([*_GCC, "-o", str(folder / "device"), str(source), *flags])

    return [str(_built("libmodbus", [source], build) / "device")]


def notebook_python() -> str:
    """A Python with what executes notebooks, and with what the package of archives needs."""
    lock = _FOLDER / "notebook.lock"
    folder = _built("notebook", [lock], lambda folder: install(folder, lock.read_text()))
    return str(folder / "bin" / "python")


def spark_python() -> str:
    """A Python with Spark: half a gigabyte, which is no dependency of anything else."""
    lock = _FOLDER / "spark.lock"
    folder = _built("spark", [lock], lambda folder: install(folder, lock.read_text()))
    return str(folder / "bin" / "python")


def install(folder: Path, lock: str) -> None:
    """Make an environment with the packages of a lock file, exactly."""
    uv = str(Path(sys.executable).with_name("uv"))
    _run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder)])
    options = ["--quiet", "--python", str(folder / "bin" / "python"), "--require-hashes", "--no-deps"]
    with NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(lock)
        file.flush()
        _run([uv, "pip", "install", *options, "--requirement", file.name])


def versitygw() -> str:
    """The path of an S3 server."""
    module = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
    folder = _CACHE / f"versitygw-{module.rpartition('@')[2]}"
    with folder_lock(_CACHE):
        if not (folder / "versitygw").exists():
            partial = folder.with_suffix(".partial")
            _run(["env", f"GOBIN={partial}", "GOFLAGS=-mod=mod -buildvcs=false", "go", "install", module])
            folder.mkdir(exist_ok=True)
            (partial / "versitygw").rename(folder / "versitygw")
    return str(folder / "versitygw")


def _built(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The folder that ``build`` filled, once for each content of ``sources``: whole or not at all."""
    key = hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in sources)).hexdigest()
    folder = _CACHE / f"{name}-{key[:12]}"
    with folder_lock(_CACHE / f".{name}"):
        if not folder.exists():
            partial = folder.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            build(partial)
            partial.rename(folder)
    return folder


def _run(command: list[str], text: bytes = b"") -> str:
    run = subprocess.run(command, cwd=_FOLDER, input=text, capture_output=True, check=False)
    assert run.returncode == 0, f"{' '.join(command)}\n{(run.stdout + run.stderr).decode(errors='replace')}"
    return run.stdout.decode()
