"""Programs from a mirror of Debian: unpacked whole and once, or refused with a reason and nothing left."""

from __future__ import annotations

import ctypes
import gzip
import hashlib
import os
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from core.errors import OperationError
from ops.postgres import binaries, packages
from ops.postgres.binaries import provide
from tests.folders import enterable_folder
from tests.integration.ingest.test_spool_disk import run
from tests.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(binaries.complete(Path("/")), reason="the system has PostgreSQL and TimescaleDB"),
    pytest.mark.skipif(shutil.which("gpg") is None or shutil.which("apt-get") is None, reason="without apt and gpg"),
]
_NOBODY = 65_534
_BIN = "usr/lib/postgresql/17/bin"
_INTERPRETER = re.search(rb"/lib\S*/ld-linux[^\0]*", Path("/bin/true").read_bytes())
_LOCALE = "usr/lib/locale/C.utf8/LC_CTYPE"


class Mirror:
    """A signed archive with small packages of the names of the real ones; each program is ``true``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder / "mirror", folder / "gpg"
        self.origin, self.codename = "Debian", packages.RELEASE
        self.home.mkdir(mode=0o700)
        (self.folder / "pool").mkdir(parents=True)
        self.architecture = run("dpkg", "--print-architecture").strip()
        self.new_key()
        assert _INTERPRETER is not None
        interpreter = _INTERPRETER[0].decode()
        control = "usr/share/postgresql/17/extension/timescaledb.control"
        server = {f"{_BIN}/postgres": "/bin/true"}
        self.package("postgresql-17", server, {f"usr{interpreter}": interpreter})
        self.package("postgresql-17-timescaledb", {control: "/dev/null"})
        self.package("pgbackrest", {"usr/bin/pgbackrest": "/bin/true"})
        self.package("pg-auto-failover-cli", {"usr/bin/pg_autoctl": "/bin/true"})
        self.package("postgresql-17-auto-failover", {})
        self.package("libc-bin", {_LOCALE: "/dev/null"})
        self.index()

    def _gpg(self, *arguments: str | Path) -> None:
        run("gpg", "--homedir", self.home, "--batch", "--quiet", "--yes", *arguments)

    def new_key(self) -> None:
        """Another key signs from now on."""
        name = f"key{len(list(self.home.glob('*.pgp')))}"
        self._gpg("--passphrase", "", "--quick-generate-key", name, "ed25519", "sign", "never")
        self._gpg("--output", self.home / f"{name}.pgp", "--export", name)
        self._key = name

    @property
    def keyring(self) -> Path:
        """The key that signed."""
        return self.home / f"{self._key}.pgp"

    def package(self, name: str, files: dict[str, str], links: dict[str, str] | None = None) -> None:
        with TemporaryDirectory() as work:
            root = Path(work, "root")
            control = root / "DEBIAN" / "control"
            control.parent.mkdir(parents=True)
            control.write_text(
                f"Package: {name}\nVersion: 17.1-1\nArchitecture: {self.architecture}\nMaintainer: tests\n"
                "Description: of tests\n"
            )
            for path, source in files.items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_bytes(Path(source).read_bytes())
                (root / path).chmod(0o755)
            for path, target in (links or {}).items():
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).symlink_to(target)
            for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
                folder.chmod(0o755)
            run("dpkg-deb", "--build", "--root-owner-group", root, self.folder / "pool" / f"{name}.deb")

    def index(self) -> None:
        """Sign the packages as they are now."""
        text = ""
        for path in sorted((self.folder / "pool").iterdir()):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            fields = run("dpkg-deb", "--field", path).strip()
            text += f"{fields}\nFilename: pool/{path.name}\nSize: {path.stat().st_size}\nSHA256: {digest}\n\n"
        release = self.folder / "dists" / self.codename
        index = release / f"main/binary-{self.architecture}" / "Packages"
        index.parent.mkdir(parents=True, exist_ok=True)
        index.write_text(text)
        index.with_suffix(".gz").write_bytes(gzip.compress(text.encode()))
        sums = "".join(
            f" {hashlib.sha256(path.read_bytes()).hexdigest()} {path.stat().st_size} {path.relative_to(release)}\n"
            for path in index.parent.iterdir()
        )
        (release / "Release").write_text(
            f"Origin: {self.origin}\nCodename: {self.codename}\nDate: Sat, 01 Nov 2025 00:00:00 UTC\n"
            f"Architectures: {self.architecture}\nComponents: main\nSHA256:\n{sums}"
        )
        self._gpg("--local-user", self._key, "--output", release / "InRelease", "--clearsign", release / "Release")


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    made = Mirror(tmp_path)
    monkeypatch.setenv("PLANTLOG_DEBIAN_MIRROR", f"file:{made.folder}")
    monkeypatch.setenv("PLANTLOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "hidden_above", lambda path: None)  # pytest's folders are closed to others
    keyring = made.keyring
    monkeypatch.setattr(packages, "keyring", lambda work: keyring)
    return made


def refusal(folder: Path) -> str:
    """Why the programs can't be had; nothing is left of them."""
    with pytest.raises(OperationError) as refused:
        provide(folder / "state", print)
    assert not (folder / "cache").is_dir() or list((folder / "cache").iterdir()) == []
    return str(refused.value)


def test_two_at_once_unpack_the_programs_once(mirror: Mirror, tmp_path: Path) -> None:
    lines: list[str] = []
    (tmp_path / "cache" / ".partial-killed" / "root").mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda name: provide(tmp_path / name, lines.append), ("one", "two"))
    assert first == second
    assert [line.split()[0] for line in lines].count("unpacking") == 1
    [root] = (tmp_path / "cache").iterdir()
    assert root == first.root
    assert root.name.startswith("postgresql-17_17.1-1_")
    assert root.stat().st_mode & 0o777 == 0o755
    assert (root / _LOCALE).exists()  # the machine's own may be missing, or of another libc
    for program in ("postgres", "pgbackrest", "pg_autoctl"):
        assert run(first.path(program), "--version").startswith("true ")
    assert provide(tmp_path / "three", lines.append) == first


def test_programs_of_another_processor_are_not_used(mirror: Mirror, tmp_path: Path) -> None:
    """As in a home that machines share by NFS."""
    root = provide(tmp_path, print).root
    assert binaries.find(tmp_path) == binaries.Binaries(root)
    root.rename(root.with_name(root.name.replace(mirror.architecture, "riscv64")))
    assert binaries.find(tmp_path) is None


def test_package_with_another_digest_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    package = mirror.folder / "pool" / "pgbackrest.deb"
    data = bytearray(package.read_bytes())
    data[-1] ^= 1
    package.write_bytes(data)
    assert re.search(r"pgbackrest\.deb.*Hash Sum mismatch", refusal(tmp_path), re.DOTALL)


def test_archive_signed_by_another_key_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    mirror.new_key()
    mirror.index()
    assert re.search(rf"{mirror.folder} {packages.RELEASE} InRelease.*NO_PUBKEY", refusal(tmp_path), re.DOTALL)


def test_cache_that_is_no_folder_is_named(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    assert re.search(rf"unpacked in {tmp_path}/cache, .* set PLANTLOG_CACHE to a folder of yours", refusal(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="the database has an account of its own where root runs it")
def test_cache_that_the_databases_account_can_not_enter_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with enterable_folder() as folder:
        (folder / "home").mkdir(mode=0o700)
        monkeypatch.setenv("PLANTLOG_CACHE", f"{folder}/home/cache")
        with pytest.raises(OperationError, match=f"can't enter {folder}/home: set PLANTLOG_CACHE to another folder"):
            provide(folder / "state", print)
        assert list((folder / "home").rglob("*")) == [folder / "home" / "cache"]


def test_mirror_that_does_not_answer_is_named(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.setenv("PLANTLOG_DEBIAN_MIRROR", f"http://127.0.0.1:{free_port()}/debian")
    assert re.search(r"Could not connect to 127\.0\.0\.1:\d+.*Connection refused", refusal(tmp_path), re.DOTALL)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Mounts the cache with options."""
    cache = tmp_path / "cache"
    cache.mkdir()

    def mount(options: str) -> None:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", options, "plantlog-test", cache], check=False, capture_output=True
        ).returncode:
            pytest.skip("mounting is not allowed here")

    yield mount
    subprocess.run(["umount", "--lazy", cache], check=False, capture_output=True)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ("noexec", "is it mounted noexec"),
        ("ro", "Read-only file system.*set PLANTLOG_CACHE"),
        ("size=3m", "cache has 3 MB free, and PostgreSQL needs 250: free some space"),
    ],
)
def test_disk_that_can_not_hold_programs_is_named(
    mirror: Mirror, tmp_path: Path, mounted: Callable[[str], None], options: str, reason: str
) -> None:
    mounted(options)
    assert re.search(reason, refusal(tmp_path), re.DOTALL)


def machine_with_apt_of(tmp_path: Path, sources: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own apt, as it is with other sources; nobody has named a mirror of Debian."""
    for folder in ("lists/partial", "archives/partial"):
        (tmp_path / "apt" / folder).mkdir(parents=True)
    apt = tmp_path / "apt"
    (apt / "sources.list").write_text(sources)
    (apt / "apt.conf").write_text(
        f'Dir::Etc::SourceList "{apt}/sources.list";\nDir::Etc::SourceParts "/dev/null";\n'
        f'Dir::State::Lists "{apt}/lists";\nDir::Cache "{apt}";\nAPT::Sandbox::User "root";\n'
    )
    monkeypatch.setenv("APT_CONFIG", str(apt / "apt.conf"))
    monkeypatch.delenv("PLANTLOG_DEBIAN_MIRROR", raising=False)


def test_disk_that_gets_full_is_named(
    mirror: Mirror, tmp_path: Path, mounted: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it had enough space before: what others write comes in between."""
    mounted("size=64k")
    monkeypatch.setattr(binaries, "_NEEDED_MB", 0)
    assert "No space left on device" in refusal(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="root becomes another user")
def test_cache_that_is_not_writable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with enterable_folder() as folder:
        (folder / "cache").mkdir()
        (folder / "cache").chmod(0o755)  # whatever the umask is
        monkeypatch.setenv("PLANTLOG_CACHE", f"{folder}/cache")
        monkeypatch.setattr(binaries, "_SYSTEM_CACHE", folder / "none")
        os.seteuid(_NOBODY)
        try:
            reason = refusal(folder)
        finally:
            os.seteuid(0)
    assert re.match(rf"PostgreSQL is unpacked in {folder}/cache, where it fails: Permission denied: ", reason)
    assert reason.endswith("set PLANTLOG_CACHE to a folder of yours on a disk that programs may run from")


def forbid_execution(folder: Path) -> None:
    """Let this thread, and what it starts, run no file below a folder, as a policy of SELinux or AppArmor does.

    By Landlock (landlock(7)): what is beside the folder, and beside those above it, is allowed.
    """
    create, add, restrict = 444, 445, 446
    no_new_privileges, beneath, execute, move = 38, 1, 1, 1 << 13
    kernel = ctypes.CDLL(None, use_errno=True)
    rules = kernel.syscall(create, ctypes.byref(ctypes.c_uint64(execute | move)), ctypes.c_size_t(8), 0)
    if rules < 0:
        pytest.skip("the kernel has no Landlock")
    way = (folder, *folder.parents)
    beside = (child for parent in way[1:] for child in parent.iterdir() if child not in way and not child.is_symlink())
    for path, right in ((way[-1], move), *((path, execute) for path in beside)):
        with suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_PATH)
            assert kernel.syscall(add, rules, beneath, struct.pack("=Qi", right, descriptor), 0) == 0, path
            os.close(descriptor)
    assert kernel.prctl(no_new_privileges, 1, 0, 0, 0) == 0
    assert kernel.syscall(restrict, rules, 0) == 0
    os.close(rules)


def test_programs_that_a_policy_forbids_are_named(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()

    def refused() -> str:
        forbid_execution(tmp_path / "cache")
        return refusal(tmp_path)

    with ThreadPoolExecutor(1) as pool:
        reason = pool.submit(refused).result()
    assert f"PostgreSQL does not run in {tmp_path}/cache: is it mounted noexec, or does SELinux or AppArmor" in reason
    assert "Permission denied" in reason


def test_machine_whose_archive_is_not_debian_s_names_mirror_and_keys_by_packages(
    mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ubuntu does, by its own signed debootstrap and debian-archive-keyring."""
    monkeypatch.undo()
    monkeypatch.setenv("PLANTLOG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(binaries, "hidden_above", lambda path: None)
    monkeypatch.setattr(packages, "_KEYRING", "no-archive-keyring")  # this machine may have Debian's
    (tmp_path / "machine").mkdir()
    own = Mirror(tmp_path / "machine")
    own.origin, own.codename = "Ubuntu", "noble"
    script = tmp_path / "debootstrap"
    script.write_text(f'#!/bin/sh\nDEF_MIRROR="file:{mirror.folder}"\nDEF_HTTPS_MIRROR="https://localhost"\n')
    own.package("debootstrap", {"usr/sbin/debootstrap": str(script)})
    own.package("no-archive-keyring", {"usr/share/keyrings/no-archive-keyring.pgp": str(mirror.keyring)})
    own.index()
    sources = f"deb [signed-by={own.keyring}] file:{own.folder} noble main\n"
    machine_with_apt_of(tmp_path, sources, monkeypatch)
    run("apt-get", "update", "--error-on=any")

    programs = provide(tmp_path / "state", print)
    assert run(programs.path("postgres"), "--version").startswith("true ")

    script.write_text("#!/bin/sh\n")
    own.package("debootstrap", {"usr/sbin/debootstrap": str(script)})
    own.index()
    run("apt-get", "update", "--error-on=any")
    shutil.rmtree(tmp_path / "cache")
    assert "the package debootstrap names no mirror of Debian: set PLANTLOG_DEBIAN_MIRROR=" in refusal(tmp_path)


def test_machine_without_a_mirror_is_told_how_to_name_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_with_apt_of(tmp_path, "", monkeypatch)
    with pytest.raises(OperationError) as refused:
        packages.mirror(tmp_path)
    message = " ".join(str(refused.value).split())
    assert "apt of this machine knows none: set PLANTLOG_DEBIAN_MIRROR=http://" in message
    assert "Nor is there the package debootstrap, which names one: apt-get -qq download debootstrap exited" in message
