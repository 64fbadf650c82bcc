"""A bundle: one file with all that an installation otherwise downloads, for machines without a network.

It is a plain tar. Its first member, ``manifest.json``, has the SHA-256 of each other one, and ``manifest.sig`` behind
it is a signature over that, if somebody made one. ``wheels/`` is what the lock files pin; ``debian/`` is a part of a
mirror of Debian, with Debian's own signature. This module needs the standard library only: the launcher takes the
wheels by ``python -m core.bundle FOLDER`` when there is nothing else yet.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from core.errors import OperationError, PlantlogError
from core.paths import CHECKOUT, plantlog_version

FILE, KEY = "PLANTLOG_BUNDLE", "PLANTLOG_BUNDLE_KEY"
MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
WHEELS, DEBIAN = "wheels", "debian"
LOCKS = ("requirements-first.lock", "requirements.lock")
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}  # machine → Debian's name
_BLOCK = 1024**2


@dataclass(frozen=True, slots=True)
class Target:
    """Machines that a bundle is for: those of a system, such as ``debian12``, with its Python, of an architecture."""

    name: str
    python: str
    architecture: str

    @classmethod
    def here(cls) -> Target:
        """This machine, as it is with this Python."""
        release = platform.freedesktop_os_release()
        system = release.get("ID", "linux") + release.get("VERSION_ID", "").replace(".", "")
        machine = platform.machine()
        architecture = ARCHITECTURES.get(machine, machine)
        return cls(f"{system}-{architecture}", "{}.{}".format(*sys.version_info), architecture)


def digest(path: Path) -> str:
    """SHA-256 of a file, in hex. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def in_use() -> Path | None:
    """The bundle to install from: that of ``PLANTLOG_BUNDLE``, else CHECKOUT.bundle beside the checkout, if any."""
    if chosen := os.environ.get(FILE):
        return Path(chosen).absolute()
    beside = CHECKOUT.with_name(f"{CHECKOUT.name}.bundle")
    return beside if beside.exists() else None


def extract(bundle: Path, folder: str, to: Path) -> None:
    """Write the files below a folder of a bundle to ``to``, which is new: all, with the manifest's digests, or none.

    Raises OperationError where the bundle is damaged, is not signed as ``PLANTLOG_BUNDLE_KEY`` wants it, or is for
    another plantlog or machine; OSError.
    """
    try:
        file = bundle.open("rb")
    except OSError as error:
        raise OperationError(f"{bundle} can't be read: {error.strerror}") from error
    with file:
        to.mkdir()
        try:
            with tarfile.open(fileobj=file, mode="r:") as tar:
                manifest = _content(tar, MANIFEST)
                if key := os.environ.get(KEY):
                    _verify(bundle, Path(key), manifest, _content(tar, SIGNATURE))
                _extract(tar, _applicable(bundle, manifest), folder, to)
        except BaseException as error:
            shutil.rmtree(to)
            if isinstance(error, tarfile.TarError):
                raise OperationError(f"{bundle} is damaged, or not of plantlog ({error}): copy it again") from error
            if isinstance(error, OSError):  # that of a write names no file
                error.filename = error.filename or str(to)
            raise


def _content(tar: tarfile.TarFile, name: str) -> bytes:
    """Content of the next member, which has to be ``name``; empty if it is another one. Raises TarError."""
    member = tar.next()
    file = tar.extractfile(member) if member is not None and member.name == name else None
    return b"" if file is None else file.read()


def _verify(bundle: Path, key: Path, manifest: bytes, signature: bytes) -> None:
    """Raises OperationError where the manifest is not signed by a key."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_public_key  # noqa: PLC0415
    except ImportError:  # the launcher: wheels have the lock file's digests, and the rest is verified before its use
        return
    try:
        public = load_pem_public_key(key.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise OperationError(f"{KEY}: found {key} ({error}); legal: the PEM file of a public key") from error
    if not isinstance(public, Ed25519PublicKey):
        raise OperationError(f"{KEY}: found a key of another kind in {key}; legal: Ed25519")
    try:
        public.verify(signature, manifest)
    except InvalidSignature as error:
        reason = "is signed by another key, or was changed since" if signature else "is not signed"
        raise OperationError(f"{bundle} {reason}: {KEY} wants the key of {key}") from error


def _applicable(bundle: Path, manifest: bytes) -> dict[str, str]:
    """Digests of a bundle's members. Raises OperationError where it is not for this plantlog and machine; TarError."""
    try:
        content: dict[str, Any] = json.loads(manifest)
        made_with, members = str(content["plantlog"]), content["members"]
        digests = {str(name): str(text) for name, text in members.items()}
        targets = [Target(**target) for target in content["targets"]]
        locks = [digests[lock] for lock in LOCKS]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise tarfile.ReadError("it does not begin with a manifest") from error
    if made_with != plantlog_version():
        raise OperationError(
            f"{bundle} is for plantlog {made_with}, and this is {plantlog_version()}: make one with this one"
        )
    if locks != [digest(CHECKOUT / lock) for lock in LOCKS]:
        raise OperationError(f"{bundle} was made with other lock files of {made_with}: make one with this checkout")
    here = Target.here()
    if not any((target.python, target.architecture) == (here.python, here.architecture) for target in targets):
        names = ", ".join(f"{target.name} (Python {target.python})" for target in targets)
        raise OperationError(
            f"{bundle} is for {names}, and this machine is {here.name} with Python {here.python}: make one for it"
        )
    return digests


def _extract(tar: tarfile.TarFile, digests: dict[str, str], folder: str, to: Path) -> None:
    """Raises TarError where a member is missing, or is not as in the manifest; OSError."""
    missing = set(digests)
    for member in tar:
        if member.name in (MANIFEST, SIGNATURE):
            continue
        path = PurePosixPath(member.name)
        if member.name not in missing or not member.isreg() or path.is_absolute() or ".." in path.parts:
            raise tarfile.ReadError(f"{member.name} is not in its manifest")
        missing.remove(member.name)
        if path.parts[0] == folder and (source := tar.extractfile(member)) is not None:
            target = to.joinpath(*path.parts[1:])
            target.parent.mkdir(parents=True, exist_ok=True)
            sha256 = hashlib.sha256()
            with target.open("xb") as file:
                while block := source.read(_BLOCK):
                    sha256.update(block)
                    file.write(block)
            if sha256.hexdigest() != digests[member.name]:
                raise tarfile.ReadError(f"{member.name} has another digest than in the manifest")
    if missing:
        raise tarfile.ReadError(f"it ends before {min(missing)}")


if __name__ == "__main__":
    used, wheels = in_use(), Path(sys.argv[1])
    try:
        if used is not None:
            extract(used, WHEELS, wheels)
    except (PlantlogError, OSError) as problem:
        sys.exit(f"plantlog: {problem}")
