"""Bundles made from a mirror and a registry, and an installation from one where no network is."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from core.bundle import FILE, KEY, MANIFEST, Target, digest
from core.errors import OperationError
from core.paths import CHECKOUT, plantlog_version
from core.timestamps import now_us
from ops.bundle import make as making
from ops.bundle.make import make, targets_of
from ops.postgres import packages
from ops.postgres.binaries import provide
from tests.e2e.appliance import NEWEST
from tests.folders import enterable_folder
from tests.integration.ops.test_packages import Mirror, mirror, pytestmark, refusal  # noqa: F401
from tests.waiting import PATIENCE, until_sync

_NOBODY = 65_534
_DASHBOARDS = "http://127.0.0.1:9110/"
_BACKUP = """
[backup]
repository = "{home}/repository"
passphrase_file = "{home}/passphrase"
"""
_NEWER = "999.0.0"
SECOND = 1_000_000  # µs
_MIGRATION = "-- Of a newer version.\nCOMMENT ON TABLE plant.setting IS 'Settings.';\n"
_INSTALLED_IN = 1_200  # s: where much else runs, and the mirror is far


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """One wheel only, which nobody has to download."""

    def download(target: Target, folder: Path) -> None:
        folder.mkdir()
        (folder / f"numpy-2.4-cp311-cp311-manylinux_2_28_{target.architecture}.whl").write_bytes(bytes(3 << 20))

    monkeypatch.setattr(making, "_download_wheels", download)


@pytest.fixture
def bundle(mirror: Mirror, wheel: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """One with the mirror's packages. The mirror itself is gone."""
    key = Ed25519PrivateKey.generate()
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (tmp_path / "private.pem").write_bytes(key.private_bytes(encoding, form, serialization.NoEncryption()))
    subject = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "public.pem").write_bytes(key.public_key().public_bytes(encoding, subject))
    path = tmp_path / "plantlog.bundle"
    (tmp_path / ".plantlog.bundle.partial" / "content" / "wheels").mkdir(parents=True)  # of one that was killed
    assert make(path, targets_of(None), tmp_path / "private.pem", print) == digest(path)
    assert {left.name for left in tmp_path.iterdir()} == {
        *("gpg", "mirror", "plantlog.bundle", "private.pem", "public.pem")
    }
    shutil.rmtree(mirror.folder)
    monkeypatch.delenv(packages.MIRROR)
    monkeypatch.setenv(FILE, str(path))
    return path


def test_programs_come_from_a_bundle(bundle: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    programs = provide(tmp_path / "state", lines.append)
    assert lines[0] == f"fetching PostgreSQL 17 with TimescaleDB from {bundle}"
    assert subprocess.run([programs.path("postgres"), "--version"], check=True, capture_output=True).stdout
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [programs.root.name]


def test_package_that_debian_has_not_signed_is_refused(bundle: Path, tmp_path: Path) -> None:
    """Though the manifest has its digest."""
    with tarfile.open(bundle) as tar:
        for member in tar:
            target = tmp_path / "content" / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            file = tar.extractfile(member)
            assert file is not None
            target.write_bytes(file.read())
    content = tmp_path / "content"
    package = content / "debian" / "pool" / "pgbackrest.deb"
    data = bytearray(package.read_bytes())
    data[-1] ^= 1
    package.write_bytes(data)
    manifest = json.loads((content / "manifest.json").read_text())
    manifest["members"]["debian/pool/pgbackrest.deb"] = digest(package)
    (content / "manifest.json").write_text(json.dumps(manifest))
    with tarfile.open(bundle, "w:") as tar:
        for name in ("manifest.json", *manifest["members"]):
            tar.add(content / name, name)
    assert re.search(r"pgbackrest\.deb.*Hash Sum mismatch", refusal(tmp_path), re.DOTALL)


def test_signature_of_another_key_is_refused(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    public = Ed25519PrivateKey.generate().public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    (tmp_path / "other.pem").write_bytes(public.public_bytes(serialization.Encoding.PEM, form))
    monkeypatch.setenv(KEY, str(tmp_path / "other.pem"))
    assert f"{bundle} is signed by another key" in refusal(tmp_path)
    monkeypatch.setenv(KEY, str(tmp_path / "public.pem"))
    provide(tmp_path / "state", print)


def test_keys_in_a_bundle_are_trusted_where_it_is_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "_KEYRING", "no-archive-keyring")  # this machine may have Debian's
    keys = tmp_path / "bundled" / "usr" / "share" / "keyrings" / "no-archive-keyring.pgp"
    keys.parent.mkdir(parents=True)
    keys.touch()
    monkeypatch.delenv(KEY, raising=False)
    with pytest.raises(OperationError, match=f"install the package no-archive-keyring, or trust .* set {KEY}"):
        packages.keyring(tmp_path)
    monkeypatch.setenv(KEY, "verified.pem")
    assert packages.keyring(tmp_path) == keys


def test_bundle_that_is_gone_is_named(bundle: Path, tmp_path: Path) -> None:
    bundle.unlink()
    assert f"{bundle} can't be read: No such file or directory" in refusal(tmp_path)


def test_sbom_lists_wheels_and_packages(bundle: Path, tmp_path: Path) -> None:
    with tarfile.open(bundle) as tar:
        file = tar.extractfile("sbom.cdx.json")
        assert file is not None
        text = file.read().decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    architecture = Target.here().architecture
    purls = [component["purl"] for component in json.loads(text)["components"]]
    assert f"pkg:deb/debian/postgresql-17@17.1-1?arch={architecture}&distro=trixie" in purls
    assert len(purls) == 7
    assert purls[-1].startswith("pkg:pypi/numpy@2.4?file_name=numpy-2.4-")


def test_existing_file_is_kept(bundle: Path, tmp_path: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(OperationError, match=f"{bundle} exists: remove it"):
        make(bundle, targets_of(None), None, print)
    assert bundle.read_bytes() == before


def test_disk_that_is_full_gets_no_bundle(mirror: Mirror, wheel: None, tmp_path: Path) -> None:  # noqa: F811
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4M", "plantlog-test", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        with pytest.raises(OperationError, match=f"{disk}/plantlog.bundle can't be written: No space left on device"):
            make(disk / "plantlog.bundle", targets_of(None), None, print)
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", disk], check=False, capture_output=True)


def test_file_that_cannot_be_looked_at_is_named(tmp_path: Path) -> None:
    """Such as one in a folder that this account may not enter."""
    with pytest.raises(OperationError, match="x can't be written: File name too long"):
        make(tmp_path / ("x" * 300), targets_of(None), None, print)


@pytest.mark.parametrize("names", ["debian11-amd64", "debian12", "debian12-riscv64", "debian12-amd64,", ""])
def test_unknown_targets_are_named(names: str) -> None:
    with pytest.raises(OperationError, match=r"--for: found '.*'; legal: debian12, debian13, ubuntu2404, each with"):
        targets_of(names)


class Isolated:
    """A fresh checkout of an ordinary user, with a bundle beside it, in a network without routes."""

    def __init__(self, folder: Path, bundle: Path) -> None:
        self.checkout = folder / "plantlog"
        self.checkout.mkdir()
        copy = f"git ls-files -z | xargs --null cp --parents --no-dereference --target-directory={self.checkout}"
        subprocess.run(["sh", "-ec", copy], cwd=CHECKOUT, check=True)
        bundle.rename(folder / "plantlog.bundle")
        home = folder / "home"
        home.mkdir()
        subprocess.run(
            ["chown", "-R", f"{_NOBODY}:{_NOBODY}", self.checkout, home, folder / "plantlog.bundle"], check=True
        )
        self.home = home
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PLANTLOG_CACHE": str(home / "cache"),
            "PLANTLOG_STATE": str(home / "state"),
        }
        self._network = subprocess.Popen(["unshare", "--net", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        ours, theirs = Path("/proc/self/ns/net"), Path(f"/proc/{self._network.pid}/ns/net")
        until_sync(lambda: theirs.readlink() != ours.readlink())

    def run(self, *command: str, user: int = _NOBODY) -> str:
        """A command there; what it printed. Fails the test if it fails."""
        inside = ["nsenter", f"--target={self._network.pid}", "--net"]
        account = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"]
        run = subprocess.run(
            [*inside, *account, *command],
            cwd=self.checkout, env=self._environment, capture_output=True, text=True, check=False,
            timeout=_INSTALLED_IN,
        )  # fmt: skip
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout + run.stderr

    def upgrade(self) -> None:
        """Take another checkout, of a newer version with a migration, and its bundle."""
        newer = self.checkout.with_name("newer")
        shutil.copytree(self.checkout, newer, ignore=shutil.ignore_patterns(".venv", "__pycache__"))
        project = newer / "pyproject.toml"
        project.write_text(project.read_text().replace(plantlog_version(), _NEWER, 1))
        (newer / "schema" / "migrations" / "0999_newer.sql").write_text(_MIGRATION)
        bundle = self.checkout.with_name("plantlog.bundle")
        with tarfile.open(bundle) as former, tarfile.open(newer.with_name("newer.bundle"), "w:") as made:
            for member in former:
                file = former.extractfile(member)
                assert file is not None
                if member.name == MANIFEST:
                    text = json.dumps(json.loads(file.read()) | {"plantlog": _NEWER}).encode()
                    member.size, file = len(text), io.BytesIO(text)
                made.addfile(member, file)
        bundle.unlink()
        subprocess.run(["chown", "-R", f"{_NOBODY}:{_NOBODY}", newer, newer.with_name("newer.bundle")], check=True)
        self.checkout = newer

    def end(self) -> None:
        """Stop all, and the network."""
        try:
            self.run("./plantlog", "down", "--wipe", "--yes")
        finally:
            self._network.communicate()


@contextmanager
def isolated_checkout() -> Iterator[Isolated]:
    """A place that ends with the block. No fixture: its end has less time than a test."""
    with enterable_folder() as folder:
        make(folder / "made", targets_of(None), None, print)
        place = Isolated(folder, folder / "made")
        try:
            place.run("ip", "link", "set", "lo", "up", user=0)
            yield place
        finally:
            place.end()


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
@pytest.mark.timeout(3 * _INSTALLED_IN)
def test_appliance_is_installed_backed_up_and_upgraded_without_a_network() -> None:
    with isolated_checkout() as isolated:
        assert isolated.run("ip", "route") == ""
        home = isolated.home
        make_files = "cp -r ops/example ~/plant; mkdir ~/repository; openssl rand -hex 24 > ~/passphrase"
        isolated.run("sh", "-ec", f"umask 077; {make_files}")
        with (home / "plant" / "plant.toml").open("a") as config:
            config.write(_BACKUP.format(home=home))
        output = isolated.run("./plantlog", "up", "--config", f"{home}/plant/plant.toml", "--simulator")
        assert f"fetching PostgreSQL 17 with TimescaleDB from {isolated.checkout}.bundle" in output
        fetch = f"import urllib.request; urllib.request.urlopen('{_DASHBOARDS}', timeout={PATIENCE})"
        isolated.run(".venv/bin/python", "-c", fetch)
        # The first one is taken at the start.
        until_sync(lambda: " full " in isolated.run("./plantlog", "admin", "backup", "list"), _INSTALLED_IN)
        isolated.run("./plantlog", "admin", "backup", "rehearse")

        start = now_us()
        isolated.upgrade()
        assert "schema version 999" in " ".join(isolated.run("./plantlog", "up").split())
        end = now_us()

        def newest() -> int:
            """Of the source that is furthest behind."""
            return int(isolated.run("./plantlog", "psql", "-At", "-c", NEWEST).strip() or 0)

        until_sync(lambda: newest() > end + SECOND, _INSTALLED_IN, 1.0)
        between = ("--from", str(start), "--to", str(end), "--json")
        result = json.loads(isolated.run("./plantlog", "lab", "simulator", "compare", *between))
        assert {result[name] for name in ("duplicated", "invented", "altered", "missing_silent")} == {0}, result
        assert result["published"] > 0
        assert _NEWER in isolated.run("./plantlog", "--version")
