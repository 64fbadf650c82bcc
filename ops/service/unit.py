"""The unit file of the service, for one appliance on one machine."""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from core.config.addresses.modbus_address import parse
from core.config.files import named_files
from core.config.model import Plant
from core.errors import OperationError
from core.paths import CHECKOUT

MARK = "# Made by `plantlog admin service install`, which replaces it."
_TEMPLATE = Path(__file__).with_name("unit.template")
_HOMES = (Path("/home"), Path("/root"), Path("/run/user"))  # what ProtectHome hides
_TEMPORARY = (Path("/tmp"), Path("/var/tmp"))  # what PrivateTmp hides
_FIRST_UNPRIVILEGED_PORT = 1024
_MODULES = {"ttyUSB": "usbserial", "ttyACM": "cdc_acm"}  # the modules that make these kinds of serial devices
_BY_ID = ("ttyUSB", "ttyACM")  # what a link in /dev/serial that does not exist yet may lead to

# PostgreSQL runs under another user (all but the first line). NICE and PTRACE are for its backends: their priority, and
# whose they are.
_ROOT_CAPABILITIES = (
    "CAP_NET_BIND_SERVICE",
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"),
    *("CAP_SYS_NICE", "CAP_SYS_PTRACE"),
)


@dataclass(frozen=True, slots=True)
class Service:
    """Service and what its unit depends on."""

    name: str
    user: str
    state: Path
    config: Path
    plant: Plant
    cache: str = ""  # PLANTLOG_CACHE
    checkout: Path = CHECKOUT  # of the plantlog that it runs

    @property
    def is_root(self) -> bool:
        """Return whether it runs as root."""
        return self.user == "root"

    def render(self) -> str:
        """The unit. Raises OperationError for a path that it can't hold."""
        kinds = sorted({kind for device in self._serial_devices() for kind in device_kinds(device)})
        writable = [*self._writable(), *(("", path) for path in _TEMPORARY if self._needs(_TEMPORARY))]
        modules = "".join(f" modprobe@{_MODULES[kind]}.service" for kind in kinds if kind in _MODULES)
        return string.Template(_TEMPLATE.read_text()).substitute(
            mark=MARK,
            name=self.name,
            user=self.user,
            state=_plain(self.state),
            modules=modules,
            wants=f"Wants={modules.strip()}\n" if modules else "",
            mounts=f"{_quoted(self.checkout)} {_quoted(self.state)}",
            command=f"{_quoted(self.checkout / 'plantlog').replace('$', '$$')} admin service run --name {self.name}",
            environment="\n".join(self._environment()),
            home="read-only" if self._needs(_HOMES) else "yes",
            temporary="no" if self._needs(_TEMPORARY) else "yes",
            writable=" ".join(_quoted(path, prefix) for prefix, path in writable),
            devices="\n".join(("DevicePolicy=closed", *(f"DeviceAllow=char-{kind} rw" for kind in kinds)))
            if kinds
            else "PrivateDevices=yes",
            processes="default" if self.is_root else "invisible",
            capabilities="\n".join(self._capabilities()),
        )

    def environment_of_state(self) -> str:
        """The line that says whose unit it is."""
        return f"Environment={_quoted(f'PLANTLOG_STATE={self.state}')}"

    def _environment(self) -> Iterator[str]:
        yield self.environment_of_state()
        if self.cache:
            yield f"Environment={_quoted(f'PLANTLOG_CACHE={self.cache}')}"

    def _capabilities(self) -> Iterator[str]:
        ports = {self.plant.health.port, self.plant.viewer.port, self.plant.push.port}
        if self.is_root:
            yield f"CapabilityBoundingSet={' '.join(_ROOT_CAPABILITIES)}"
        elif min(ports) < _FIRST_UNPRIVILEGED_PORT:
            yield "CapabilityBoundingSet=CAP_NET_BIND_SERVICE"
            yield "AmbientCapabilities=CAP_NET_BIND_SERVICE"
        else:
            yield "CapabilityBoundingSet="

    def _needs(self, folders: Sequence[Path]) -> bool:
        """Return whether anything that it reads or writes is below one of them."""
        return any(path.is_relative_to(folder) for path in self._paths() for folder in folders)

    def _paths(self) -> Iterator[Path]:
        """Paths that it reads and writes, where they really lie."""
        plant = self.plant
        named = named_files(*plant.sources, plant.viewer, plant.backup, plant.archive, plant.questions, plant.notify)
        venv = self.checkout / ".venv"
        paths = (self.checkout, venv, venv / "bin" / "python", self.state, self.config, *named)
        for path in (*paths, *(path for _, path in self._writable())):
            yield path
            yield path.resolve()

    def _writable(self) -> Iterator[tuple[str, Path]]:
        """The folders that it writes to, each with a prefix: ``-`` where it may be missing."""
        yield "", self.state
        yield "-", (self.checkout / ".venv").resolve()  # the launcher installs what a new version needs
        if self.cache:
            yield "-", Path(self.cache)
        for folder in (self.plant.backup.repository, self.plant.archive.location):
            if folder is not None and not urlsplit(folder).scheme:
                yield "-", Path(folder)

    def _serial_devices(self) -> Iterator[Path]:
        for source in self.plant.modbus_sources():
            address = parse(source.address)
            if address.scheme == "serial":
                yield Path(address.endpoint)


def device_kinds(device: Path, drivers: Path = Path("/proc/devices")) -> tuple[str, ...]:
    """The kinds of devices, as in ``/proc/devices``, that a device is, or may be once it is there."""
    try:
        major = os.major(device.stat().st_rdev)
    except OSError:  # not plugged in
        by_name = device.name.rstrip("0123456789")
        return _BY_ID if "/dev/serial/" in f"{device}" else (by_name,)
    lines = drivers.read_text().partition("Block devices")[0].splitlines()
    kinds = [words[1] for words in map(str.split, lines) if words[:1] == [str(major)] and "/" not in words[1]]
    return (kinds[-1],) if kinds else (device.name.rstrip("0123456789"),)


def check_name(name: str) -> None:
    """Raise OperationError for what can't be the name of a unit."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}", name) is None or name.endswith(".service"):
        raise OperationError(f"--name {name}: legal: letters, digits, _ . -, without .service")


def _plain(path: Path | str) -> str:
    if any(not character.isprintable() for character in str(path)):
        raise OperationError(f"a unit cannot contain {str(path)!r}: choose a path without control characters")
    return str(path).replace("%", "%%")


def _quoted(text: Path | str, prefix: str = "") -> str:
    """A word of a unit (systemd.syntax(7), "Quoting")."""
    escaped = prefix + _plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if re.search(r"[\s\"'\\;]", escaped) else escaped
