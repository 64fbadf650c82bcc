"""Assignment of sources to processes: by load, and none moves that need not."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from core.config import processes, snapshot
from core.config.model import CollectorOptions, HealthOptions, Plant
from core.config.processes import processes_of
from core.config.sources import ModbusSource, ModbusTag, OpcuaSource, OpcuaTag
from core.errors import OperationError
from core.paths import CHECKOUT
from ops.containers.prepare import prepare
from ops.registration.redefined_tags import TagDecisions


def device(name: str, channels: int, port: int = 0, interval: float = 1.0) -> ModbusSource:
    tags = tuple(ModbusTag(name=f"{name}/{i}", address=f"holding:{i}") for i in range(channels))
    address = f"tcp://127.0.0.1:{port or 1000 + sum(map(ord, name))}"
    return ModbusSource(name=name, kind="modbus", address=address, poll_interval=interval, tags=tags)


def plant(number: int, *sources: ModbusSource | OpcuaSource) -> Plant:
    return Plant(name="p", sources=sources, collectors=CollectorOptions(processes=number))


def of_load(number: int, loads: Mapping[str, int]) -> Plant:
    return plant(number, *(device(name, channels, 502 + i) for i, (name, channels) in enumerate(sorted(loads.items()))))


def busy(split: Mapping[str, int], loads: Mapping[str, int], number: int) -> list[int]:
    return [sum(1 + loads[name] for name, of in split.items() if of == k) for k in range(1, number + 1)]


LOADS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.integers(0, 40), min_size=1, max_size=9)
NUMBERS = st.integers(1, 4)


def test_heaviest_source_goes_to_the_least_loaded_process() -> None:
    loads = {"a": 30, "b": 20, "c": 15, "d": 5}
    assert processes.split(of_load(2, loads), {}) == {"a": 1, "b": 2, "c": 2, "d": 1}


def test_load_is_channels_by_interval() -> None:
    fast = OpcuaSource(
        name="fast",
        kind="opcua",
        address="opc.tcp://h:4840",
        sampling_interval=1.0,
        tags=(OpcuaTag(name="a", address="ns=2;s=a", interval=0.01), OpcuaTag(name="b", address="ns=2;s=b")),
    )
    slow = [
        OpcuaSource(
            name=name,
            kind="opcua",
            address="opc.tcp://h:4840",
            publishing_interval=1.0,
            tags=tuple(OpcuaTag(name=f"{name}{i}", address=f"ns=2;i={i}") for i in range(30)),
        )
        for name in ("x", "y", "z")
    ]
    assert processes.split(plant(2, *slow, fast), {}) == {"fast": 1, "x": 2, "y": 2, "z": 2}


@given(LOADS, NUMBERS)
def test_no_process_has_twice_its_share_of_load(loads: Mapping[str, int], number: int) -> None:
    of = of_load(number, loads)
    names = processes.collectors(of, "modbus")
    assert len(names) == min(number, len(loads))
    found = busy(processes.split(of, {}), loads, len(names))
    assert min(found) > 0
    assert max(found) <= max(2 * sum(found) / len(found), 1 + max(loads.values()))


@given(LOADS, NUMBERS, LOADS, NUMBERS)
def test_source_moves_only_from_an_overloaded_process(
    before: Mapping[str, int], number: int, after: Mapping[str, int], then: int
) -> None:
    was = processes.split(of_load(number, before), {})
    now = processes.split(of_load(then, after), was)
    assert processes.split(of_load(then, after), now) == now, "the same plant again moves nothing"
    count = min(then, len(after))
    found = busy(now, after, count)
    assert min(found) > 0
    assert max(found) <= max(2 * sum(found) / count, 1 + max(after.values()))
    kept = {name: was[name] for name in after if was.get(name, count + 1) <= count}
    if any(now[name] != of for name, of in kept.items()):
        stays = busy(kept, after, count)
        for name in sorted(after.keys() - kept.keys(), key=lambda name: -after[name]):
            stays[stays.index(min(stays))] += 1 + after[name]
        assert max(stays) > 1.25 * sum(stays) / count or 0 in stays, "somebody had too much, or nothing"


def test_added_source_moves_no_other() -> None:
    loads = {"a": 30, "b": 20, "c": 15, "d": 5}
    was = processes.split(of_load(2, loads), {})
    now = processes.split(of_load(2, {**loads, "e": 12}), was)
    assert {name: now[name] for name in loads} == was


def test_added_process_takes_only_its_share() -> None:
    loads = dict.fromkeys("abcdef", 10)
    was = processes.split(of_load(1, loads), {})
    now = processes.split(of_load(2, loads), was)
    assert set(was.values()) == {1}
    assert 2 <= sum(number == 2 for number in now.values()) <= 3
    again = processes.split(of_load(3, loads), now)
    assert all(again[name] in (now[name], 3) for name in loads)
    assert set(processes.split(of_load(1, loads), again).values()) == {1}


def test_sources_of_one_address_share_a_process() -> None:
    units = [device(f"unit{i}", 10, 502) for i in range(4)]
    other = device("other", 1, 503)
    of = plant(4, *units, other)
    assert processes.collectors(of, "modbus") == ["collector-modbus", "collector-modbus-2"]
    split = processes.split(of, {})
    assert len({split[unit.name] for unit in units}) == 1
    assert split["other"] != split["unit0"]


def test_processes_have_unique_names_and_ports() -> None:
    names = [
        *processes.PORTS,
        *(processes.collector(kind, number) for kind in ("opcua", "modbus") for number in range(2, 17)),
    ]
    ports = {processes.port(name, HealthOptions()) for name in names}
    assert len(ports) == len(names)
    assert HealthOptions().port + 9 not in ports, "where the viewer is"
    assert processes.port("collector-modbus", HealthOptions()) == 9102, "as ever"
    assert {processes.base_name(name) for name in names} == set(processes.PORTS)


def test_active_configuration_assigns_sources_to_processes(tmp_path: Path) -> None:
    loads = {"a": 30, "b": 20, "c": 15, "d": 5}
    assert snapshot.save(tmp_path, tmp_path / "plant.toml", {}, of_load(1, loads)).processes == {}
    of = of_load(2, loads)
    current = snapshot.save(tmp_path, tmp_path / "plant.toml", {}, of)
    assert {current.process(name) for name in loads} == {1, 2}
    assert snapshot.save(tmp_path, tmp_path / "plant.toml", {}, of).number == current.number, "nothing changed"
    own = snapshot.in_force(tmp_path, process=2)
    assert own is not None
    assert {s.name for s in own.plant.sources if s.tags} == {n for n in loads if current.process(n) == 2}
    assert [name for name in processes_of(of) if name.startswith("collector")] == [
        "collector-modbus",
        "collector-modbus-2",
    ]


@pytest.mark.parametrize("name", ["opcua-1x", "writer-2", "modbus-", "modbus-0", "modbus-02", "opcua-2-3", "nothing"])
def test_unassigned_process_cannot_be_started(name: str) -> None:
    from ingest.__main__ import _process

    with pytest.raises(Exception, match=f"'{name}'; legal: opcua, modbus, modbus-2"):
        _process(name)


def test_containers_have_one_collector_per_protocol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would read what the second one is to read."""
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "state"))
    shutil.copytree(CHECKOUT / "tests" / "unit" / "golden" / "config" / "minimal", tmp_path / "plant")
    with (tmp_path / "plant" / "plant.toml").open("a") as file:
        file.write("\n[collectors]\nprocesses = 2\n")
    with pytest.raises(OperationError, match=r"plant.toml: \[collectors\] processes is 2: .* legal: 1"):
        prepare(tmp_path / "plant" / "plant.toml", Console(), None, TagDecisions())


@pytest.mark.parametrize(
    ("location", "refusal"),
    [
        ("/srv/archive", r"is '/srv/archive'; legal in containers: '/mnt/archive', where .* or a server"),
        (
            "/mnt/archive",
            r"is '/mnt/archive', and nothing is mounted there: set PLANTLOG_ARCHIVE in .env to the folder",
        ),
    ],
)
def test_containers_archive_to_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, location: str, refusal: str
) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "state"))
    shutil.copytree(CHECKOUT / "tests" / "unit" / "golden" / "config" / "minimal", tmp_path / "plant")
    file = tmp_path / "plant" / "plant.toml"
    with file.open("a") as config:
        config.write(f"\n[archive]\nlocation = '{location}'\n")
    with pytest.raises(OperationError, match=rf"plant.toml: \[archive\] location {refusal}"):
        prepare(file, Console(), None, TagDecisions())


@pytest.mark.parametrize(
    ("repository", "refusal"),
    [
        ("/srv/backup", r"is '/srv/backup'; legal in containers: '/mnt/backup', where .* or a server"),
        ("/mnt/backup", r"is '/mnt/backup', and nothing is mounted there: set PLANTLOG_BACKUP in .env to the folder"),
    ],
)
def test_containers_back_up_to_what_is_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, repository: str, refusal: str
) -> None:
    monkeypatch.setenv("PLANTLOG_STATE", str(tmp_path / "state"))
    shutil.copytree(CHECKOUT / "tests" / "unit" / "golden" / "config" / "minimal", tmp_path / "plant")
    (tmp_path / "passphrase").write_text("correct-horse-battery-staple")
    file = tmp_path / "plant" / "plant.toml"
    with file.open("a") as config:
        config.write(f"\n[backup]\nrepository = '{repository}'\npassphrase_file = '{tmp_path / 'passphrase'}'\n")
    with pytest.raises(OperationError, match=rf"plant.toml: \[backup\] repository {refusal}"):
        prepare(file, Console(), None, TagDecisions())
