"""``plantlog admin init``: everything is made once, and kept."""

from __future__ import annotations

import hashlib
import io
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from core.errors import OperationError
from core.paths import CHECKOUT
from ops.containers.init import init


def initialized(folder: Path) -> tuple[dict[str, str], str]:
    output = io.StringIO()
    init(folder, Console(file=output, width=200))
    files = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}
    return files, output.getvalue()


def test_second_init_only_adds_missing_files(tmp_path: Path) -> None:
    first, output = initialized(tmp_path)
    assert "created secrets/webhook_secret" in output
    assert "created .env: PLANTLOG_BIND" in output
    second, output = initialized(tmp_path)
    assert second == first
    assert "nothing to do; all files exist" in output
    (tmp_path / "secrets" / "webhook_secret").unlink()
    lines = first[".env"].replace("PLANTLOG_PUSH_PORT=8186", "PLANTLOG_PUSH_PORT=18186")
    (tmp_path / ".env").write_text(lines.replace("PLANTLOG_BIND=127.0.0.1\n", ""))
    third, output = initialized(tmp_path)
    assert [line for line in output.splitlines() if line.startswith("created")] == [
        "created secrets/webhook_secret",
        "created .env: PLANTLOG_BIND",
    ]
    assert "PLANTLOG_PUSH_PORT=18186\n" in third[".env"]
    assert third[".env"].endswith("PLANTLOG_BIND=127.0.0.1\n")
    assert {name: text for name, text in third.items() if name not in (".env", "secrets/webhook_secret")} == {
        name: text for name, text in first.items() if name not in (".env", "secrets/webhook_secret")
    }


def test_secrets_are_private_and_consistent(tmp_path: Path) -> None:
    files, _ = initialized(tmp_path)
    other, _ = initialized(tmp_path / "other")
    assert (tmp_path / "secrets").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600
    for name, text in files.items():
        if name.startswith("secrets/"):
            path = tmp_path / name
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.stat().st_uid == (10001 if os.geteuid() == 0 else os.getuid())
            assert other[name] != text or name in (
                "secrets/backup_key",
                "secrets/smtp_password",
            )  # nothing is a default, but what is empty
            # Not everybody takes a line end off.
            assert text == text.strip() or text.startswith("-----BEGIN ") or "tokens/" in name
    hashed = hashlib.sha256(files["secrets/telegraf_token"].encode()).hexdigest()
    assert files["secrets/tokens/telegraf"].startswith(f"sha256:{hashed} ")
    assert (tmp_path / "secrets" / "tokens").stat().st_mode & 0o777 == 0o700
    owner = urlsplit(files["secrets/owner_dsn"].strip())
    assert (owner.username, owner.hostname, owner.port, owner.path) == ("plantlog_owner", "database", 5432, "/plantlog")
    assert files["secrets/database_password"].strip() == owner.password
    assert files["secrets/plantlog_reader"].strip() == urlsplit(files["secrets/reader_dsn"].strip()).password
    passwords = [urlsplit(text.strip()).password for name, text in files.items() if name.endswith("_dsn")]
    assert len(set(passwords)) == len(passwords) == 4
    assert all(password and len(password) >= 32 for password in passwords)


def test_every_compose_variable_has_the_same_default_and_a_comment(tmp_path: Path) -> None:
    files, _ = initialized(tmp_path)
    variables = dict(re.findall(r"^(\w+)=(.*)$", files[".env"], re.M))
    assert len(re.findall(r"^# .+\n\w+=", files[".env"], re.M)) == len(variables)
    defaults_by_name: dict[str, set[str]] = {}
    text = "".join((CHECKOUT / name).read_text() for name in ("docker-compose.yml", "compose.observers.yml"))
    for name, default in re.findall(r"\$\{(\w+):-([^}]*)\}", text):
        defaults_by_name.setdefault(name, set()).add(default)
    assert all(len(defaults) == 1 for defaults in defaults_by_name.values())
    own = {"PLANTLOG_CA", "PLANTLOG_SECRETS", "PLANTLOG_UID", "PLANTLOG_GID"}  # are this machine's
    for name in ("PLANTLOG_BACKUP", "PLANTLOG_ARCHIVE"):
        assert (variables.pop(name), defaults_by_name[name]) == ("", {"/dev/null"})  # no folder
    for name, value in variables.items():
        if name not in own | {"COMPOSE_PROFILES"}:
            assert defaults_by_name[name] == {value}, name


@pytest.mark.parametrize("there", [True, False])
def test_images_are_built_with_the_certificates_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    """Compose refuses a secret whose file is missing, as Debian's is on RHEL."""
    bundle = tmp_path / "ca-bundle.crt"
    monkeypatch.setattr("ops.containers.init._TRUSTED", (str(tmp_path / "ca-certificates.crt"), str(bundle)))
    if there:
        bundle.touch()
    files, _ = initialized(tmp_path / "made")
    assert f"\nPLANTLOG_CA={bundle if there else '/dev/null'}\n" in files[".env"]


def test_env_file_without_final_newline_is_completed_correctly(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("PLANTLOG_BIND=0.0.0.0")
    with pytest.raises(OperationError, match="does not end with a newline"):
        initialized(tmp_path)
    assert (tmp_path / ".env").read_text() == "PLANTLOG_BIND=0.0.0.0"
