"""Make a bundle (``core/bundle.py``): wheels from pip's registry, packages from a mirror of Debian, licences, an SBOM.

Both are downloaded for machines that need not be this one: pip and apt are told their Python and architecture.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.bundle import ARCHITECTURES, DEBIAN, LOCKS, MANIFEST, SIGNATURE, WHEELS, Target, digest
from core.errors import OperationError
from core.files import atomic_path, fault, work_folder
from core.paths import CHECKOUT, plantlog_version
from core.sealing_key import load_private_key
from ops.postgres import packages
from ops.postgres.binaries import PACKAGES

PYTHONS = {"debian12": "3.11", "debian13": "3.13", "ubuntu2404": "3.12"}
_SBOM = "sbom.cdx.json"
_GLIBC = 36  # minor version, of Debian 12: the oldest of these systems
# https://packaging.python.org/en/latest/specifications/platform-compatibility-tags/#manylinux
_MANYLINUX = (*(f"manylinux_2_{minor}" for minor in range(5, _GLIBC + 1)), "manylinux2010", "manylinux2014")


def targets_of(names: str | None) -> list[Target]:
    """Targets of a list with commas, such as ``debian12-amd64,debian13-arm64``; of none: this machine.

    Raises OperationError.
    """
    if names is None:
        here = Target.here()
        if here.architecture not in ARCHITECTURES.values():
            raise OperationError(f"this machine is {here.architecture}; packages and wheels are for amd64 and arm64")
        return [here]
    targets = []
    for name in names.split(","):
        system, _, architecture = name.strip().partition("-")
        if system not in PYTHONS or architecture not in ARCHITECTURES.values():
            raise OperationError(
                f"--for: found {name!r}; legal: {', '.join(PYTHONS)}, each with -amd64 or -arm64, with commas between"
            )
        targets.append(Target(name.strip(), PYTHONS[system], architecture))
    return targets


def make(bundle: Path, targets: Sequence[Target], key: Path | None, progress: Callable[[str], None]) -> str:
    """Make a bundle, whole or not at all; its SHA-256. Raises OperationError."""
    signer = None if key is None else signing_key(key)
    try:
        with work_folder(bundle) as folder:
            if bundle.exists():
                raise OperationError(f"{bundle} exists: remove it, or name another file")
            content = folder / "content"
            _collect(content, targets, folder, progress)
            members = {str(path.relative_to(content)): path for path in sorted(content.rglob("*")) if path.is_file()}
            now = datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH") or time.time()), UTC)
            manifest = {
                "plantlog": plantlog_version(),
                "created": now.isoformat(timespec="seconds"),
                "targets": [asdict(target) for target in targets],
                "members": {name: digest(path) for name, path in members.items()},
            }
            text = json.dumps(manifest, indent=1).encode()
            progress(f"writing {bundle}")
            with atomic_path(bundle) as partial, tarfile.open(partial, "w:") as tar:
                _add(tar, MANIFEST, text, now)
                if signer is not None:
                    _add(tar, SIGNATURE, signer.sign(text), now)
                for name, path in members.items():
                    _add(tar, name, path, now)
        return digest(bundle)
    except OSError as error:
        raise OperationError(f"{bundle} can't be written: {error.strerror}: {error.filename}") from error


def signing_key(key: Path) -> Ed25519PrivateKey:
    """The private key in a file. Raises OperationError where that is none of Ed25519."""
    try:
        return load_private_key(key)
    except OSError as error:
        raise OperationError(f"--key: found {key}: {fault(error)}; legal: the PEM file of a private key") from error
    except ValueError as error:
        raise OperationError(f"--key: {error}; legal: an Ed25519 key") from error


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path, made_at: datetime) -> None:
    member = tarfile.TarInfo(name)
    member.mtime = int(made_at.timestamp())
    if isinstance(content, bytes):
        member.size = len(content)
        tar.addfile(member, BytesIO(content))
    else:
        member.size = content.stat().st_size
        with content.open("rb") as file:
            tar.addfile(member, file)


def _collect(content: Path, targets: Sequence[Target], work: Path, progress: Callable[[str], None]) -> None:
    """All members but the manifest. Raises OperationError, OSError."""
    content.mkdir()
    for target in targets:
        progress(f"downloading wheels for {target.name}, with Python {target.python}")
        _download_wheels(target, content / WHEELS)
    for architecture in sorted({target.architecture for target in targets}):
        progress(f"downloading packages of Debian for {architecture}")
        apt = work / architecture
        apt.mkdir()
        packages.copy_mirror(PACKAGES, architecture, apt, content / DEBIAN)
    for name in (*LOCKS, "LICENSE", "NOTICE"):
        shutil.copyfile(CHECKOUT / name, content / name)
    (content / _SBOM).write_text(json.dumps(_sbom(content), indent=1))


def _download_wheels(target: Target, folder: Path) -> None:
    [machine] = (machine for machine, architecture in ARCHITECTURES.items() if architecture == target.architecture)
    platforms = [option for tag in _MANYLINUX for option in ("--platform", f"{tag}_{machine}")]
    python = ("--python-version", target.python, "--implementation", "cp")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check")
    locks = [option for lock in LOCKS for option in ("--requirement", str(CHECKOUT / lock))]
    checked = ("--require-hashes", "--only-binary", ":all:", "--no-deps")  # the locks have what others depend on
    packages.run([*pip, *checked, *python, *platforms, "--dest", str(folder), *locks])


def _sbom(content: Path) -> dict[str, Any]:
    """Contents of a bundle, in CycloneDX's form (https://cyclonedx.org/docs/1.6/json/)."""
    table = (CHECKOUT / "NOTICE").read_text().rpartition("\n\n")[2]
    licences = dict(line.split(maxsplit=1) for line in table.splitlines())
    components = [
        *(_wheel(path, licences) for path in (content / WHEELS).iterdir()),
        *(_package(path) for path in (content / DEBIAN).rglob("*.deb")),
    ]
    components.sort(key=lambda component: str(component["bom-ref"]))
    plantlog = {"type": "application", "name": "plantlog", "version": plantlog_version(), "bom-ref": "plantlog"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**plantlog, "licenses": [{"license": {"id": "Apache-2.0"}}]}},
        "components": components,
    }


def _wheel(path: Path, licences: dict[str, str]) -> dict[str, Any]:
    name, release, *_ = path.name.split("-")
    name = name.lower().replace("_", "-").replace(".", "-")
    return {
        **_component(f"{WHEELS}/{path.name}", path, name, release),
        "purl": f"pkg:pypi/{name}@{release}?file_name={path.name}",
        "licenses": [{"license": {"name": licences[name]}}],
    }


def _package(path: Path) -> dict[str, Any]:
    form = "${Package} ${Version} ${Architecture}"
    name, release, architecture = packages.run(["dpkg-deb", "--show", f"--showformat={form}", str(path)]).split()
    return {
        **_component(f"{DEBIAN}/{path.name}", path, name, release),
        "purl": f"pkg:deb/debian/{quote(name)}@{quote(release)}?arch={architecture}&distro={packages.RELEASE}",
    }


def _component(reference: str, path: Path, name: str, release: str) -> dict[str, Any]:
    hashes = [{"alg": "SHA-256", "content": digest(path)}]
    return {"type": "library", "bom-ref": reference, "name": name, "version": release, "hashes": hashes}
