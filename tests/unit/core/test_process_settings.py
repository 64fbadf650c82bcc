"""Restarts after a change of an option: the processes whose settings it changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from core.config.base import fields_of
from core.config.model import (
    HealthOptions,
    NotifyOptions,
    Plant,
    PushOptions,
    RetentionOptions,
    SpoolOptions,
    ViewerOptions,
    WriterOptions,
)
from core.config.processes import processes_of
from core.config.settings import CollectorSettings, PushSettings, WriterSettings, settings_of
from core.config.sources import ModbusSource, ModbusTag, OpcuaSource, OpcuaTag, PushSource
from core.paths import State
from ops.appliance import programs
from ops.appliance.supervisor import Program
from ops.deployment import Deployment

_COLLECTORS = {"collector-opcua", "collector-modbus", "collector-push"}
# Tables, and options, that no settings have: they are in the database, or followed by those who use them.
_ELSEWHERE = {
    *("storage", "sealing", "retention", "backup", "archive", "questions"),
    *("push max_body", "push max_lines", "viewer url"),
}
_TEXTS = (
    *("other", "/srv/other", "https://other.example:8443", "other.example:25", "tls", "host", "packed", "high"),
    *("a@other.example", "127.0.0.2", "tls://other.example:8786"),
)


def _plant() -> Plant:
    """A plant that has every process."""
    return Plant(
        name="p",
        sources=(
            OpcuaSource(
                name="a",
                kind="opcua",
                address="opc.tcp://127.0.0.1:4840",
                tags=(OpcuaTag(name="a/1", address="ns=2;s=1"),),
            ),
            *(
                ModbusSource(
                    name=name,
                    kind="modbus",
                    address=f"tcp://127.0.0.1:{port}",
                    tags=(ModbusTag(name=f"{name}/1", address="holding:1"),),
                )
                for name, port in (("b", 1502), ("c", 1503))
            ),
            PushSource(name="d", kind="push", token_file=Path("/token"), unknown="create"),
        ),
        notify=NotifyOptions(webhook="http://127.0.0.1:1/"),
        health=HealthOptions(host="0.0.0.0"),  # HTTPS
        push=PushOptions(host="0.0.0.0"),
        viewer=ViewerOptions(host="0.0.0.0"),
    )


def _others(value: Any) -> Iterator[Any]:
    """Values to try in the place of an option's."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value * 2, value - 1)
    else:
        yield from (*_TEXTS, 2, 10 * 1024**3, 2.5 * 86400, ["other.example"])


def _changed(table: BaseModel, option: str) -> BaseModel:
    before = getattr(table, option)
    for value in _others(before):
        try:
            changed = type(table).model_validate({**dict(table), option: value})
        except ValidationError:
            continue
        if getattr(changed, option) != before:
            return changed
    raise AssertionError(f"{option}: no other legal value is known: add one to _TEXTS")


def _changes() -> Iterator[tuple[str, Plant]]:
    """Each option of the model, and a plant in which it is another one."""
    plant = _plant()
    yield "plant name", plant.model_copy(update={"name": "q"})
    for table in fields_of(Plant).keys() - {"name", "sources"}:
        options = getattr(plant, table)
        if table == "retention":
            yield "retention", plant.model_copy(update={table: {"default": RetentionOptions(raw=7 * 86400.0)}})
            continue
        for option in fields_of(type(options)):
            yield f"{table} {option}", plant.model_copy(update={table: _changed(options, option)})


_CHANGES = dict(sorted(_changes()))


@pytest.fixture
def state(tmp_path: Path) -> State:
    state = State(tmp_path)
    state.claim()
    state.dsn_file("owner").parent.mkdir(exist_ok=True)
    for role in ("owner", "ingest", "reader", "maintenance"):
        state.dsn_file(role).write_text(f"postgresql://{role}@h/d")
    return state


def _programs(plant: Plant, state: State) -> dict[str, Program]:
    deployment = Deployment(Path("plant.toml"), simulator=False)
    return {program.name: program for program in programs.all_programs(deployment, plant, state, own_database=False)}


def _restarts(plant: Plant, state: State) -> set[str]:
    before, after = _programs(_plant(), state), _programs(plant, state)
    return {name for name in before.keys() & after.keys() if before[name] != after[name]}


@pytest.mark.parametrize("option", _CHANGES)
def test_an_option_restarts_the_processes_whose_settings_have_it(option: str, state: State) -> None:
    before, after = _plant(), _CHANGES[option]
    common = set(processes_of(before)) & set(processes_of(after))
    expected = {name for name in common if settings_of(name, before) != settings_of(name, after)}
    assert _restarts(after, state) == expected
    elsewhere = {option, option.partition(" ")[0]} & _ELSEWHERE
    assert bool(expected) != bool(elsewhere), "an option that nobody reads, or one that restarts and need not"


@pytest.mark.parametrize(
    ("option", "names"),
    [
        ("spool keep", {"writer"}),
        ("spool keep_bytes", {"writer"}),
        ("spool max_bytes", _COLLECTORS | {"writer"}),
        ("writer future_limit", _COLLECTORS | {"writer"}),
        ("writer oldest", _COLLECTORS | {"writer"}),
        ("writer max_delay", {"writer"}),
        ("alarms max_shelving", _COLLECTORS),
        ("push port", {"collector-push"}),
        ("push max_body", set()),
        ("redundancy member", {"writer", "notifier"}),
        ("notify flood", {"notifier"}),
        ("viewer port", {"viewer"}),
        ("viewer url", set()),
        ("storage lateness", set()),
        ("collectors processes", {"maintenance"}),  # which watches for late polls; there is one more
        ("health port", _COLLECTORS | {"writer", "maintenance", "notifier", "viewer"}),
    ],
)
def test_options_restart_no_more_than_they_concern(option: str, names: set[str], state: State) -> None:
    assert _restarts(_CHANGES[option], state) == names


def test_secrets_restart_their_readers(state: State, tmp_path: Path) -> None:
    secret = tmp_path / "secrets" / "hook"
    secret.write_text("one")
    notify = NotifyOptions(webhook="http://127.0.0.1:1/", webhook_secret_file=secret)
    plant = _plant().model_copy(update={"notify": notify})

    def changed(path: Path) -> set[str]:
        before = _programs(plant, state)
        path.write_text("another one")
        after = _programs(plant, state)
        return {name for name in before if before[name] != after[name]}

    assert changed(secret) == {"notifier"}
    assert changed(state.dsn_file("reader")) == {"viewer"}
    assert changed(state.dsn_file("owner")) == {"maintenance"}
    assert changed(state.dsn_file("ingest")) == {"writer", "notifier", "collector-push"}


def test_collectors_have_the_writers_limits_of_time() -> None:
    plant = Plant(name="p", sources=(), writer=WriterOptions(future_limit=60.0, oldest=3600.0), spool=SpoolOptions())
    for settings in (CollectorSettings.of(plant), PushSettings.of(plant)):
        assert (settings.limits.future, settings.limits.oldest) == (60.0, 3600.0)
    assert WriterSettings.of(plant).writer == plant.writer
