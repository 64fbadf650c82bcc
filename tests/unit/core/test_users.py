"""Users: who there is, what a password has to be, and that an engineer is always left."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from core.errors import OperationError
from core.paths import State
from core.users import passwords
from core.users.directory import UserDirectory, closed_viewer
from ops.backup import state_files
from tests.command import run
from tests.users import PASSWORD, add_users, hash_quickly, password_hash


def test_first_user_must_be_an_engineer(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="first user must be an engineer"):
        add_users(tmp_path, otto="operator")
    assert UserDirectory(tmp_path).users() == {}
    users = add_users(tmp_path, anna="engineer", otto="operator")
    assert {name: user.role for name, user in users.users().items()} == {"anna": "engineer", "otto": "operator"}
    assert stat.S_IMODE((tmp_path / "users.json").stat().st_mode) == 0o600


@pytest.mark.parametrize("change", [{"role": "auditor"}, {"enabled": False}], ids=str)
def test_last_engineer_stays(tmp_path: Path, change: dict[str, object]) -> None:
    users = add_users(tmp_path, anna="engineer", otto="operator", emil="engineer")
    assert users.change("emil", enabled=False)
    assert not users.change("emil", enabled=False)
    before = (tmp_path / "users.json").read_bytes()
    with pytest.raises(OperationError, match="anna is the last engineer who can log in"):
        users.change("anna", **change)
    assert (tmp_path / "users.json").read_bytes() == before
    users.change("otto", role="engineer")
    assert users.change("anna", **change)
    users.change("emil", enabled=True)


def test_a_change_is_seen_by_who_has_read_before(tmp_path: Path) -> None:
    reader = UserDirectory(tmp_path)
    assert reader.users() == {}
    users = add_users(tmp_path, anna="engineer")
    assert reader.users()["anna"].enabled
    add_users(tmp_path, emil="engineer")
    users.change("anna", enabled=False)
    assert not reader.users()["anna"].enabled


def test_two_who_add_users_at_once_lose_none(tmp_path: Path) -> None:
    add_users(tmp_path, anna="engineer")
    password_hash()
    threads = [threading.Thread(target=add_users, args=(tmp_path,), kwargs={f"u{n}": "viewer"}) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(UserDirectory(tmp_path).users()) == 9


@pytest.mark.parametrize("name", ["root", "", "1st", "a b", "ä", "a/b", "a\n", "x" * 65])
def test_name_must_be_one_of_an_account(tmp_path: Path, name: str) -> None:
    with pytest.raises(OperationError, match="legal: at most 64 letters"):
        UserDirectory(tmp_path).add(name, "engineer", password_hash())


@pytest.mark.parametrize(
    "content", ["", "[]", "{", '{"anna": {}}', '{"anna": null}', '{"anna": {"role": "king"}}', "\udcff"]
)
def test_damaged_file_lets_nobody_in(tmp_path: Path, content: str) -> None:
    (tmp_path / "users.json").write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(OperationError, match=r"users\.json can't be read: .*\. Restore it from a backup"):
        UserDirectory(tmp_path).users()


def test_file_of_another_version_lets_nobody_in(tmp_path: Path) -> None:
    add_users(tmp_path, anna="engineer")
    path = tmp_path / "users.json"
    users = json.loads(path.read_text())
    for field, value in (("role", "king"), ("enabled", 1), ("password", None), ("shoe_size", 38)):
        path.write_text(json.dumps({"anna": {**users["anna"], field: value}}))
        with pytest.raises(OperationError, match="can't be read"):
            UserDirectory(tmp_path).users()


@pytest.mark.parametrize(
    ("password", "wrong"),
    [
        ("eleven char", "11 characters"),
        ("x" * 300, "300 characters"),
        ("abababababababab", "2 different characters"),
        ("I am Annabelle.", "the user's name"),
    ],
)
def test_weak_password_is_refused(password: str, wrong: str) -> None:
    with pytest.raises(OperationError) as caught:
        passwords.hashed("annabelle", password)
    assert str(caught.value) == f"password: found {wrong}{' in it' * ('name' in wrong)}; legal: {passwords.LEGAL}"


def test_password_is_hashed_with_argon2id() -> None:
    stored = passwords.hashed("anna", "Zwölf Zeichen")
    assert stored.startswith("$argon2id$v=19$m=65536,t=3,p=4$")
    assert passwords.matches(stored, "Zwölf Zeichen")  # o and two dots
    assert not passwords.matches(stored, "Zwölf zeichen")
    assert not passwords.matches(stored, "\ud83d")
    assert not passwords.matches("damaged", "Zwölf Zeichen")
    assert not passwords.matches(None, "")


def test_viewer_beyond_loopback_needs_users(tmp_path: Path) -> None:
    assert closed_viewer("127.0.0.1", {}) is None
    assert "plantlog user add NAME --role engineer" in (closed_viewer("0.0.0.0", {}) or "")
    assert closed_viewer("0.0.0.0", add_users(tmp_path, anna="engineer").users()) is None


def test_commands_change_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hash_quickly(monkeypatch)
    state, file = tmp_path / "state", tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    wrong = run(state, "user", "add", "otto", "--role", "boss", "--password-file", file)
    assert (wrong.code, wrong.err) == (
        1, "plantlog: role: found 'boss'; legal: viewer, operator, engineer, auditor\n",
    )  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.StringIO())
    nobody = run(state, "user", "add", "anna", "--role", "engineer")
    assert (
        nobody.err == "plantlog: there is no terminal to ask for a password; use --password-file, or standard input\n"
    )
    for name, role in (("anna", "engineer"), ("otto", "viewer")):
        assert run(state, "user", "add", name, "--role", role, "--password-file", file).code == 0
    assert run(state, "user", "role", "otto", "operator").out == "otto has the role operator\n"
    assert run(state, "user", "disable", "otto").out == "otto is disabled\n"
    assert run(state, "user", "disable", "otto").out == "otto is disabled already\n"
    locked_out = run(state, "user", "disable", "anna")
    assert locked_out.code == 1
    assert locked_out.err.startswith(
        "plantlog: anna is the last engineer who can log in: make another user an engineer"
    )
    file.write_text("another password\n")
    assert run(state, "user", "password", "anna", "--password-file", file).code == 0
    users = UserDirectory(state).users()
    assert passwords.matches(users["anna"].password, "another password")
    assert (users["otto"].role, users["otto"].enabled) == ("operator", False)
    listed = run(state, "user", "list").out.splitlines()
    assert [line.split()[:3] for line in listed[1:]] == [["anna", "engineer", "yes"], ["otto", "operator", "no"]]
    assert run(state, "user", "enable", "nobody").err == "plantlog: there is no user nobody; known: anna, otto\n"


@pytest.mark.parametrize("filters", [True, False])  # Python 3.11.2 of Debian 12 has none
def test_backup_has_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, filters: bool) -> None:
    if not filters:
        monkeypatch.delattr(tarfile, "data_filter")
    state = State(tmp_path / "state")
    state.claim()
    state.installation.write_text("f5e6f2c4-7f38-4ba1-8a2c-0a2b4d7c8e11\n")
    users = add_users(state.root, anna="engineer").users()
    state_files.pack(state, tmp_path / "packed")
    restored = State(tmp_path / "restored")
    restored.claim()
    state_files.unpack(tmp_path / "packed", restored, configuration=True)
    assert UserDirectory(restored.root).users() == users
    assert stat.S_IMODE((restored.root / "users.json").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
def test_file_made_by_root_belongs_to_the_owner_of_the_state_folder() -> None:
    with TemporaryDirectory() as folder:  # the owner cannot reach those of pytest
        state = Path(folder)
        os.chown(state, 12345, 12346)
        add_users(state, anna="engineer")
        status = (state / "users.json").stat()
        assert (status.st_uid, status.st_gid) == (12345, 12346)
        (state / "plantlog-state").touch()
        assert run(state, "user", "disable", "nobody").code == 1
        spool = [path for path in (state / "spool").iterdir() if path.name.startswith("audit.sqlite")]
        assert len(spool) > 2
        assert {path.stat().st_uid for path in spool} == {12345}  # of the writer, which takes what it has
        assert (os.geteuid(), os.getegid()) == (0, 0)
