"""Makes a release (docs/releasing.md): first its commit, then its files from that, last the tag.

All of it happens in a worktree of git's below ``dist``, so that a run that fails or is killed leaves neither a commit
nor a tag, and no folder that looks like a release. Nothing is dated but by the commit: made again, the files are the
same.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from core.bundle import Target, digest
from core.errors import OperationError
from core.files import work_folder
from core.paths import CHECKOUT
from ops.bundle.make import signing_key, targets_of
from ops.packaging.build import NFPM, nfpm
from ops.postgres.packages import run
from ops.release.preconditions import CHANGELOG, PROJECT, git, is_released, sections

# What a reader without a network needs: the pages, and all that they link to.
_PAGES = ("README.md", CHANGELOG, "LICENSE", "NOTICE", "docs", "schema/README.md")
DOCUMENTATION = (*_PAGES, "dashboards/screenshots", "history/archive/spark.sql")
LOCKS = ("requirements-first.lock", "requirements.lock", "requirements-analysis.lock", "requirements-dev.lock")
SUMS, SIGNATURE = "SHA256SUMS", "SHA256SUMS.sig"


def make(version: str, key: Path, targets: str | None, progress: Callable[[str], None]) -> Path:
    """Make a release of the checked-out commit; its folder. Raises OperationError, OSError."""
    signer, today = signing_key(key), datetime.now(UTC).date()
    options = ("--key", str(key), *(("--for", targets) if targets else ()))
    names = [target.name for target in targets_of(targets)]
    folder = CHECKOUT / "dist" / f"plantlog-{version}"
    released = is_released(CHECKOUT, version, today)
    if folder.exists():
        raise OperationError(f"{folder} exists: remove it")
    with work_folder(folder) as work:
        checkout, content = work / "checkout", work / folder.name
        git(CHECKOUT, "worktree", "prune")  # that of a killed run
        git(CHECKOUT, "worktree", "add", "--quiet", "--detach", str(checkout))
        content.mkdir()
        if not released:
            progress(f"recording the database of {version} for tests of upgrades")
            _commit(checkout, version, str(today))
        _build(checkout, content, version, options, progress)
        (content / "provenance.json").write_text(json.dumps(_provenance(checkout, content, names, signer), indent=1))
        sign(content, signer)
        if not released:
            commit = git(checkout, "rev-parse", "HEAD")
            git(CHECKOUT, "tag", "--annotate", f"--message=plantlog {version}", f"v{version}", commit)
        content.rename(folder)
    git(CHECKOUT, "worktree", "prune")
    git(CHECKOUT, "merge", "--quiet", "--ff-only", f"v{version}")
    return folder


def sign(content: Path, signer: Ed25519PrivateKey) -> None:
    """Add the digests of all files, and a signature over them."""
    sums = "".join(f"{digest(path)}  {path.name}\n" for path in sorted(content.iterdir())).encode()
    (content / SUMS).write_bytes(sums)
    (content / SIGNATURE).write_bytes(signer.sign(sums))


def write_sbom(checkout: Path, file: Path) -> None:
    """Write what is installed, in CycloneDX's form. Raises OperationError."""
    locks = "cat requirements.lock requirements-first.lock"
    options = "--pyproject pyproject.toml --output-reproducible --output-format JSON"
    script = f'{locks} | "$0" -m cyclonedx_py requirements - {options} --output-file "$1"'
    run(["bash", "-eo", "pipefail", "-c", script, sys.executable, str(file)], cwd=checkout)


def _commit(checkout: Path, version: str, day: str) -> None:
    """Raises OperationError, OSError."""
    for name, old, new in (
        (PROJECT, r'^version = ".*"', f'version = "{version}"'),
        (CHANGELOG, r"^## \[Unreleased\]\n", f"## [Unreleased]\n\n## [{version}] - {day}\n"),
    ):
        text = (checkout / name).read_text(encoding="utf-8")
        (checkout / name).write_text(re.sub(old, new, text, count=1, flags=re.MULTILINE), encoding="utf-8")
    _run_python(checkout, "tests.releases")
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--no-verify", f"--message=Release {version}")


def _build(
    checkout: Path, content: Path, version: str, options: Sequence[str], progress: Callable[[str], None]
) -> None:
    """Raises OperationError, OSError."""
    stem = content / f"plantlog-{version}"
    [notes] = [section.text for section in sections(checkout) if section.version == version]
    (content / "release-notes.md").write_text(f"# plantlog {version}\n\n{notes}\n", encoding="utf-8")
    for file, paths in ((f"{stem}.tar.gz", ()), (f"{stem}-docs.tar.gz", DOCUMENTATION)):
        git(checkout, "-c", "tar.umask=0022", "archive", f"--prefix={stem.name}/", f"--output={file}", "HEAD", *paths)
    write_sbom(checkout, Path(f"{stem}.cdx.json"))
    nfpm(progress)  # here, as what packages are made by says nothing
    progress("making packages")
    for module in ("ops.packaging", "ops.packaging.wheel"):
        _run_python(checkout, module, str(content))
    progress("making the bundle")
    _run_python(checkout, "ops", "admin", "bundle", f"{stem}.bundle", *options)


def _run_python(checkout: Path, module: str, *arguments: str) -> None:
    """Run a module of the release, not of this checkout. Raises OperationError."""
    date = f"SOURCE_DATE_EPOCH={git(checkout, 'log', '-1', '--format=%ct')}"
    run(["env", f"PYTHONPATH={checkout}", date, sys.executable, "-P", "-m", module, *arguments], cwd=checkout)


def _provenance(checkout: Path, content: Path, names: Sequence[str], signer: Ed25519PrivateKey) -> dict[str, Any]:
    """Statement of in-toto (https://in-toto.io/Statement/v1) with the provenance of SLSA 1.0.

    It names no time but, by its commit, that of the release.
    """
    public = signer.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    module, nfpm_version = NFPM
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in sorted(content.iterdir())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:plantlog:ops.release:1",
                "externalParameters": {"for": list(names)},
                "resolvedDependencies": [
                    {"name": "plantlog", "digest": {"gitCommit": git(checkout, "rev-parse", "HEAD")}},
                    *({"name": lock, "digest": {"sha256": digest(checkout / lock)}} for lock in LOCKS),
                    {"uri": f"pkg:golang/{module}@{nfpm_version}"},
                ],
            },
            "runDetails": {
                "builder": {
                    "id": f"urn:sha256:{hashlib.sha256(public).hexdigest()}",  # of the public key, in DER
                    "version": {"python": platform.python_version(), "system": Target.here().name},
                }
            },
        },
    }
