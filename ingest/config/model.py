"""What a plant's configuration says, after it was checked: plain, frozen objects.

The options' names, defaults and legal values stand here and nowhere else; ``load`` reads them from
``plant.toml`` and the CSV tag lists beside it, README.md lists them.
Durations are seconds (``float``) here and strings such as ``"500ms"``, ``"1s"``, ``"2m"`` in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ArgsKwargs

from ingest.config.quantities import Age, ByteCount, Delay, Duration, Patterns, Retention, Texts, parse_texts

SourceKind: TypeAlias = Literal["modbus", "opcua", "push"]
ChannelKind: TypeAlias = Literal["analog", "discrete", "counter", "text"]
WordOrder: TypeAlias = Literal["ABCD", "CDAB", "BADC", "DCBA"]
RegisterTable: TypeAlias = Literal["coil", "discrete", "input", "holding"]
RegisterType: TypeAlias = Literal[
    "bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string"
]
AlarmPriority: TypeAlias = Literal["critical", "high", "medium", "low"]
SecurityPolicy: TypeAlias = Literal["Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss"]
# What may be wrong with a server's certificate that is trusted (OPC 10000-4, 6.1.3)
AcceptedFault: TypeAlias = Literal[
    "bad-signature", "expired", "key-size", "not-yet-valid", "weak-hash", "wrong-host", "wrong-uri", "wrong-usage"
]

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*$", max_length=63)]
CHANNEL_NAME_LENGTH = 255
# Letters, marks and numbers of every script
ChannelName = Annotated[
    str, Field(pattern=r"^[\p{L}\p{M}\p{N}_.%-]+(/[\p{L}\p{M}\p{N}_.%-]+)*$", max_length=CHANNEL_NAME_LENGTH)
]
# Placeholders stand for text without a slash, so the outcome is a channel's name.
ChannelTemplate = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9_.-]|\{(measurement|field|tag\.[^{}]+)\})+"
        r"(/([A-Za-z0-9_.-]|\{(measurement|field|tag\.[^{}]+)\})+)*$",
        max_length=255,
    ),
]


UnitId = Annotated[int, Field(ge=0, le=255)]

DEFAULT_CLASS = "default"  # of retention
_BITS = ("coil:", "discrete:")


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


# A plant has one of these a channel: with slots it takes a sixth of the memory.
_TAG = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class Tag:
    """What every channel has, whatever its protocol: one row of a tag list."""

    name: ChannelName
    kind: ChannelKind = "analog"
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    deadband: Annotated[float, Field(ge=0)] = 0.0
    description: str = ""
    retention: str = DEFAULT_CLASS  # a class of [retention]
    alarm_lolo: float | None = None  # alarm limits, in the unit: below alarm_lo, above alarm_hi
    alarm_lo: float | None = None
    alarm_hi: float | None = None
    alarm_hihi: float | None = None
    alarm_deadband: Annotated[float, Field(ge=0)] = 0.0  # so far inside the limit the value is normal again
    alarm_delay: Duration | None = None  # so long beyond the limit before it is an alarm; None: at once
    alarm_off_delay: Duration | None = None  # so long inside before it is normal again; None: at once
    alarm_rate: float | None = None  # changes faster than this, in units a second, are an alarm
    alarm_stale: Duration | None = None  # silence of this length is an alarm
    alarm_bad: bool = False  # bad quality is an alarm
    alarm_priority: AlarmPriority = "medium"
    alarm_latch: bool = False  # the alarm stays until somebody acknowledges it after the return to normal


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class OpcuaTag(Tag):
    """An OPC UA variable: ``address`` is its node id, as in ``ns=2;s=boiler1.drum_pressure``."""

    address: str
    interval: Duration | None = None  # sampling and publishing interval; None: the source's
    stale_after: Duration | None = None  # silence of this length is a gap; None: the source's


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class ModbusTag(Tag):
    """One value in a device's registers: ``address`` is ``holding:100``, ``input:4``, ``coil:0`` or ``discrete:7``.

    Addresses count from 0, as in the protocol itself (not from 40001).
    """

    address: Annotated[str, Field(pattern=r"^(coil|discrete|input|holding):[0-9]{1,5}$")]
    type: RegisterType = "int16"  # of a coil or discrete input bool
    word_order: WordOrder = "ABCD"
    bit: Annotated[int, Field(ge=0, le=15)] | None = None  # of a 16-bit register, 0 the lowest
    length: Annotated[int, Field(ge=1, le=123)] = 1  # registers of a string
    scale: float = 1.0
    divisor: float = 1.0  # value = register × scale ÷ divisor + offset; exact for tenths, where a scale of 0.1 is not
    offset: float = 0.0
    interval: Duration | None = None  # poll interval; None: the source's
    unit_id: UnitId | None = None  # None: the source's

    @model_validator(mode="before")
    @classmethod
    def _bits(cls, row: Any) -> Any:
        given = row.kwargs if isinstance(row, ArgsKwargs) else row
        if isinstance(given, Mapping) and "type" not in given and str(given.get("address")).startswith(_BITS):
            return {**given, "type": "bool"}
        return row

    @property
    def table(self) -> RegisterTable:
        """The register table."""
        return self.address.split(":")[0]  # type: ignore[return-value]

    @property
    def register(self) -> int:
        """The first register, from 0."""
        return int(self.address.split(":")[1])


class _Source(_Frozen):
    name: Name
    address: str
    time_out: Duration = 5.0  # for every network step
    backoff_min: Duration = 0.5  # first wait before another connection attempt
    backoff_max: Duration = 30.0  # longest wait before another connection attempt
    skew_limit: Duration = 5.0  # what two clocks may differ by: the source's and ours; ours before and after it was set


class OpcuaSource(_Source):
    """An OPC UA server and what is subscribed there (OPC 10000-4, 5.13 and 5.14)."""

    kind: Literal["opcua"]
    address: Annotated[str, Field(pattern=r"^opc\.tcp://[^/\s]+")]
    security: SecurityPolicy = "Basic256Sha256"  # message security mode is SignAndEncrypt
    insecure: bool = False  # true: security mode None, for a network that is closed by other means
    server_certificate: Path | None = None  # the server's certificate (DER or PEM); None: the trust folder
    accept: Annotated[tuple[AcceptedFault, ...], BeforeValidator(parse_texts)] = ()  # faults of its certificate
    username: str | None = None
    password_file: Path | None = None
    password_in_clear: bool = False  # true: with insecure, the password may cross the network as it is
    publishing_interval: Duration = 0.5
    sampling_interval: Duration | None = None  # None: the publishing interval
    # Values of an item that the server keeps for us; a queue of one does not tell a loss (OPC 10000-4, 5.13.1.5).
    queue_size: Annotated[int, Field(ge=2, le=100_000)] = 100
    discard_oldest: bool = True  # what the server drops where that is not enough; false: the newest but one
    publish_requests: Annotated[int, Field(ge=1, le=50)] = 3  # in flight
    lifetime: Duration = 600.0  # the server keeps a subscription this long without us
    keep_alive: Duration = 10.0
    stale_after: Duration | None = None  # silence of a channel that is a gap; None: it may be silent, nothing changes
    backfill: bool = True  # read from the server's history what was lost, where it keeps one
    tags: tuple[OpcuaTag, ...]


class ModbusSource(_Source):
    """A Modbus device (MODBUS Application Protocol V1.1b3)."""

    kind: Literal["modbus"]
    address: Annotated[str, Field(pattern=r"^tcp://[^/\s]+:[0-9]+$")]
    unit_id: UnitId = 1
    poll_interval: Duration = 1.0
    time_out: Duration = 1.0
    bridge: Annotated[int, Field(ge=0, le=120)] = 8  # unused registers read through to save a request
    max_registers: Annotated[int, Field(ge=1, le=125)] = 125  # a read; some devices take fewer
    tags: tuple[ModbusTag, ...]


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class PushTag(Tag):
    """A channel that is pushed: ``address`` is what the source's ``channel`` template makes of line and field."""

    address: ChannelName


class PushSource(_Frozen):
    """A gateway that pushes InfluxDB line protocol over HTTP, known by its token."""

    name: Name
    kind: Literal["push"]
    token_file: Path  # the gateway's token, in one line
    channel: ChannelTemplate = "{measurement}.{field}"
    unknown: Literal["create", "reject"] = "reject"  # what is done with a channel that no tag has
    counts: Patterns = ()  # measurements, or measurement.field, that count; * stands for any text
    max_channels: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000  # created, at most
    max_rate: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000  # lines a second, over any longer while
    stale_after: Duration = 300.0  # silent for longer: a gap
    skew_limit: Duration = 5.0  # of our clock before and after it was set, for lines without a time
    tags: tuple[PushTag, ...] = ()

    @property
    def address(self) -> str:
        """Where it pushes to, on the host and port of ``[push]``."""
        return "/api/v2/write"


Source: TypeAlias = OpcuaSource | ModbusSource | PushSource


class PlantOptions(_Frozen):
    """What the plant is called."""

    name: Name


class SpoolOptions(_Frozen):
    """The durable log between collectors and database, one file a protocol."""

    max_bytes: ByteCount = 2 * 1024**3


class CollectorOptions(_Frozen):
    """Who reads the sources."""

    # For OPC UA, and for Modbus; at most as many as there are sources, and addresses of Modbus devices
    processes: Annotated[int, Field(ge=1, le=16)] = 1


class WriterOptions(_Frozen):
    """What the writer may use of the database."""

    connections: Annotated[int, Field(ge=1, le=16)] = 2
    max_rows: Annotated[int, Field(ge=1_000, le=2_000_000)] = 400_000  # a transaction
    max_delay: Delay = 1.0  # from source time to table, as far as it is up to the writer: so long a group may gather
    time_out: Duration = 60.0  # for every statement, and for a transaction as a whole
    future_limit: Age = 86400.0  # samples and events further ahead of their arrival go to quarantine
    oldest: Age = 3650 * 86400.0  # those longer before their arrival as well


class HealthOptions(_Frozen):
    """Where ``/health`` and ``/metrics`` are answered.

    opcua on port, modbus on + 1, writer on + 2, push on + 3, maintenance on + 4, viewer on + 5, notifier on + 6. The
    second collector of opcua on + 20, of modbus on + 21; the third on + 22, + 23, and so on.
    """

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_000)] = 9101


class PushOptions(_Frozen):
    """Where gateways push to, and how much at once."""

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 8186
    max_body: ByteCount = 8 * 1024**2  # of one request, inflated
    max_lines: Annotated[int, Field(ge=1, le=1_000_000)] = 100_000  # of one request


class ViewerOptions(_Frozen):
    """Where the dashboards are shown, and what must be known to see them."""

    host: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+$")] = "127.0.0.1"
    port: Annotated[int, Field(ge=1, le=65_535)] = 9110
    token_file: Path | None = None  # one line; needed wherever host is not loopback


class StorageOptions(_Frozen):
    """The form of what is stored, and the room that it may take."""

    compression: Literal["native", "packed"] | None = None  # None: native on Community, packed on Apache-2
    lateness: Duration = 3600.0  # a closed hour or day waits so long for late data
    disk_budget: ByteCount | None = None  # of the database; None: only ages count


class RetentionOptions(_Frozen):
    """How long a class of channels keeps what, in days (UTC) that are closed; None: forever."""

    raw: Retention = None
    minute: Retention = None  # rollups of a minute, and counts of events
    hour: Retention = None
    event: Retention = None


class SealingOptions(_Frozen):
    """Whether closed days are sealed; an unsealed day is never dropped then."""

    enabled: bool = True


class AlarmOptions(_Frozen):
    """What operators may do with alarms."""

    max_shelving: Age = 86400.0  # s, the longest that an alarm may be shelved at once


class NotifyOptions(_Frozen):
    """Who is told of alarms, and how. Without this table nobody is."""

    webhook: Annotated[str, Field(pattern=r"^https?://[^/\s]+")] | None = None  # each message is POSTed there as JSON
    webhook_secret_file: Path | None = None  # signs them: X-Plantlog-Signature: sha256=HMAC of the body
    smtp: Annotated[str, Field(pattern=r"^[A-Za-z0-9.:_-]+:[0-9]+$")] | None = None  # mail server, HOST:PORT
    smtp_security: Literal["starttls", "tls", "none"] = "starttls"
    smtp_ca_file: Path | None = None  # of the server's certificate; None: the system's authorities
    smtp_username: str | None = None
    smtp_password_file: Path | None = None
    mail_from: str | None = None
    mail_to: Texts = ()
    min_priority: AlarmPriority = "low"  # less urgent ones are not sent
    returns: bool = False  # send the return to normal, too
    flood: Annotated[int, Field(ge=1, le=10_000)] = 10  # more alarms than this within flood_window are sent as one
    flood_window: Duration = 600.0
    max_age: Age = 86400.0  # what could not be delivered for so long is given up
    time_out: Duration = 10.0


class Plant(_Frozen):
    """The whole configuration."""

    name: Name
    sources: tuple[Annotated[Source, Field(discriminator="kind")], ...]
    collectors: CollectorOptions = CollectorOptions()
    spool: SpoolOptions = SpoolOptions()
    writer: WriterOptions = WriterOptions()
    health: HealthOptions = HealthOptions()
    push: PushOptions = PushOptions()
    viewer: ViewerOptions = ViewerOptions()
    storage: StorageOptions = StorageOptions()
    sealing: SealingOptions = SealingOptions()
    retention: Mapping[str, RetentionOptions] = Field(default_factory=lambda: {DEFAULT_CLASS: RetentionOptions()})
    alarms: AlarmOptions = AlarmOptions()
    notify: NotifyOptions | None = None

    def opcua_sources(self) -> tuple[OpcuaSource, ...]:
        """The sources that the OPC UA collector reads."""
        return tuple(s for s in self.sources if isinstance(s, OpcuaSource))

    def modbus_sources(self) -> tuple[ModbusSource, ...]:
        """The sources that the Modbus collector reads."""
        return tuple(s for s in self.sources if isinstance(s, ModbusSource))

    def push_sources(self) -> tuple[PushSource, ...]:
        """The sources that push to us."""
        return tuple(s for s in self.sources if isinstance(s, PushSource))


def fields_of(table: type[Any]) -> Mapping[str, FieldInfo]:
    """The options of a table, or the columns of a tag list, by name."""
    fields: Mapping[str, FieldInfo] = table.__pydantic_fields__
    return fields
