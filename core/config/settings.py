"""Settings of each process: the part of the configuration that it reads at its start.

A process gets its settings instead of the plant, and is restarted if they, or the files that it reads at its start,
have changed. Besides them, collectors follow their sources, and the limits of requests, on SIGHUP; maintenance and
readers find what concerns the data in the database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias

from core.config.base import Frozen, Name, fields_of
from core.config.files import named_files
from core.config.https import TlsSettings
from core.config.model import (
    AlarmOptions,
    HealthOptions,
    NotifyOptions,
    Plant,
    PushOptions,
    ServerOptions,
    SpoolOptions,
    ViewerOptions,
    WriterOptions,
)
from core.config.processes import base_name, collectors
from core.config.sources import Source, SourceKind
from core.servers.server_tls import ServerTls
from core.time_limits import TimeLimits


def _common(plant: Plant, *servers: ServerOptions) -> dict[str, Any]:
    """Fields of all processes. ``servers``: other servers than the health page."""
    secure = any(server.scheme == "https" for server in (plant.health, *servers))
    return {"health": plant.health, "tls": TlsSettings.of(plant) if secure else None}


class ProcessSettings(Frozen):
    """The health page, which every process has."""

    logins: ClassVar[tuple[str, ...]] = ()  # of the database: it reads their DSNs

    health: HealthOptions
    tls: TlsSettings | None  # None: its servers speak HTTP

    def files(self, state: Path) -> list[Path]:
        """Secrets that it reads at its start. It follows changes of the certificate."""
        return [state / "secrets" / f"{login}.dsn" for login in self.logins]

    def server_tls(self, server: ServerOptions, state: Path) -> ServerTls | None:
        """The TLS of one of its servers; None: it speaks HTTP. Raises SourceError."""
        return None if self.tls is None else self.tls.server(server, state)


class CollectorSettings(ProcessSettings):
    """Spool and alarms of a collector."""

    max_bytes: int  # of the spool
    limits: TimeLimits
    max_text: int  # bytes of a text
    alarms: AlarmOptions

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        return cls(**_common(plant), **_collecting(plant))


def _collecting(plant: Plant) -> dict[str, Any]:
    limits = TimeLimits(plant.writer.future_limit, plant.writer.oldest)
    return {
        "max_bytes": plant.spool.max_bytes,
        "limits": limits,
        "max_text": plant.collectors.max_text,
        "alarms": plant.alarms,
    }


class PushSettings(CollectorSettings):
    """A collector with the push endpoint, whose limits it follows while it runs."""

    logins = ("ingest",)

    push: PushOptions

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        server = plant.push.model_dump(include={*fields_of(ServerOptions), "port"})
        return cls(**_common(plant, plant.push), **_collecting(plant), push=PushOptions(**server))


class WriterSettings(ProcessSettings):
    """The writer, as a member of a pair or alone, and its journal."""

    logins = ("ingest",)

    writer: WriterOptions
    spool: SpoolOptions
    member: int | None

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        return cls(**_common(plant), writer=plant.writer, spool=plant.spool, member=plant.redundancy.member)


class NotifierSettings(ProcessSettings):
    """Messages and their receivers."""

    logins = ("ingest",)

    name: Name  # the plant's
    notify: NotifyOptions | None
    member: int | None

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        return cls(**_common(plant), name=plant.name, notify=plant.notify, member=plant.redundancy.member)

    def files(self, state: Path) -> list[Path]:
        """Secrets that it reads at its start, with those of the receivers."""
        return [*super().files(state), *named_files(self.notify)]


class MaintenanceSettings(ProcessSettings):
    """The certificate of all servers, and the collectors that may poll late: maintenance reports both."""

    logins = ("maintenance", "owner")

    servers: TlsSettings
    polling: tuple[str, ...]

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        return cls(**_common(plant), servers=TlsSettings.of(plant), polling=tuple(collectors(plant, "modbus")))


class ViewerSettings(ProcessSettings):
    """The server of the dashboards. Its address for browsers is in the database."""

    logins = ("reader",)

    viewer: ViewerOptions

    @classmethod
    def of(cls, plant: Plant) -> Self:
        """The settings in a plant's configuration."""
        return cls(**_common(plant, plant.viewer), viewer=plant.viewer.model_copy(update={"url": None}))


Settings: TypeAlias = (
    CollectorSettings | PushSettings | WriterSettings | NotifierSettings | MaintenanceSettings | ViewerSettings
)
_SETTINGS: dict[str, type[Settings]] = {
    "collector-opcua": CollectorSettings,
    "collector-modbus": CollectorSettings,
    "collector-push": PushSettings,
    "writer": WriterSettings,
    "notifier": NotifierSettings,
    "maintenance": MaintenanceSettings,
    "viewer": ViewerSettings,
}


def settings_of(process: str, plant: Plant) -> Settings:
    """The settings of a process."""
    return _SETTINGS[base_name(process)].of(plant)


# That a source's open connection can follow; all others need a new one.
_LIVE_OPTIONS: dict[SourceKind, set[str]] = {
    "opcua": {
        "tags",
        "publishing_interval",
        "sampling_interval",
        "queue_size",
        "discard_oldest",
        "stale_after",
    },
    "modbus": {"tags", "poll_interval", "bridge", "max_registers", "standby"},
}


def reconnects(before: Source, now: Source) -> bool:
    """Return whether a change of options needs a new connection. Gateways connect to plantlog: theirs stay."""
    if before.kind != now.kind:
        return True
    live = _LIVE_OPTIONS.get(now.kind)
    return live is not None and any(
        getattr(before, name) != getattr(now, name) for name in fields_of(type(now)).keys() - live
    )
