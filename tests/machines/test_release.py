"""A release of the checked-out commit: killed, made, verified, and made again, the same to the byte."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from core.bundle import Target, digest
from core.paths import CHECKOUT
from ops.postgres.packages import run
from ops.release.preconditions import git
from tests import docs
from tests.unit.test_release import verified
from tests.waiting import until_sync

VERSION = "999.0.0"
MADE_IN = 1_500  # s: where much else runs, and registry and mirror are far


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A clone, whose commits and tags are not ours. Its changelog has something to release."""
    if shutil.which("go") is None or shutil.which("apt-get") is None:
        pytest.skip("a release requires apt, and Go to build nfpm")
    folder = tmp_path / "clone"
    git(CHECKOUT, "clone", "--quiet", "--shared", str(CHECKOUT), str(folder))
    git(folder, "config", "user.name", "test")
    git(folder, "config", "user.email", "test@localhost")
    changelog = (folder / "CHANGELOG.md").read_text()
    (folder / "CHANGELOG.md").write_text(changelog.replace("[Unreleased]\n", "[Unreleased]\n\n- The test's.\n", 1))
    git(folder, "commit", "--quiet", "--all", "--message=Change")
    for name in ("plantlog", "other"):
        key, public = tmp_path / f"{name}.key", tmp_path / f"{name}.pub"
        run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(key)])
        run(["openssl", "pkey", "-in", str(key), "-pubout", "-out", str(public)])
    return folder


def command(checkout: Path) -> tuple[list[str], dict[str, str]]:
    """The command of docs/releasing.md, with its environment."""
    key = str(checkout.with_name("plantlog.key"))
    words = [sys.executable, "-P", "-m", "ops.release", VERSION, "--key", key]
    return words, {**os.environ, "PYTHONPATH": str(checkout)}


def released(checkout: Path, code: int = 0) -> str:
    """Last line of the command."""
    words, environment = command(checkout)
    run = subprocess.run(
        words, cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=MADE_IN
    )  # fmt: skip
    assert run.returncode == code, run.stdout + run.stderr
    return (run.stdout + run.stderr).splitlines()[-1]


def state(checkout: Path) -> tuple[str, str, str]:
    """State of a checkout that a release changes last: commit, files, tags."""
    return git(checkout, "rev-parse", "HEAD"), git(checkout, "status", "--porcelain"), git(checkout, "tag")


def kill_midway(checkout: Path) -> None:
    """Start the command, and kill it when the first file is there."""
    words, environment = command(checkout)
    with subprocess.Popen(words, cwd="/", env=environment) as killed:
        try:
            until_sync(
                lambda: [*(checkout / "dist").glob(f".*/plantlog-{VERSION}/*.tar.gz")] or killed.poll() is not None,
                MADE_IN,
            )
        finally:
            killed.kill()
    assert killed.returncode == -signal.SIGKILL


def check_provenance(checkout: Path, folder: Path) -> dict[str, str]:
    """Compare the statement with the files and the commit; the digests of all files."""
    statement = json.loads((folder / "provenance.json").read_text())
    digests = {path.name: digest(path) for path in folder.iterdir()}
    subjects = {subject["name"]: subject["digest"]["sha256"] for subject in statement["subject"]}
    assert subjects.items() < digests.items()
    assert digests.keys() - subjects.keys() == {"provenance.json", "SHA256SUMS", "SHA256SUMS.sig"}
    commit, lock, *_ = statement["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert commit["digest"]["gitCommit"] == git(checkout, "rev-parse", "HEAD")
    assert lock["digest"]["sha256"] == digest(CHECKOUT / lock["name"])
    return digests


@pytest.mark.timeout(3 * MADE_IN)
def test_release_from_a_kill_to_its_repetition(checkout: Path, tmp_path: Path) -> None:
    before, dist = state(checkout), checkout / "dist"
    kill_midway(checkout)
    assert state(checkout) == before
    assert [path.name for path in dist.iterdir()] == [f".plantlog-{VERSION}.partial"]

    folder = dist / f"plantlog-{VERSION}"
    assert released(checkout) == str(folder)
    assert [*dist.iterdir()] == [folder]
    assert git(checkout, "rev-parse", "HEAD^") == before[0]
    assert git(checkout, "rev-parse", f"v{VERSION}^{{commit}}") == git(checkout, "rev-parse", "HEAD")
    assert git(checkout, "worktree", "list").count("\n") == 0
    changed = git(checkout, "diff", "--name-only", "HEAD^").splitlines()
    recorded = f"tests/integration/releases/{VERSION}.tar.xz"
    assert {"CHANGELOG.md", "pyproject.toml", recorded} <= {*changed} <= {
        *("CHANGELOG.md", "pyproject.toml", recorded, "tests/integration/releases/next.sql")
    }  # fmt: skip
    documented = docs.names(CHECKOUT / "docs" / "releasing.md", "Make a release")
    here = {"1.1.0": VERSION, "amd64": Target.here().architecture, "x86_64": platform.machine()}
    files = {re.sub("|".join(here), lambda part: here[part[0]], name) for name in documented}
    assert {path.name for path in folder.iterdir()} == files

    digests = check_provenance(checkout, folder)
    assert "- The test's." in (folder / "release-notes.md").read_text()
    with tarfile.open(folder / f"plantlog-{VERSION}.tar.gz") as source:
        source.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 of Debian 12 has none
        source.extractall(tmp_path)
    assert f'version = "{VERSION}"' in (tmp_path / f"plantlog-{VERSION}" / "pyproject.toml").read_text()

    shutil.copy(tmp_path / "plantlog.pub", folder)
    code, output = verified(folder)
    assert (code, output.count(": OK\n")) == (0, len(digests) - 2), output
    with (folder / f"plantlog-{VERSION}.bundle").open("r+b") as file:
        file.seek(1 << 20)
        byte = file.read(1)
        file.seek(1 << 20)
        file.write(bytes([byte[0] ^ 1]))
    code, output = verified(folder)
    assert (code, output.count(": OK\n")) == (1, len(digests) - 3), output
    assert f"plantlog-{VERSION}.bundle: FAILED" in output
    shutil.copy(tmp_path / "other.pub", folder / "plantlog.pub")
    assert verified(folder) == (1, "Signature Verification Failure\n")

    folder.rename(tmp_path / "first")
    released(checkout)
    assert {path.name: digest(path) for path in folder.iterdir()} == digests
    assert released(checkout, code=1) == f"ops.release: {folder} exists: remove it"
