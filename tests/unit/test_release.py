"""Contents of a release: its version, licences, changes and digests; what none can be made of."""

from __future__ import annotations

import hashlib
import re
import runpy
import shutil
import subprocess
import tomllib
from datetime import date
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from typer.testing import CliRunner

from core.errors import OperationError
from core.paths import CHECKOUT
from ops.cli.app import application
from ops.release.make import DOCUMENTATION, sign, write_sbom
from ops.release.preconditions import git, is_released, sections
from tests import docs
from tests.releases import releases

with (CHECKOUT / "pyproject.toml").open("rb") as _file:
    PROJECT = tomllib.load(_file)["project"]


def _text(name: str) -> str:
    return Path(CHECKOUT / name).read_text(encoding="utf-8")


def test_version_is_printed() -> None:
    text = CliRunner().invoke(application([]), ["--version"])
    assert (text.exit_code, text.output) == (0, f"plantlog {PROJECT['version']}\n")


def test_changelog_begins_with_this_version() -> None:
    sections = re.findall(r"^## (.+)$", _text("CHANGELOG.md"), re.MULTILINE)
    assert sections[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(PROJECT['version'])}\] - \d{{4}}-\d\d-\d\d", sections[1])
    kinds = set(re.findall(r"^### (.+)$", _text("CHANGELOG.md"), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_notice_names_every_installed_package() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in _text("LICENSE")
    made = runpy.run_path(str(CHECKOUT / ".ci" / "notice.py"))["notice"]()
    assert _text("NOTICE") == made, "run `.venv/bin/python .ci/notice.py > NOTICE`"


def test_database_of_each_release_is_recorded() -> None:
    recorded = [path.name.removesuffix(".tar.xz") for path in releases()]
    assert recorded == [section.version for section in reversed(sections(CHECKOUT)[1:])]


def test_documentation_has_what_it_links_to() -> None:
    wholes = [CHECKOUT / name for name in DOCUMENTATION]
    linked = {(page.parent / target).resolve() for page in docs.PAGES for target in docs.links(page)}
    assert len(linked) > 20, "the documentation is read wrongly"
    assert [path for path in linked if not any(path.is_relative_to(whole) for whole in wholes)] == []


@pytest.mark.gate
def test_sbom_is_valid(tmp_path: Path) -> None:
    write_sbom(CHECKOUT, tmp_path / "sbom")
    text = (tmp_path / "sbom").read_text()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    assert "pkg:pypi/asyncpg@" in text


TODAY = date(2026, 3, 1)
CHANGES = "# Changelog\n\n## [Unreleased]\n\n- A.\n\n## [1.9.0] - 2026-03-01\n\n- B.\n"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a version and a changelog."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test@localhost")
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "pyproject.toml").write_text('[project]\nversion = "1.9.0"\n')
    (folder / "CHANGELOG.md").write_text(CHANGES)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(checkout: Path) -> None:
    git(checkout, "add", "--all")
    git(checkout, "commit", "--quiet", "--allow-empty", "--message=Change")


@pytest.mark.parametrize("version", ["1.9.1", "1.10.0", "2.0.0"])
def test_newer_version_can_be_released(checkout: Path, version: str) -> None:
    assert not is_released(checkout, version, TODAY)


@pytest.mark.parametrize("version", ["1.9.0", "1.8.9", "0.10.0"])
def test_version_that_is_not_newer_is_refused(checkout: Path, version: str) -> None:
    with pytest.raises(OperationError, match=f"VERSION: found {version}; legal: one newer than 1.9.0"):
        is_released(checkout, version, TODAY)


@pytest.mark.parametrize("version", ["v2.0.0", "2.0", "2.0.0rc1", "02.0.0", "2.0.0\n", ""])
def test_version_that_is_none_is_refused(checkout: Path, version: str) -> None:
    with pytest.raises(OperationError, match=r"legal: three numbers, such as 1.1.0"):
        is_released(checkout, version, TODAY)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (CHANGES.replace("- A.\n", ""), r"found nothing below \[Unreleased\]"),
        (
            CHANGES.replace("2026-03-01", "2026-03-02"),
            "found 2026-03-02 as the date of .1.9.0.; legal: at most 2026-03-01",
        ),
        (CHANGES.replace(" - 2026-03-01", ""), "found None as the date"),
        (CHANGES.replace("1.9.0", "1.8.0"), r"found \['Unreleased', '1.8.0'\]; legal: .* and \[1.9.0\] follows"),
        (CHANGES.replace("## [Unreleased]\n", ""), r"legal: it begins with \[Unreleased\]"),
    ],
)
def test_changelog_that_has_no_release_is_refused(checkout: Path, changes: str, reason: str) -> None:
    (checkout / "CHANGELOG.md").write_text(changes)
    commit(checkout)
    with pytest.raises(OperationError, match=f"CHANGELOG.md: .*{reason}"):
        is_released(checkout, "2.0.0", TODAY)


def test_changes_that_are_not_committed_are_named(checkout: Path) -> None:
    (checkout / "new.py").touch()
    with pytest.raises(OperationError, match=r"differs from its commit: commit these, or remove them\n.*new.py"):
        is_released(checkout, "2.0.0", TODAY)


def test_tag_elsewhere_is_refused_and_here_is_the_same_release(checkout: Path) -> None:
    git(checkout, "tag", "--annotate", "--message=m", "v2.0.0")
    assert is_released(checkout, "2.0.0", TODAY)
    commit(checkout)
    with pytest.raises(OperationError, match=r"the tag v2.0.0 exists: check it out to make its files again"):
        is_released(checkout, "2.0.0", TODAY)


def test_all_that_is_missing_is_named_at_once(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("GIT_COMMITTER_NAME", "")
    with pytest.raises(OperationError) as refusal:
        is_released(checkout, "2.0.0", TODAY)
    assert [line.partition(":")[0] for line in str(refusal.value).splitlines()] == [
        "go is not installed", "apt-get is not installed", "dpkg-deb is not installed", "git does not know who commits",
    ]  # fmt: skip


def verified(folder: Path) -> tuple[int, str]:
    """Exit code and output of the commands of docs/releasing.md, in the folder of a release."""
    [block] = [block for block in docs.blocks("sh no_run") if "sha256sum --check" in block.text]
    run = subprocess.run(["bash", "-ec", block.text], cwd=folder, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def test_documented_commands_verify_a_release(tmp_path: Path) -> None:
    signer, other = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    for name in ("a.deb", "b.bundle"):
        (tmp_path / name).write_text(name)
    sign(tmp_path, signer)
    public, sums, form = tmp_path / "plantlog.pub", tmp_path / "SHA256SUMS", PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(signer.public_key().public_bytes(Encoding.PEM, form))
    assert verified(tmp_path) == (0, "Signature Verified Successfully\na.deb: OK\nb.bundle: OK\n")

    (tmp_path / "a.deb").write_text("another")
    code, output = verified(tmp_path)
    assert (code, "a.deb: FAILED" in output, "b.bundle: OK" in output) == (1, True, True), output

    text = sums.read_text()
    sums.write_text(text.replace(text[:64], hashlib.sha256(b"another").hexdigest()))
    assert verified(tmp_path) == (1, "Signature Verification Failure\n")

    sums.write_text(text)
    public.write_bytes(other.public_key().public_bytes(Encoding.PEM, form))
    assert verified(tmp_path) == (1, "Signature Verification Failure\n")
