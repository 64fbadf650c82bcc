"""The model of a plant's configuration: plain, frozen objects.

The options' names, defaults, legal values and meanings are defined here and in ``sources``, and nowhere else. ``load``
reads the options from ``plant.toml`` and the CSV tag lists beside it. ``reference`` makes the tables of
docs/configuration.md and docs/tag-lists.md and the sample from both modules: the text of a class and the text below an
option are what a user reads there.
Durations are seconds (``float``) here and strings such as ``"500ms"``, ``"1s"``, ``"2m"`` in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from core.addresses import is_loopback
from core.config.base import Frozen, Name, fields_of
from core.config.quantities import (
    Age,
    ByteCount,
    Delay,
    Duration,
    Keep,
    Retention,
    Span,
    TextBytes,
    Texts,
    parse_texts,
)
from core.config.sources import DEFAULT_CLASS, AlarmPriority, ModbusSource, OpcuaSource, PushSource, Source


class PlantOptions(Frozen):
    """The plant."""

    name: Name
    """The plant's name. Metrics, dashboards and messages show it."""


class SpoolOptions(Frozen):
    """The durable log between collectors and database, one file for each protocol."""

    max_bytes: ByteCount = 2 * 1024**3
    """The maximum size of each file. A full spool causes backpressure; data that a source can't keep become a gap."""
    keep: Keep = 86400.0
    """The time for which the journal keeps committed data, so that `plantlog admin spool replay` can write them again.
    `"0s"`: no journal."""
    keep_bytes: ByteCount = 10 * 1024**3
    """The maximum size of the journal. It leaves `max_bytes` of the disk free, and at least a sixteenth of it. The
    oldest data are dropped first."""


class CollectorOptions(Frozen):
    """The processes that read the sources."""

    processes: Annotated[int, Field(ge=1, le=16)] = 1
    """The number of collectors for OPC UA, and for Modbus; at most one per source or Modbus address. The sources are
    distributed by load. More than one helps if one uses a whole core. Containers always run one of each."""
    max_text: TextBytes = 64 * 1024
    """The maximum size of a text value, in UTF-8, and of each text of an event. A longer one is cut, with a mark."""


class WriterOptions(Frozen):
    """The process that writes to the database."""

    connections: Annotated[int, Field(ge=1, le=16)] = 2
    """The number of database connections that write in parallel."""
    max_rows: Annotated[int, Field(ge=1_000, le=2_000_000)] = 400_000
    """The maximum number of samples in a transaction."""
    max_delay: Delay = 1.0
    """The time within which samples should be in the table, counted from their source time. Under load, the writer uses
    it to write larger groups."""
    time_out: Duration = 60.0
    """The timeout of each statement, and of each transaction as a whole."""
    future_limit: Age = 86400.0
    """Samples and events that are dated further ahead of their arrival than this are quarantined."""
    oldest: Age = 3650 * 86400.0
    """Samples and events that are older than this when they arrive are quarantined."""
    days_per_hour: Annotated[int, Field(ge=1, le=100_000)] = 366
    """The number of days, more than a week from now, that a source may write to within an hour. Samples and events of
    further days are quarantined, and `plantlog admin spool retry` writes them. Imports are not limited."""


Host = Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")]


class ServerOptions(Frozen):
    """A server of HTTP, or of HTTPS where others than this machine can reach it."""

    host: Host = "127.0.0.1"
    """The address to listen on. A server that is not on loopback speaks HTTPS."""
    plain_http: bool = False
    """Speak HTTP also where `host` is not loopback: in a network of your own, such as that of containers."""

    @property
    def scheme(self) -> Literal["http", "https"]:
        """Protocol of the address."""
        return "http" if self.plain_http or is_loopback(self.host) else "https"


class HealthOptions(ServerOptions):
    """Addresses at which the processes answer `/health` and `/metrics`."""

    port: Annotated[int, Field(ge=1, le=65_000)] = 9101
    """The port of the OPC UA collector. Modbus collector +1, writer +2, push +3, maintenance +4, viewer +5, notifier
    +6. The second collectors of OPC UA and Modbus have +20 and +21, the third ones +22 and +23, and so on."""


class PushOptions(ServerOptions):
    """The endpoint for gateways that push, and its limits."""

    port: Annotated[int, Field(ge=1, le=65_535)] = 8186
    """The port to listen on."""
    max_body: ByteCount = 8 * 1024**2
    """The maximum size of a request's body, decompressed."""
    max_lines: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000
    """The maximum number of lines in a request."""


class ViewerOptions(ServerOptions):
    """The dashboards in the browser. Once there are users (`plantlog user add`), they have to log in. Without users, it
    is served on loopback only."""

    port: Annotated[int, Field(ge=1, le=65_535)] = 9110
    """The port to listen on."""
    url: Annotated[str, Field(pattern=r"^https?://[^/\s?#]+$")] | None = None
    """The address of the viewer for browsers. Grafana's dashboards 3 and 4 link to it. Not set: the scheme, `host` and
    `port` of the viewer."""
    trusted_proxies: Annotated[tuple[Host, ...], BeforeValidator(parse_texts)] = ()
    """Addresses of reverse proxies, which say in `X-Forwarded-For` whose request it is: wrong passwords are counted by
    user and that address."""


class TlsOptions(Frozen):
    """The certificate of the servers that speak HTTPS. Without `certificate_file`, plantlog makes and renews its own,
    issued by a CA of its own that clients have to trust."""

    certificate_file: Path | None = None
    """Your certificate, PEM, with those of its issuers behind it. New contents are used within seconds, without a
    restart. It requires `key_file`."""
    key_file: Path | None = None
    """Its private key, PEM, without a password."""
    names: Annotated[tuple[Host, ...], BeforeValidator(parse_texts)] = ()
    """Host names and addresses that plantlog's own certificate has besides those of the machine: what clients call it
    by, behind a router or in containers."""


class DatabaseOptions(Frozen):
    """plantlog's own database. Not in containers, and not with `PLANTLOG_DSN`."""

    host: Host = "127.0.0.1"
    """The address to listen on, besides loopback. From other machines, only the login `plantlog_reader` is accepted,
    and only with TLS. The certificate is that of `[tls]`. A change restarts the database."""


class StorageOptions(Frozen):
    """Storage of samples, and the disk space that they may use."""

    compression: Literal["native", "packed"] | None = None
    """The form of closed hours or days. Not set: native (the columnstore) on Community, packed on Apache-2."""
    lateness: Duration = 3600.0
    """The time to wait for late data before an hour or day is compressed and sealed."""
    disk_budget: ByteCount | None = None
    """The maximum size of the database. Beyond it, the oldest closed days of samples are dropped. Not set: data are
    dropped by age only."""


class RetentionOptions(Frozen):
    """Retention of the data of a class of channels. Only closed days (UTC) are dropped. Rollups and events must be
    kept at least as long as the samples: minute ≥ raw, hour ≥ minute, event ≥ raw."""

    raw: Retention = None
    """Samples."""
    minute: Retention = None
    """Rollups by minute, and event counts."""
    hour: Retention = None
    """Rollups by hour."""
    event: Retention = None
    """Events."""


class SealingOptions(Frozen):
    """Seals of closed days."""

    enabled: bool = True
    """Seal closed days. No day is dropped before it is sealed."""


_REPOSITORY = r"^(sftp://[^/@:\s]+@[^/@\s]+|s3://[^/@:\s]+)?/[^\n]*[^/\s]$"


class BackupOptions(Frozen):
    """Backups of plantlog's own database and of the keys and the configuration, by pgBackRest. Without `repository`
    none are made. It requires `passphrase_file`."""

    repository: Annotated[str, Field(pattern=_REPOSITORY)] | None = None
    """The location of the backups: a folder on another disk or, better, another machine (such as NFS);
    `sftp://USER@HOST[:PORT]/PATH`, which requires `key_file` and `known_hosts_file`; or `s3://BUCKET/PATH`, which
    requires `key_file` and `s3_endpoint`. Empty at first."""
    passphrase_file: Path | None = None
    """A file with one line: the passphrase that the backups are encrypted with. Keep a copy elsewhere: without it there
    is no restore."""
    key_file: Path | None = None
    """SFTP: a file with the private key, which has no passphrase. S3: a file with one line: the access key ID, a space,
    and the secret access key."""
    known_hosts_file: Path | None = None
    """SFTP: a file with the server's host key, as `ssh-keyscan` prints it."""
    s3_endpoint: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+(:[0-9]{1,5})?$")] | None = None
    """S3: HOST or HOST:PORT of the service. It is called by HTTPS."""
    s3_region: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "us-east-1"
    """S3: the region of the bucket."""
    s3_uri_style: Literal["path", "host"] = "path"
    """S3: whether the bucket is named in the path or in the host name."""
    ca_file: Path | None = None
    """S3: the CA certificates that the service's certificate is verified with. Not set: those of the system."""
    every: Age = 86400.0
    """The interval between backups. Most are incremental. `PlantlogBackupOld` fires after three intervals without
    one."""
    full_every: Age = 7 * 86400.0
    """The interval between full backups."""
    keep: Span = 30 * 86400.0
    """The time for which backups are kept, in whole days. The newest full backup that is older is kept, too."""
    max_wal: ByteCount = 16 * 1024**3
    """The maximum size of write-ahead log that waits for an unreachable repository. Beyond it, all of it is dropped: a
    restore to a time between then and the next backup is impossible."""


class ArchiveOptions(Frozen):
    """The archive of sealed days as Parquet files. Without `location` there is none. It requires `[sealing]`."""

    location: Annotated[str, Field(pattern=r"^(s3://[^/@:\s]+)?/[^\n]*[^/\s]$")] | None = None
    """The location of the archive: a folder, such as one on NFS, which must exist; or `s3://BUCKET/PATH`, which
    requires `key_file` and `s3_endpoint`. Empty at first. Samples of a day are then dropped only if it is archived."""
    key_file: Path | None = None
    """S3: a file with one line: the access key ID, a space, and the secret access key."""
    s3_endpoint: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+(:[0-9]{1,5})?$")] | None = None
    """S3: HOST or HOST:PORT of the service. It is called by HTTPS."""
    s3_region: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")] = "us-east-1"
    """S3: the region of the bucket."""
    s3_uri_style: Literal["path", "host"] = "path"
    """S3: whether the bucket is named in the path or in the host name."""
    ca_file: Path | None = None
    """S3: the CA certificates that the service's certificate is verified with. Not set: those of the system."""


class QuestionsOptions(Frozen):
    """Computation of questions (`plantlog ask`, `sql`, viewer, notebooks) by a cluster of Dask, whose workers read the
    archive. Without `cluster`, this machine computes them."""

    cluster: Annotated[str, Field(pattern=r"^(tls|tcp)://[^/@\s]+:[0-9]{1,5}$")] | None = None
    """The address of the scheduler, `tls://HOST:PORT`. Its members run what anybody who reaches them sends, so
    `tcp://`, without certificates, is legal on loopback only."""
    ca_file: Path | None = None
    """The CA of the cluster. Members are those with a certificate of it, whatever their names: use no other CA."""
    certificate_file: Path | None = None
    """This machine's certificate as a client of the cluster, PEM."""
    key_file: Path | None = None
    """Its private key, PEM, without a password; may be the same file."""


class RedundancyOptions(Frozen):
    """A redundant pair: two machines with the same sources and one database, of which one writes at any time. Without
    `member` the appliance is alone."""

    member: Annotated[int, Field(ge=1, le=2)] | None = None
    """The number of this machine in the pair: 1 on one, 2 on the other. All options that describe the plant must be the
    same on both."""


class AlarmOptions(Frozen):
    """Alarms. Their limits are defined in the tag lists."""

    max_shelving: Age = 86400.0
    """The maximum time for which an alarm may be shelved."""


class NotifyOptions(Frozen):
    """Notifications of alarms. Without this table none are sent. It requires `webhook`, `smtp` or both."""

    webhook: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = None
    """The URL to which each message is posted as JSON."""
    webhook_secret_file: Path | None = None
    """A file with the HMAC key. Each message is signed in the header `X-Plantlog-Signature`: sha256= and the
    HMAC-SHA256 of the body."""
    smtp: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+:[0-9]+$")] | None = None
    """HOST:PORT of the mail server. It requires `mail_from` and `mail_to`."""
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    """The encryption of the connection to the mail server."""
    smtp_ca_file: Path | None = None
    """The CA certificates that the mail server's certificate is verified with. Not set: those of the system."""
    smtp_username: str | None = None
    """The user name for the mail server. It requires `smtp_password_file`."""
    smtp_password_file: Path | None = None
    """The file with the user's password."""
    mail_from: str | None = None
    """The sender's address."""
    mail_to: Texts = ()
    """The recipients' addresses."""
    min_priority: AlarmPriority = "low"
    """Alarms of a lower priority are not sent."""
    returns: bool = False
    """Also send the return to normal."""
    flood: Annotated[int, Field(ge=1, le=10_000)] = 10
    """More alarms than this within `flood_window` are sent as one message. An alarm that chatters (raised three times
    within a minute, or more often than this within `flood_window`) counts once: its messages are summed up."""
    flood_window: Duration = 600.0
    """The time in which alarms are counted for `flood`."""
    max_age: Age = 86400.0
    """The time for which delivery of a message is attempted."""
    time_out: Duration = 10.0
    """The timeout of one attempt."""


class Plant(Frozen):
    """The whole configuration."""

    name: Name
    sources: tuple[Annotated[Source, Field(discriminator="kind")], ...]
    collectors: CollectorOptions = CollectorOptions()
    spool: SpoolOptions = SpoolOptions()
    writer: WriterOptions = WriterOptions()
    health: HealthOptions = HealthOptions()
    push: PushOptions = PushOptions()
    viewer: ViewerOptions = ViewerOptions()
    tls: TlsOptions = TlsOptions()
    database: DatabaseOptions = DatabaseOptions()
    storage: StorageOptions = StorageOptions()
    sealing: SealingOptions = SealingOptions()
    retention: Mapping[str, RetentionOptions] = Field(default_factory=lambda: {DEFAULT_CLASS: RetentionOptions()})
    backup: BackupOptions = BackupOptions()
    archive: ArchiveOptions = ArchiveOptions()
    questions: QuestionsOptions = QuestionsOptions()
    redundancy: RedundancyOptions = RedundancyOptions()
    alarms: AlarmOptions = AlarmOptions()
    notify: NotifyOptions | None = None

    def servers(self) -> tuple[ServerOptions, ...]:
        """The servers that it has."""
        return (self.health, self.viewer, *((self.push,) if self.push_sources() else ()))

    def opcua_sources(self) -> tuple[OpcuaSource, ...]:
        """The sources that the OPC UA collector reads."""
        return tuple(s for s in self.sources if isinstance(s, OpcuaSource))

    def modbus_sources(self) -> tuple[ModbusSource, ...]:
        """The sources that the Modbus collector reads."""
        return tuple(s for s in self.sources if isinstance(s, ModbusSource))

    def push_sources(self) -> tuple[PushSource, ...]:
        """The sources that push to us."""
        return tuple(s for s in self.sources if isinstance(s, PushSource))


# Tables of plant.toml that need no code of their own, by name
TABLES: Mapping[str, type[Frozen]] = {
    name: field.annotation
    for name, field in fields_of(Plant).items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, Frozen)
}
