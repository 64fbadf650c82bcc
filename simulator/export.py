"""Exports plant.toml and tag lists that match the simulated plant."""

from __future__ import annotations

from pathlib import Path

from core.config.base import fields_of
from core.config.sources import Tag
from core.config.tags import write_rows
from simulator.tags import SimPlant, SimTag, node_identifier

_OPCUA_COLUMNS = ("name", "address", "kind", "unit", "lo", "hi", "interval", "description")
_MODBUS_COLUMNS = (
    "name", "address", "type", "word_order", "bit", "length", "divisor", "kind", "unit", "lo", "hi", "description",
)  # fmt: skip
_ALARM_COLUMNS = [name for name in fields_of(Tag) if name.startswith("alarm_")]
_PUBLISHING = 0.5  # s
NAMESPACE_INDEX = 2  # of the plant's namespace in our server: 0 is OPC UA, 1 the server itself


def devices(tags: list[SimTag]) -> dict[str, list[int]]:
    """Modbus devices, in the order of their ports, and the indices of their tags."""
    by_device: dict[str, list[int]] = {}
    for i, tag in enumerate(tags):
        if tag.register is not None:
            by_device.setdefault(tag.register.device, []).append(i)
    return by_device


def export(
    plant: SimPlant,
    folder: Path,
    host: str,
    opcua_port: int,
    modbus_port: int,
    secure: bool,
    health_port: int,
    viewer_port: int = 9110,
) -> None:
    """Write ``plant.toml`` and ``tags/*.csv`` into ``folder``."""
    (folder / "tags").mkdir(parents=True, exist_ok=True)
    lines = [
        f'# Made by `python -m simulator export`: the plant that the simulator serves ("{plant.name}").',
        "[plant]",
        f'name = "{plant.name}"',
        "",
        "[health]",
        f"port = {health_port}",
        "",
        "[viewer]",
        f"port = {viewer_port}",
        "",
    ]
    opcua = [tag for tag in plant.tags if tag.opcua is not None]
    if opcua:
        slowest = max(tag.period for tag in opcua)
        lines += [
            "[[source]]",
            f'name = "{plant.name}-opcua"',
            'kind = "opcua"',
            f'address = "opc.tcp://{host}:{opcua_port}/plantlog/simulator"',
            "insecure = false" if secure else "insecure = true  # for load tests only",
            f'publishing_interval = "{_duration(min(slowest, _PUBLISHING))}"',
            'tags = "tags/opcua.csv"',
            "",
        ]
        _write(folder / "tags" / "opcua.csv", _OPCUA_COLUMNS, [_opcua_row(tag) for tag in opcua])
    for number, (device, indices) in enumerate(devices(plant.tags).items()):
        members = [plant.tags[i] for i in indices]
        lines += [
            "[[source]]",
            f'name = "{device}"',
            'kind = "modbus"',
            f'address = "tcp://{host}:{modbus_port + number}"',
            f'poll_interval = "{_duration(min(tag.period for tag in members))}"',
            f'tags = "tags/{device}.csv"',
            "",
        ]
        _write(folder / "tags" / f"{device}.csv", _MODBUS_COLUMNS, [_modbus_row(tag) for tag in members])
    (folder / "plant.toml").write_text("\n".join(lines))


def _common(tag: SimTag) -> dict[str, object]:
    return {
        "name": tag.name,
        "kind": tag.kind,
        "unit": tag.unit,
        "description": tag.description,
        "lo": "" if tag.lo is None else f"{tag.lo:g}",
        "hi": "" if tag.hi is None else f"{tag.hi:g}",
        **dict(tag.alarms),
    }


def _opcua_row(tag: SimTag) -> dict[str, object]:
    address = f"ns={NAMESPACE_INDEX};s={node_identifier(tag)}"
    # States and texts change rarely: no faster publishing needed.
    fast = tag.kind == "analog" and tag.period < _PUBLISHING
    return _common(tag) | {"address": address, "interval": _duration(tag.period) if fast else ""}


def _modbus_row(tag: SimTag) -> dict[str, object]:
    register = tag.register
    assert register is not None
    return _common(tag) | {
        "address": f"{register.table}:{register.address}",
        "type": register.type,
        "word_order": register.word_order,
        "bit": "" if register.bit is None else register.bit,
        "length": register.length if register.type == "string" else "",
        "divisor": f"{register.divisor:g}" if register.divisor != 1 else "",
    }


def _write(path: Path, columns: tuple[str, ...], rows: list[dict[str, object]]) -> None:
    used = {column for row in rows for column in row}
    alarms = [column for column in _ALARM_COLUMNS if column in used]
    with path.open("w", newline="", encoding="utf-8") as file:
        write_rows(file, [*columns, *alarms], rows)


def _duration(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms" if seconds < 1 or seconds % 1 else f"{seconds:.0f}s"
