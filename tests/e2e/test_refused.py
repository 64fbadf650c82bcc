"""A configuration that is refused leaves the running appliance as it was."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.e2e.appliance import running
from tests.ports import free_ports


@pytest.mark.slow
def test_refused_registration_does_not_restart_the_database(tmp_path: Path) -> None:
    first = free_ports(20)
    health, viewer, push = first, first + 18, first + 19
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    plant = tmp_path / "plant.toml"
    plant.write_text(
        f'[plant]\nname = "p"\n[health]\nport = {health}\n[viewer]\nport = {viewer}\n[push]\nport = {push}\n'
        '[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:1"\ntags = "tags.csv"\n'
    )
    with running(tmp_path / "state", "--config", str(plant)) as appliance:

        def processes() -> list[tuple[str, int | None]]:
            return [(process.name, process.pid) for process in appliance.supervisor.processes()]

        before = processes()
        plant.write_text(f'{plant.read_text()}[database]\nhost = "0.0.0.0"\n')
        (tmp_path / "tags.csv").write_text("name,address\na,holding:7\n")
        with pytest.raises(AssertionError, match=r"1 tag\s+of\s+the\s+configuration\s+has"):
            appliance.plantlog("up")
        assert processes() == before
        with socket.create_server(("127.0.0.1", 0)) as other:
            described = plant.read_text()
            plant.write_text(described.replace(f"port = {viewer}", f"port = {other.getsockname()[1]}"))
            with pytest.raises(AssertionError, match=r"is\s+in\s+use"):
                appliance.plantlog("up", "--same-quantity", "a")
            plant.write_text(described)
        assert processes() == before
        assert not list((tmp_path / "state" / "postgres").glob("listening.json"))
        appliance.plantlog("up", "--same-quantity", "a")
        assert dict(processes())["postgres"] != dict(before)["postgres"], "the option needs a restart"
