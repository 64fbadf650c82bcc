"""What a plant's configuration says, after it was checked: plain, frozen objects.

The options' names, defaults and legal values stand here and nowhere else; ``load`` reads them from
``plant.toml`` and the CSV tag lists beside it, README.md lists them.
Durations are seconds (``float``) here and strings such as ``"500ms"``, ``"1s"``, ``"2m"`` in the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from ingest.config.quantities import Age, ByteCount, Duration, Retention

ChannelKind: TypeAlias = Literal["analog", "discrete", "counter", "text"]
WordOrder: TypeAlias = Literal["ABCD", "CDAB", "BADC", "DCBA"]
RegisterTable: TypeAlias = Literal["coil", "discrete", "input", "holding"]
RegisterType: TypeAlias = Literal[
    "bool", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float32", "float64", "string"
]
SecurityPolicy: TypeAlias = Literal["Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9_]+(-[a-z0-9_]+)*$", max_length=63)]
ChannelName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.%-]+(/[A-Za-z0-9_.%-]+)*$", max_length=255)]
# Placeholders stand for text without a slash, so the outcome is a channel's name.
ChannelTemplate = Annotated[
    str,
    Field(
        pattern=r"^([A-Za-z0-9_.-]|\{(measurement|field|tag\.[^{}]+)\})+"
        r"(/([A-Za-z0-9_.-]|\{(measurement|field|tag\.[^{}]+)\})+)*$",
        max_length=255,
    ),
]


DEFAULT_CLASS = "default"  # of retention


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Tag(_Frozen):
    """What every channel has, whatever its protocol: one row of a tag list."""

    name: ChannelName
    kind: ChannelKind = "analog"
    unit: str = ""
    lo: float | None = None
    hi: float | None = None
    deadband: Annotated[float, Field(ge=0)] = 0.0
    description: str = ""
    retention: str = DEFAULT_CLASS  # a class of [retention]


class OpcuaTag(Tag):
    """An OPC UA variable: ``address`` is its node id, as in ``ns=2;s=boiler1.drum_pressure``."""

    address: str
    interval: Duration | None = None  # sampling and publishing interval; None: the source's
    stale_after: Duration | None = None  # silence of this length is a gap; None: the source's


class ModbusTag(Tag):
    """One value in a device's registers: ``address`` is ``holding:100``, ``input:4``, ``coil:0`` or ``discrete:7``.

    Addresses count from 0, as in the protocol itself (not from 40001).
    """

    address: Annotated[str, Field(pattern=r"^(coil|discrete|input|holding):[0-9]{1,5}$")]
    type: RegisterType = "int16"
    word_order: WordOrder = "ABCD"
    bit: Annotated[int, Field(ge=0, le=15)] | None = None  # of a 16-bit register, 0 the lowest
    length: Annotated[int, Field(ge=1, le=123)] = 1  # registers of a string
    scale: float = 1.0
    divisor: float = 1.0  # value = register × scale ÷ divisor + offset; exact for tenths, where a scale of 0.1 is not
    offset: float = 0.0
    interval: Duration | None = None  # poll interval; None: the source's

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


class OpcuaSource(_Source):
    """An OPC UA server and what is subscribed there (OPC 10000-4, 5.13 and 5.14)."""

    kind: Literal["opcua"]
    address: Annotated[str, Field(pattern=r"^opc\.tcp://[^/\s]+")]
    security: SecurityPolicy = "Basic256Sha256"  # message security mode is SignAndEncrypt
    insecure: bool = False  # true: security mode None, for a network that is closed by other means
    server_certificate: Path | None = None  # the server's certificate (DER or PEM); None: the trust folder
    username: str | None = None
    password_file: Path | None = None
    publishing_interval: Duration = 0.5
    sampling_interval: Duration | None = None  # None: the publishing interval
    queue_size: Annotated[int, Field(ge=1, le=100_000)] = 100  # values of an item that the server keeps for us
    discard_oldest: bool = True  # what the server drops where that is not enough; false: the newest but one
    publish_requests: Annotated[int, Field(ge=1, le=50)] = 3  # in flight
    lifetime: Duration = 600.0  # the server keeps a subscription this long without us
    keep_alive: Duration = 10.0
    stale_after: Duration | None = None  # silence of a channel that is a gap; None: it may be silent, nothing changes
    skew_limit: Duration = 5.0  # clocks that differ by more are on record
    backfill: bool = True  # read from the server's history what was lost, where it keeps one
    tags: tuple[OpcuaTag, ...]


class ModbusSource(_Source):
    """A Modbus device (MODBUS Application Protocol V1.1b3)."""

    kind: Literal["modbus"]
    address: Annotated[str, Field(pattern=r"^tcp://[^/\s]+:[0-9]+$")]
    unit_id: Annotated[int, Field(ge=0, le=255)] = 1
    poll_interval: Duration = 1.0
    time_out: Duration = 1.0
    bridge: Annotated[int, Field(ge=0, le=120)] = 8  # unused registers read through to save a request
    max_registers: Annotated[int, Field(ge=1, le=125)] = 125  # a read; some devices take fewer
    tags: tuple[ModbusTag, ...]


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
    max_channels: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000  # created, at most
    max_rate: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000  # lines a second, over any longer while
    stale_after: Duration = 300.0  # silent for longer: a gap
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
    """The durable log between collectors and database, one file a collector process."""

    max_bytes: ByteCount = 2 * 1024**3


class WriterOptions(_Frozen):
    """What the writer may use of the database."""

    connections: Annotated[int, Field(ge=1, le=16)] = 2
    max_rows: Annotated[int, Field(ge=1_000, le=2_000_000)] = 400_000  # a transaction
    time_out: Duration = 60.0  # for every statement, and for a transaction as a whole
    future_limit: Age = 86400.0  # samples and events further ahead of their arrival go to quarantine
    oldest: Age = 3650 * 86400.0  # those longer before their arrival as well


class HealthOptions(_Frozen):
    """Where ``/health`` and ``/metrics`` are answered.

    opcua on port, modbus on + 1, writer on + 2, push on + 3, maintenance on + 4,
    viewer on + 5.
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


class Plant(_Frozen):
    """The whole configuration."""

    name: Name
    sources: tuple[Source, ...]
    spool: SpoolOptions = SpoolOptions()
    writer: WriterOptions = WriterOptions()
    health: HealthOptions = HealthOptions()
    push: PushOptions = PushOptions()
    viewer: ViewerOptions = ViewerOptions()
    storage: StorageOptions = StorageOptions()
    sealing: SealingOptions = SealingOptions()
    retention: Mapping[str, RetentionOptions] = MappingProxyType({DEFAULT_CLASS: RetentionOptions()})

    def opcua_sources(self) -> tuple[OpcuaSource, ...]:
        """The sources that the OPC UA collector reads."""
        return tuple(s for s in self.sources if isinstance(s, OpcuaSource))

    def modbus_sources(self) -> tuple[ModbusSource, ...]:
        """The sources that the Modbus collector reads."""
        return tuple(s for s in self.sources if isinstance(s, ModbusSource))

    def push_sources(self) -> tuple[PushSource, ...]:
        """The sources that push to us."""
        return tuple(s for s in self.sources if isinstance(s, PushSource))
