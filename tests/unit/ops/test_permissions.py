"""Roles of each command, and its record in the audit trail."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import typer

from core.paths import CHECKOUT, State
from core.users.directory import ROLES, Role, UserDirectory
from ops.cli.permissions import _BENCHMARKS, COMMANDS, OWN_COMMANDS, _permitted, account
from tests.command import CommandResult, run
from tests.unit.test_docs import ALL
from tests.users import add_users, hash_quickly, password_hash, recorded_actions

RUNNABLE = {
    " ".join(path)
    for path, command in ALL.items()
    if path and (not hasattr(command, "commands") or command.invoke_without_command)
}
NO_DATABASE = "has no database yet: run `plantlog up`"


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder with a user of each role."""
    hash_quickly(monkeypatch)
    folder = tmp_path / "state"
    State(folder).claim()
    add_users(folder, anna="engineer", otto="operator", vera="viewer", udo="auditor")
    return folder


def run_as(user: str, state: Path, *words: object) -> CommandResult:
    """A command by sudo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUDO_USER", user)
        return run(state, *words)


def test_every_command_says_who_may_run_it() -> None:
    listed = {re.split(" -| [A-Z]", command)[0] for command in COMMANDS}
    assert {command for command in RUNNABLE if not command.startswith(_BENCHMARKS)} == listed


def test_documentation_lists_who_may_run_what() -> None:
    text = (CHECKOUT / "docs" / "access.md").read_text()
    table = text.partition("| Role | Commands |\n|---|---|\n")[2].partition("\n\n")[0]
    documented: dict[str, set[str]] = {}
    for line in table.splitlines():
        _, roles, listed, _ = line.split("|")
        commands = re.findall("`([^`]+)`", listed)
        documented[roles.strip()] = set(commands)
        assert len(documented[roles.strip()]) == len(commands)
    names: dict[frozenset[Role] | None, str] = {None: "machines, engineer", frozenset(ROLES): "every role"}
    right: dict[str, set[str]] = {}
    for command, allowed in COMMANDS.items():
        name = names.get(allowed) or ", ".join(role for role in ROLES if role in (allowed or ()))
        right.setdefault(name, set()).add(command)
    right["every role"] |= OWN_COMMANDS
    right["machines, engineer"].add(_BENCHMARKS.strip())
    assert documented == right


@pytest.mark.parametrize(
    ("command", "roles"),
    [
        (("ask", "timeline", "--from", "1h"), {"engineer", "operator", "viewer", "auditor"}),
        (("alarms", "ack", "a/b"), {"engineer", "operator"}),
        (("evidence", "verify"), {"auditor"}),
        (("config", "rename", "a", "b"), {"engineer"}),
        (("evidence", "seal"), {"engineer"}),
        (("evidence", "seal", "--public-key"), {"engineer", "operator", "viewer", "auditor"}),
        (("evidence", "seal", "--public-key", "--rotate-key"), {"engineer"}),
        (("evidence", "seal", "2026-03-09", "--public-key"), {"engineer"}),
        (("psql", "-c", "SELECT 1"), {"engineer", "operator", "viewer", "auditor"}),
        (("psql", "--command=SELECT 1", "-c", "SELECT '\\! id'"), {"engineer", "operator", "viewer", "auditor"}),
        (("psql",), {"engineer"}),
        (("psql", "-c", "\\! id"), {"engineer"}),
        (("psql", "-c", "SELECT 1", "-c", "\\copy event to x"), {"engineer"}),
        (("psql", "-c", "SELECT 1", "-f", "x"), {"engineer"}),
        (("psql", "-oid", "-c", "SELECT 1"), {"engineer"}),
        (("psql", "-c"), {"engineer"}),
        (("psql", "--comm=\\! id"), {"engineer"}),
        (("psql", "-c=SELECT 1"), {"engineer"}),
        (("psql", "-Xc", "\\! id"), {"engineer"}),
        (("psql", "-v", "x=1", "-c", "SELECT 1"), {"engineer"}),
        (("config", "log"), {"engineer", "operator", "viewer", "auditor"}),
        (("config", "show", "1", "plant.toml"), {"engineer"}),
        (("config", "diff", "1"), {"engineer"}),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_role_decides(state: Path, command: tuple[str, ...], roles: set[Role]) -> None:
    for user, role in (("anna", "engineer"), ("otto", "operator"), ("vera", "viewer"), ("udo", "auditor")):
        done = run_as(user, state, *command)
        refused = f"plantlog: user {user} has the role {role}; legal for `plantlog {' '.join(command[:1])}"
        assert (done.code, done.err.startswith(refused)) == (1, role not in roles), done.err
        assert role not in roles or NO_DATABASE in done.err or "no collector is running" in done.err


@pytest.mark.parametrize(
    "command",
    [
        ("config", "check", "secrets/seal.key"),
        ("source", "token", "list", "--config", "secrets/seal.key"),
        ("source", "token", "list", "press", "--config", "secrets/seal.key"),
        ("admin", "prepare"),
        ("admin", "init"),
        ("test", "x.py"),
        ("lab", "bench", "day"),
        ("admin", "backup", "rehearse"),
    ],
    ids=" ".join,
)
def test_by_sudo_only_engineers_name_files_and_do_what_machines_do(state: Path, command: tuple[str, ...]) -> None:
    for user, role in (("otto", "operator"), ("vera", "viewer"), ("udo", "auditor")):
        done = run_as(user, state, *command)
        assert done.err.startswith(f"plantlog: user {user} has the role {role}; legal for `plantlog {command[0]}"), done
        assert done.err.endswith(": engineer\n")
    assert [event.detail["outcome"] for event in recorded_actions(state)] == ["refused"] * 3
    assert run_as("nobody", state, *command).err.startswith("plantlog: nobody is not a user of plantlog")


def test_machines_are_let_in(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(state))
    monkeypatch.delenv("SUDO_USER", raising=False)
    for damaged in (False, True):
        if damaged:
            (state / "users.json").write_text("damaged")
        with _permitted("admin service run", dict):
            pass
    assert recorded_actions(state) == []


def test_sql_of_psql_is_recorded(state: Path) -> None:
    assert NO_DATABASE in run_as("vera", state, "psql", "-c", "SELECT 1").err
    assert [event.text for event in recorded_actions(state)] == [
        "vera: psql -c arguments=-c SELECT 1: begun",
        f"vera: psql -c arguments=-c SELECT 1: failed: {state} {NO_DATABASE}",
    ]


def test_own_password_is_changed_by_every_enabled_user(state: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a long enough one\n")
    option = ("--password-file", tmp_path / "password")
    for user in ("anna", "otto", "vera", "udo"):
        assert run_as(user, state, "user", "password", user, *option).out == f"{user} has a new password\n"
    assert run_as("anna", state, "user", "password", "otto", *option).code == 0
    assert run_as("otto", state, "user", "password", "vera", *option).err == (
        "plantlog: user otto has the role operator; legal for `plantlog user password`: engineer\n"
    )
    add_users(state).change("otto", enabled=False)
    assert run_as("otto", state, "user", "password", "otto", *option).err.startswith("plantlog: user otto is disabled")
    assert UserDirectory(state).users()["otto"].password != password_hash()
    ended = [event for event in recorded_actions(state) if event.detail["outcome"] != "begun"]
    assert [(event.detail["user"], event.detail["arguments"]["name"], event.detail["outcome"]) for event in ended] == [
        *((user, user, "done") for user in ("anna", "otto", "vera", "udo")),
        ("anna", "otto", "done"), ("otto", "vera", "refused"), ("otto", "otto", "refused"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "option", "words"),
    [
        ("sql", "--table=secrets=x.csv", ("SELECT 1",)),
        ("sql", "--output=users.csv", ("SELECT 1",)),
        ("ask", "--output=users.csv", ("timeline", "--from", "1h")),
        ("ask", "--plot=logo.svg", ("timeline", "--from", "1h")),
    ],
)
def test_files_of_questions_are_for_engineers(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, option: str, words: Sequence[str]
) -> None:
    """The command may run with the rights of the folder's owner, who can read and replace any file there."""
    monkeypatch.chdir(tmp_path)
    entry = f"{command} {option.partition('=')[0]}"
    assert run_as("vera", state, command, option, *words).err == (
        f"plantlog: user vera has the role viewer; legal for `plantlog {entry}`: engineer\n"
    )
    assert "has the role" not in run_as("anna", state, command, option, *words).err
    outcomes = [(event.detail["action"], event.detail["outcome"]) for event in recorded_actions(state)]
    assert outcomes[:2] == [(entry, "refused"), (entry, "begun")]


def test_paths_are_not_for_every_role() -> None:
    for command in RUNNABLE:
        if COMMANDS.get(command) == frozenset(ROLES):
            for parameter in ALL[tuple(command.split())].params:
                if parameter.type_descriptor.annotation is Path:
                    entries = {f"{command} {name}" for name in (*parameter.opts, parameter.metavar)}
                    assert {COMMANDS.get(entry) for entry in entries} - {None} == {frozenset({"engineer"})}, entries


def test_who_is_no_user_or_disabled_may_nothing(state: Path) -> None:
    add_users(state, eva="engineer").change("eva", enabled=False)
    assert run_as("eva", state, "config", "rename", "a", "b").err.startswith("plantlog: user eva is disabled")
    stranger = run_as("nobody", state, "status", "--once")
    assert (stranger.code, stranger.out) == (1, "")
    assert stranger.err.startswith("plantlog: nobody is not a user of plantlog: an engineer, or root, can add it")
    assert [event.detail["outcome"] for event in recorded_actions(state)] == ["refused", "refused"]


def test_without_users_everybody_may_everything_and_nothing_is_recorded(tmp_path: Path) -> None:
    assert NO_DATABASE in run_as("nobody", tmp_path, "config", "rename", "a", "b").err
    assert not (tmp_path / "spool").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is root")
def test_root_at_the_console_is_always_let_in(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    add_users(state, eva="engineer")
    assert run(state, "user", "role", "eva", "viewer").code == 0
    assert recorded_actions(state)[-1].text == "root: user role name=eva role=viewer"
    (state / "users.json").write_text("damaged")
    assert "users.json can't be read" in run_as("anna", state, "config", "rename", "a", "b").err
    assert NO_DATABASE in run(state, "config", "rename", "a", "b").err


def test_sudo_is_believed_by_root_and_the_owner_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "anna")
    assert account(State(tmp_path)) == "anna"
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 4711)
    assert account(State(tmp_path)) == f"user {tmp_path.stat().st_uid + 4711}"


def test_action_is_recorded_before_and_after(state: Path) -> None:
    assert run_as("anna", state, "user", "role", "vera", "operator").code == 0
    assert run_as("anna", state, "config", "rename", "a", "b").code == 1
    assert run_as("anna", state, "user", "disable", "anna").code == 1
    events = recorded_actions(state)
    assert [event.text for event in events[:2]] == [
        "anna: user role name=vera role=operator: begun",
        "anna: user role name=vera role=operator",
    ]
    assert [(event.detail["action"], event.detail["outcome"]) for event in events] == [
        ("user role", "begun"), ("user role", "done"), ("config rename", "begun"), ("config rename", "failed"),
        ("user disable", "begun"), ("user disable", "failed"),
    ]  # fmt: skip
    assert events[3].detail["error"].endswith(NO_DATABASE)
    assert events[5].detail["error"].startswith("anna is the last engineer who can log in")
    done = events[1].detail
    assert done.keys() >= {"account", "host", "began_at"}
    assert (done["user"], done["role"]) == ("anna", "engineer")
    assert done["arguments"] == {"name": "vera", "role": "operator"}


def test_comparison_that_found_differences_did_not_fail(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "anna")
    monkeypatch.setenv("PLANTLOG_STATE", str(state))
    for command in ("config diff", "admin maintenance run"):
        with pytest.raises(typer.Exit), _permitted(command, dict):
            raise typer.Exit(1)
    assert [(event.detail["action"], event.detail["outcome"]) for event in recorded_actions(state)] == [
        ("config diff", "begun"), ("config diff", "done"),
        ("admin maintenance run", "begun"), ("admin maintenance run", "failed"),
    ]  # fmt: skip


def test_what_only_looks_is_not_recorded(state: Path) -> None:
    assert run_as("vera", state, "user", "list").code == 0
    assert recorded_actions(state) == []


def test_passwords_are_not_recorded(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_MONITOR", "host=h password=geheim user=u")
    assert run_as("anna", state, "admin", "database", "node").code == 1
    assert run_as("anna", state, "admin", "database", "node", "--monitor", "postgresql://u:geheim@h:1/d").code == 1
    given = [event.detail["arguments"]["monitor"] for event in recorded_actions(state)]
    assert given == [*["host=h password=*** user=u"] * 2, *["postgresql://u:***@h:1/d"] * 2]


def test_first_user_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a long enough one\n")
    words = ("user", "add", "anna", "--role", "engineer", "--password-file", tmp_path / "password")
    assert run_as("anna", tmp_path / "state", *words).code == 0
    [event] = recorded_actions(tmp_path / "state")
    assert event.text is not None and event.text.startswith("anna: user add name=anna role=engineer password_file=")


def test_nothing_is_done_that_cannot_be_recorded(state: Path) -> None:
    (state / "spool" / "audit.sqlite").mkdir()
    done = run_as("anna", state, "user", "role", "vera", "operator")
    assert done.code == 1
    assert "the action can't be recorded in the audit trail" in done.err
    assert "`plantlog user role` is refused; down and admin restore are not" in done.err
    assert "vera  viewer" in run_as("vera", state, "user", "list").out
    emergency = run_as("anna", state, "down")
    assert (emergency.code, emergency.out) == (0, "all processes are stopped\n")
    assert "can't be recorded" in emergency.err


def test_alarms_are_acknowledged_under_the_own_name(state: Path) -> None:
    assert run_as("otto", state, "alarms", "ack", "a/b", "--who", "vera").err == (
        "plantlog: --who: found 'vera'; legal: otto, the user who runs the command, or nothing\n"
    )


def test_guard_leaves_help_and_wrong_words_alone(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, code in ((("config", "rename", "--help"), 0), (("config", "rename"), 2), (("alarms", "--help"), 0)):
        assert run_as("nobody", state, *words).code == code
