"""Bundles: what is taken from one, and which are refused, with nothing left."""

from __future__ import annotations

import hashlib
import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core import bundle
from core.bundle import FILE, KEY, LOCKS, MANIFEST, SIGNATURE, WHEELS, Target, extract
from core.errors import OperationError
from core.paths import CHECKOUT, plantlog_version

_CONTENT = {
    "wheels/one.whl": b"1" * 3000,
    "wheels/two.whl": b"2",
    "debian/pool/a/a.deb": b"a",
    **{lock: (CHECKOUT / lock).read_bytes() for lock in LOCKS},
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def made(
    path: Path,
    content: dict[str, bytes] = _CONTENT,
    key: Ed25519PrivateKey | None = None,
    signed: Callable[[bytes], bytes] = lambda text: text,
    **changes: Any,
) -> Path:
    """A bundle; ``changes``: of its manifest, ``signed``: what its signature is over."""
    members = {name: sha256(data) for name, data in _CONTENT.items()}
    manifest = {"plantlog": plantlog_version(), "targets": [asdict(Target.here())], "members": members, **changes}
    text = json.dumps(manifest).encode()
    signature = {} if key is None else {SIGNATURE: key.sign(signed(text))}
    with tarfile.open(path, "w:") as tar:
        for name, data in {MANIFEST: text, **signature, **content}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def refusal(path: Path, folder: str = WHEELS) -> str:
    """Why a bundle is refused, which leaves nothing."""
    with pytest.raises(OperationError) as refused:
        extract(path, folder, path.parent / "to")
    assert not (path.parent / "to").exists()
    assert str(path) in str(refused.value)
    return str(refused.value)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(KEY, raising=False)
    return tmp_path / "plantlog.bundle"


def test_folder_is_taken_whole(path: Path, tmp_path: Path) -> None:
    extract(made(path), WHEELS, tmp_path / "wheels")
    assert {file.name: file.read_bytes() for file in (tmp_path / "wheels").iterdir()} == {
        "one.whl": _CONTENT["wheels/one.whl"],
        "two.whl": b"2",
    }
    extract(path, "debian", tmp_path / "debian")
    assert (tmp_path / "debian" / "pool" / "a" / "a.deb").read_bytes() == b"a"


def test_folder_that_exists_stays_as_it_is(path: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(FileExistsError):
        extract(made(path), WHEELS, tmp_path)
    assert (tmp_path / "mine").exists()


def test_truncated_bundle_is_refused_wherever_it_ends(path: Path) -> None:
    whole = made(path).read_bytes()
    with tarfile.open(path) as tar:
        ends = {end for file in tar for end in (file.offset, file.offset_data, file.offset_data + file.size // 2)}
    for end in {*ends, 100}:
        path.write_bytes(whole[:end])
        assert "is damaged, or not of plantlog (" in refusal(path), end


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({**_CONTENT, "wheels/two.whl": b"3"}, "wheels/two.whl has another digest than in the manifest"),
        ({**_CONTENT, "wheels/three.whl": b"3"}, "wheels/three.whl is not in its manifest"),
        ({**_CONTENT, "../outside": b"3"}, "../outside is not in its manifest"),
        ({name: data for name, data in _CONTENT.items() if name != "wheels/one.whl"}, "it ends before wheels/one.whl"),
    ],
    ids=["changed", "added", "outside", "removed"],
)
def test_content_that_is_not_the_manifest_s_is_refused(path: Path, content: dict[str, bytes], reason: str) -> None:
    assert reason in refusal(made(path, content))


@pytest.mark.parametrize("name", ["../outside", "/outside", "wheels/../../outside"])
def test_member_that_leaves_the_folder_is_refused_even_if_the_manifest_has_it(path: Path, name: str) -> None:
    content = {**_CONTENT, name: b"x"}
    members = {name: sha256(data) for name, data in content.items()}
    assert f"{name} is not in its manifest" in refusal(made(path, content, members=members))


def test_link_is_refused(path: Path) -> None:
    made(path, {name: data for name, data in _CONTENT.items() if name != "wheels/two.whl"})
    with tarfile.open(path, "a:") as tar:
        member = tarfile.TarInfo("wheels/two.whl")
        member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(member)
    assert "wheels/two.whl is not in its manifest" in refusal(path)


@pytest.mark.parametrize(
    "changes", [{"members": None}, {"targets": [{"name": "x"}]}, {"members": {}}, {"targets": None}]
)
def test_manifest_of_another_form_is_refused(path: Path, changes: dict[str, Any]) -> None:
    assert "it does not begin with a manifest" in refusal(made(path, **changes))


def test_other_files_are_no_bundles(path: Path) -> None:
    for data in (b"", b"PK\3\4" + b"x" * 9000):
        path.write_bytes(data)
        assert "is damaged, or not of plantlog" in refusal(path)
    path.unlink()
    assert "can't be read: No such file or directory" in refusal(path)


def test_bundle_of_another_version_is_refused(path: Path) -> None:
    assert f"is for plantlog 0.9.0, and this is {plantlog_version()}" in refusal(made(path, plantlog="0.9.0"))


def test_bundle_of_other_locks_is_refused(path: Path) -> None:
    members = {name: sha256(data) for name, data in _CONTENT.items()} | {LOCKS[1]: sha256(b"")}
    assert "made with other lock files" in refusal(made(path, members=members))


def test_bundle_for_other_machines_is_refused(path: Path) -> None:
    other = replace(Target.here(), name="debian13-riscv64", architecture="riscv64")
    newer = replace(Target.here(), name="debian14-amd64", python="3.99")
    text = refusal(made(path, targets=[asdict(other), asdict(newer)]))
    assert (
        f"is for debian13-riscv64 (Python {other.python}), debian14-amd64 (Python 3.99), and this machine is " in text
    )
    extract(made(path, targets=[asdict(other), asdict(Target.here())]), WHEELS, path.parent / "to")


def pem(key: Any) -> bytes:
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))


def test_signature_is_verified_by_the_named_key(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    public = tmp_path / "public.pem"
    public.write_bytes(pem(key))
    monkeypatch.setenv(KEY, str(public))
    assert "is not signed" in refusal(made(path))
    assert "is signed by another key" in refusal(made(path, key=other))
    assert "or was changed since" in refusal(made(path, key=key, signed=lambda text: text + b" "))
    extract(made(path, key=key), WHEELS, tmp_path / "wheels")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no key", r"legal: the PEM file of a public key"),
        (pem(generate_private_key(SECP256R1())), "legal: Ed25519"),
        (None, "legal: the PEM file of a public key"),
    ],
)
def test_key_that_is_none_is_named(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, reason: str
) -> None:
    public = tmp_path / "public.pem"
    if content is not None:
        public.write_bytes(content)
    monkeypatch.setenv(KEY, str(public))
    with pytest.raises(OperationError, match=rf"{KEY}: found .*{public}.*{reason}"):
        extract(made(path), WHEELS, tmp_path / "to")


def test_bundle_in_use_is_the_named_one_or_the_one_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkout = tmp_path / "plantlog-1.0"
    monkeypatch.setattr(bundle, "CHECKOUT", checkout)
    monkeypatch.delenv(FILE, raising=False)
    assert bundle.in_use() is None
    (tmp_path / "plantlog-1.0.bundle").touch()
    assert bundle.in_use() == tmp_path / "plantlog-1.0.bundle"
    monkeypatch.setenv(FILE, "/media/other.bundle")
    assert bundle.in_use() == Path("/media/other.bundle")


def launched(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Command of the launcher, with nothing but the standard library."""
    command = [sys.executable, "-S", "-P", "-m", "core.bundle", str(tmp_path / "wheels")]
    environment = {"PYTHONPATH": str(CHECKOUT), **environment}
    return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_launcher_takes_wheels_with_the_standard_library(path: Path, tmp_path: Path) -> None:
    key = tmp_path / "public.pem"
    key.write_bytes(pem(Ed25519PrivateKey.generate()))
    # Their digests are in the lock files: the signature is verified once there are programs for it.
    done = launched(tmp_path, PLANTLOG_BUNDLE=str(made(path)), PLANTLOG_BUNDLE_KEY=str(key))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {file.name for file in (tmp_path / "wheels").iterdir()} == {"one.whl", "two.whl"}


def test_launcher_says_why_it_has_no_wheels(path: Path, tmp_path: Path) -> None:
    path.write_bytes(made(path).read_bytes()[:5000])
    for file, reason in ((path, "is damaged"), (tmp_path / "missing", "No such file or directory")):
        done = launched(tmp_path, PLANTLOG_BUNDLE=str(file))
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(rf"plantlog: .*{reason}.*\n", done.stderr)
        assert not (tmp_path / "wheels").exists()
