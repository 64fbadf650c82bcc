"""The model of sources and their tag lists. See ``core.config.model``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeAlias, get_args

from pydantic import BeforeValidator, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass
from pydantic_core import ArgsKwargs

from core.config.addresses.modbus_address import PATTERN
from core.config.addresses.value_path import INDEX_PATTERN, MEMBER_PATTERN, joined
from core.config.base import Frozen, Name, Text, fields_of
from core.config.quantities import Duration, Patterns, StatusCodes, StatusPlace, Texts, parse_texts

SourceKind: TypeAlias = Literal["modbus", "opcua", "push"]
ChannelKind: TypeAlias = Literal["analog", "discrete", "counter", "text"]
WordOrder: TypeAlias = Literal["ABCD", "CDAB", "BADC", "DCBA"]
RegisterTable: TypeAlias = Literal["coil", "discrete", "input", "holding"]


class NumberFormat(NamedTuple):
    """A number in registers."""

    registers: int
    dtype: str
    """Type of numpy, big-endian. It may be wider: numpy has no integers of six bytes."""


# What Modbus registers hold, by the column `type`: this table is the only one.
NUMBERS: Mapping[str, NumberFormat] = {
    "bool": NumberFormat(1, ">u2"),
    "int16": NumberFormat(1, ">i2"),
    "uint16": NumberFormat(1, ">u2"),
    "int32": NumberFormat(2, ">i4"),
    "uint32": NumberFormat(2, ">u4"),
    "int48": NumberFormat(3, ">i8"),
    "uint48": NumberFormat(3, ">u8"),
    "int64": NumberFormat(4, ">i8"),
    "uint64": NumberFormat(4, ">u8"),
    "float32": NumberFormat(2, ">f4"),
    "float64": NumberFormat(4, ">f8"),
}
INTEGERS = tuple(name for name, number in NUMBERS.items() if number.dtype[1] in "iu" and name != "bool")
STRINGS = ("string", "stringz", "string16")
if TYPE_CHECKING:
    RegisterType: TypeAlias = str
else:
    RegisterType = Literal[(*NUMBERS, *STRINGS)]
TimeOrigin: TypeAlias = Literal["source", "server", "arrival"]
PushTimeOrigin: TypeAlias = Literal["source", "arrival"]
AlarmPriority: TypeAlias = Literal["critical", "high", "medium", "low"]
PRIORITIES: tuple[AlarmPriority, ...] = get_args(AlarmPriority)  # from the most urgent one
SecurityPolicy: TypeAlias = Literal["Basic256Sha256", "Aes128Sha256RsaOaep", "Aes256Sha256RsaPss"]
# What may be wrong with a server's certificate that is trusted (OPC 10000-4, 6.1.3)
AcceptedFault: TypeAlias = Literal[
    "bad-signature",
    "expired",
    "expired-crl",
    "key-size",
    "not-yet-valid",
    "revocation-unknown",
    "weak-hash",
    "wrong-host",
    "wrong-uri",
    "wrong-usage",
]
AcceptedTlsFault: TypeAlias = Literal["expired", "wrong-host"]

CHANNEL_NAME_LENGTH = 255
# Letters, marks and numbers of every script
ChannelName = Annotated[
    str, Field(pattern=r"^[\p{L}\p{M}\p{N}_.%-]+(/[\p{L}\p{M}\p{N}_.%-]+)*$", max_length=CHANNEL_NAME_LENGTH)
]
# The column no_data: hexadecimal and decimal numbers, ranges, nan
_NUMBER = r"-?(0x[0-9a-fA-F]{1,16}|[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]{1,3})?|inf)"
_NO_DATA_ITEM = rf"({_NUMBER}(\.\.{_NUMBER})?|nan)"
_NO_DATA = rf"^({_NO_DATA_ITEM}(\s*;\s*{_NO_DATA_ITEM})*)?$"
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


# A plant has one of these a channel: with slots it takes a sixth of the memory.
_TAG = ConfigDict(extra="forbid", allow_inf_nan=False)


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class Tag:
    """A row of a tag list: the columns common to all protocols."""

    name: ChannelName
    """The channel's name, unique in the plant."""
    kind: ChannelKind = "analog"
    """The kind of the values. `counter`: they only increase, unless the counter is reset. `text`: the values are
    events, not samples, and integers stay exact beyond 2^53."""
    wraps_at: float | None = None
    """For a counter: the number of its steps, in the unit, after which it starts again, as 65536 for a uint16 without
    scaling. Not set: it does not; every decrease is a reset to 0."""
    unit: Text = ""
    """The unit of measurement, for people."""
    lo: float | None = None
    """The low end of the measuring range."""
    hi: float | None = None
    """The high end of the measuring range."""
    no_data: Annotated[str, Field(pattern=_NO_DATA, coerce_numbers_to_str=True)] = ""
    """Raw values, before `scale` and `offset`, by which the device says that it has no value, as in `65535`,
    `0x8000; 0x7FFF`, `32760..32767` or `nan`. With a signed type, `0x8000` is -32768. Such a sample is Bad
    (BadNoDataAvailable), and its value NaN. A NaN of a Modbus device always is; that of an OPC UA server keeps its
    status."""
    deadband: Annotated[float, Field(ge=0)] = 0.0
    """OPC UA: the absolute deadband, in the unit. Other protocols ignore it."""
    description: Text = ""
    """A description, for people."""
    retention: str = DEFAULT_CLASS
    """The retention class, a table `[retention.CLASS]`."""
    alarm_lolo: float | None = None
    """The low-low alarm limit, in the unit."""
    alarm_lo: float | None = None
    """The low alarm limit, in the unit."""
    alarm_hi: float | None = None
    """The high alarm limit, in the unit. For a discrete channel, 0.5 means that 1 is an alarm."""
    alarm_hihi: float | None = None
    """The high-high alarm limit, in the unit."""
    alarm_deadband: Annotated[float, Field(ge=0)] = 0.0
    """The distance from the limit, inside it, at which the alarm returns to normal, in the unit."""
    alarm_delay: Duration | None = None
    """The time for which the value must be beyond the limit before the alarm is raised. Not set: immediately."""
    alarm_off_delay: Duration | None = None
    """The time for which the value must be inside the limit before the alarm returns to normal. Not set:
    immediately."""
    alarm_rate: float | None = None
    """An alarm is raised if the value changes faster than this, in units per second. Of a counter the increase counts,
    over wraps and resets."""
    alarm_stale: Duration | None = None
    """An alarm is raised if the channel has no samples for this long."""
    alarm_bad: bool = False
    """An alarm is raised if a sample is Bad. A Modbus device that does not answer gives one; an OPC UA server that is
    away gives none: `alarm_stale` is for that."""
    alarm_priority: AlarmPriority = "medium"
    """The priority of the channel's alarms."""
    alarm_latch: bool = False
    """The alarm stays until it is acknowledged, even after the value returns to normal."""


# Fields of tags that affect how values are read, shown, kept and watched, and not what they mean
PRESENTATION_FIELDS = frozenset(
    {
        *("deadband", "description", "hi", "interval", "lo", "no_data", "retention", "stale_after", "time"),
        *(name for name in fields_of(Tag) if name.startswith("alarm_")),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class OpcuaTag(Tag):
    """An OPC UA variable."""

    address: str
    """The node id, as in `nsu=http://vendor.com/line;s=boiler1.pressure`, which names the namespace by its URI, or
    `ns=2;s=boiler1.pressure`, by its index. In a URI, `%3B` stands for a semicolon and `%25` for a percent sign. Blanks
    at the end of a text identifier, which begins with `s=`, belong to it."""
    index: Annotated[str, Field(pattern=INDEX_PATTERN, coerce_numbers_to_str=True)] | None = None
    """If the variable, or its `member`, is an array: the element to read, from 0, with a number for each dimension, as
    in `3` or `1,2`. Not set: it is no array."""
    member: Annotated[str, Field(pattern=MEMBER_PATTERN)] = ""
    """If the variable is a structure: the member to read, as in `Speed`; of a structure in it, as in `Motor.Speed`; of
    one in an array, as in `Motors[2].Speed`; if the variable is an array, as in `[2].Speed`. Not set: the variable is
    no structure."""
    time: TimeOrigin | None = None
    """The origin of the samples' times. Not set: that of the source."""
    interval: Duration | None = None
    """The publishing interval, and the sampling interval unless the source sets one. Not set: that of the source."""
    stale_after: Duration | None = None
    """A gap is recorded if the channel has no samples for this long. Not set: that of the source."""

    @property
    def path(self) -> str:
        """The channel's part of the variable's value, see ``core.config.addresses.value_path``."""
        return joined(self.member, self.index)

    @property
    def reads_whole(self) -> bool:
        """Return whether the server sends the whole value, which all such channels of a variable share."""
        return bool(self.member) or "," in (self.index or "")


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class ModbusTag(Tag):
    """A value in a device's registers, coils or discrete inputs."""

    address: Annotated[str, Field(pattern=r"^(coil|discrete|input|holding):[0-9]{1,5}$")]
    """The register table and the address, as in `holding:100`. Addresses count from 0, not from 40001."""
    type: RegisterType = "int16"
    """The data type. For a coil or a discrete input, the default is bool. `string`: UTF-8, two bytes in a register,
    padded at the end with NUL or blanks. `stringz`: the same, but what follows the first NUL is ignored. `string16`:
    UTF-16, a character in each register. What can't be decoded, such as a NUL inside, is stored as U+FFFD, and the
    status is Uncertain."""
    word_order: WordOrder = "ABCD"
    """The order of the bytes on the wire. A is the most significant byte. Longer numbers follow the same rule: with
    CDAB, the least significant register is the first."""
    bit: Annotated[int, Field(ge=0, le=15)] | None = None
    """With `type` bool: the bit of the register. 0 is the least significant one."""
    length: Annotated[int, Field(ge=1, le=123)] = 1
    """With `type` string, stringz or string16: the number of registers."""
    scale: float = 1.0
    """value = register × scale ÷ divisor + offset."""
    divisor: float = 1.0
    """As for `scale`. A divisor of 10 gives exact tenths, which a scale of 0.1 does not."""
    offset: float = 0.0
    """As for `scale`."""
    interval: Duration | None = None
    """The poll interval. Not set: that of the source."""
    unit_id: UnitId | None = None
    """The unit id of the device behind the address. Not set: that of the source."""

    @model_validator(mode="before")
    @classmethod
    def _bits(cls, row: Any) -> Any:
        values = row.kwargs if isinstance(row, ArgsKwargs) else row
        if isinstance(values, Mapping) and "type" not in values and str(values.get("address")).startswith(_BITS):
            return {**values, "type": "bool"}
        return row

    @property
    def table(self) -> RegisterTable:
        """The register table."""
        return self.address.split(":")[0]  # type: ignore[return-value]

    @property
    def register(self) -> int:
        """The first register, from 0."""
        return int(self.address.split(":")[1])

    @property
    def width(self) -> int:
        """The number of registers, or bits, that a value takes."""
        return self.length if self.type in STRINGS else NUMBERS[self.type].registers


class _Source(Frozen):
    """A source that is read."""

    name: Name
    """The source's name, unique in the plant."""
    address: str
    time_out: Duration = 5.0
    """The timeout of each network operation."""
    backoff_min: Duration = 0.5
    """The wait before the first reconnection attempt."""
    backoff_max: Duration = 30.0
    """The maximum wait before a reconnection attempt."""
    skew_limit: Duration = 5.0
    """A larger difference between the clocks of source and plantlog is recorded as an event `clock_skew`, a larger step
    of plantlog's clock as an event `clock_set`."""


_EndpointUrl = Annotated[str, Field(pattern=r"^opc\.tcp://[^/\s]+")]


class OpcuaSource(_Source):
    """An OPC UA server (OPC 10000-4, 5.13 and 5.14)."""

    kind: Literal["opcua"]
    address: _EndpointUrl
    """The endpoint URL of the server. Not needed with `addresses`."""
    addresses: Annotated[tuple[_EndpointUrl, ...], BeforeValidator(parse_texts)] = ()
    """The endpoint URLs of redundant servers, instead of `address`. See *Redundant servers* in
    docs/sources.md."""
    security: SecurityPolicy = "Basic256Sha256"
    """The security policy. The message security mode is always SignAndEncrypt."""
    insecure: bool = False
    """true: security mode None, for a network that is protected by other means."""
    server_certificate: Path | None = None
    """The server's certificate, DER or PEM. Not set: one that the trust list has, or a CA in it has issued."""
    accept: Annotated[tuple[AcceptedFault, ...], BeforeValidator(parse_texts)] = ()
    """Faults of the server's certificate, and of its CAs, that are tolerated (OPC 10000-4, 6.1.3)."""
    username: str | None = None
    """The user name. Not set: anonymous."""
    password_file: Path | None = None
    """The file with the user's password."""
    password_in_clear: bool = False
    """true: with `insecure`, the password may be sent unencrypted. It is encrypted wherever the server offers that, but
    somebody who poses as the server can read it."""
    user_certificate_file: Path | None = None
    """The certificate of the user, DER or PEM, instead of a user name."""
    user_key_file: Path | None = None
    """The file with the RSA key of the user's certificate, DER or PEM, without a password."""
    publishing_interval: Duration = 0.5
    """The publishing interval of the subscriptions."""
    sampling_interval: Duration | None = None
    """The sampling interval of the monitored items. Not set: the publishing interval."""
    queue_size: Annotated[int, Field(ge=2, le=100_000)] = 100
    """The number of values of a monitored item that the server queues. A queue of one does not report lost values (OPC
    10000-4, 5.13.1.5)."""
    discard_oldest: bool = True
    """The value that the server drops if a queue is full. true: the oldest; false: the newest in the queue."""
    publish_requests: Annotated[int, Field(ge=1, le=50)] = 3
    """The number of publish requests in flight."""
    lifetime: Duration = 600.0
    """The time for which the server keeps a subscription without publish requests. At least three times
    `keep_alive`."""
    keep_alive: Duration = 10.0
    """The interval at which the server sends a keep-alive message if it has no data to send."""
    time: TimeOrigin = "source"
    """The origin of the samples' times. `source`: the source timestamp, or the server timestamp where there is none, or
    where a value differs from the one before and its source timestamp is not later. `server`: the server timestamp.
    `arrival`: plantlog's clock, also where the server sends no timestamp."""
    stale_after: Duration | None = None
    """A gap is recorded if a channel has no samples for this long. Not set: a channel may be silent while its value
    does not change."""
    backfill: bool = True
    """Read missing samples from the server's history, if it has one."""
    notifiers: Texts = ()
    """The nodes whose events are recorded, and whose conditions are in the alarm list. `["i=2253"]`, the Server object:
    all events of the server. Not set: no events."""
    tags: tuple[OpcuaTag, ...]
    """The tag list, a CSV file."""

    @model_validator(mode="before")
    @classmethod
    def _first_address(cls, values: Any) -> Any:
        addresses = values.get("addresses") if isinstance(values, Mapping) else None
        if isinstance(addresses, Sequence) and addresses and "address" not in values:
            return {**values, "address": addresses[0]}
        return values

    @property
    def servers(self) -> tuple[str, ...]:
        """The addresses of all servers."""
        return self.addresses or (self.address,)

    def at(self, address: str) -> OpcuaSource:
        """The source with only the server at ``address``."""
        return self.model_copy(update={"address": address, "addresses": ()})


class ModbusSource(_Source):
    """A Modbus device (MODBUS Application Protocol V1.1b3)."""

    kind: Literal["modbus"]
    address: Annotated[str, Field(pattern=PATTERN)]
    """Modbus TCP: `tcp://HOST:PORT`; with TLS: `tls://HOST:PORT`, see *Modbus over TLS* in docs/sources.md. RTU on a
    serial line: `serial:///dev/ttyUSB0`. RTU over TCP, for a gateway that only passes bytes on: `rtu+tcp://HOST:PORT`.
    See *Serial lines* there. Sources with the same address share one connection."""
    server_certificate: Path | None = None
    """With `tls://`, required: the server's certificate, or those of the authorities that issue it, DER or PEM."""
    accept: Annotated[tuple[AcceptedTlsFault, ...], BeforeValidator(parse_texts)] = ()
    """With `tls://`: faults of the server's certificate that are tolerated. `expired`: its validity is not checked."""
    client_certificate_file: Path | None = None
    """With `tls://`: the client's certificate, PEM; intermediate ones may follow. Not set: plantlog's own, which OPC UA
    servers see, too."""
    client_key_file: Path | None = None
    """The file with the key of the client's certificate, PEM, without a password."""
    unit_id: UnitId = 1
    """The unit id."""
    poll_interval: Duration = 1.0
    """The interval at which each tag is read."""
    time_out: Duration = 1.0
    bridge: Annotated[int, Field(ge=0, le=120)] = 8
    """The maximum number of unused registers between two tags that are read to save a request."""
    max_registers: Annotated[int, Field(ge=1, le=125)] = 125
    """The maximum number of registers in a request. Some devices support fewer than the protocol allows."""
    any_transaction_id: bool = False
    """true: a response is accepted although it has another transaction id than the request, as some devices send it. A
    request without a response then ends the connection, so that no other response can be taken for it. Only for `tcp://`
    and `tls://`."""
    standby: Literal["idle", "poll"] = "idle"
    """Polling by the standby of a redundant pair. `idle`: it polls once it writes, which leaves a gap of the time that
    a take-over takes. `poll`: it polls, too, so that nothing is missing; the device needs a second connection. Only for
    `tcp://` and `tls://`: a serial line has one client."""
    tags: tuple[ModbusTag, ...]
    """The tag list, a CSV file."""


@dataclass(frozen=True, slots=True, kw_only=True, config=_TAG)
class PushTag(Tag):
    """A channel that is pushed."""

    address: ChannelName
    """The name that the source's `channel` template gives the field. Other characters than ASCII letters, digits and
    _ . - are percent-encoded in it: `ä` is `%C3%A4`."""
    time: PushTimeOrigin | None = None
    """The origin of the samples' times. Not set: that of the source."""


class PushSource(Frozen):
    """A gateway that pushes InfluxDB line protocol over HTTP. Its tokens identify it."""

    name: Name
    """The source's name, unique in the plant."""
    kind: Literal["push"]
    token_file: Path
    """A file with the hashes of the gateway's tokens, as `plantlog source token add` writes it; see *Tokens* in
    docs/sources.md."""
    channel: ChannelTemplate = "{measurement}.{field}"
    """The template for the channel of a field, with `{measurement}`, `{field}` and `{tag.NAME}`."""
    time: PushTimeOrigin = "source"
    """The origin of the samples' times. `source`: the lines' timestamps, or plantlog's clock where there is none. Of
    different values with the same time the first is stored, and the others are a gap `time_stands_still`. `arrival`:
    plantlog's clock, for devices whose clock stands still."""
    unknown: Literal["create", "reject"] = "reject"
    """The treatment of a channel that is not in the tag list: it is created, or its lines are rejected."""
    counts: Patterns = ()
    """Measurements, or fields as `measurement.field`, that are increments and are counted. `*` matches any text."""
    status: StatusPlace = ""
    """The field or tag of a line with the status of its values, as `field.NAME` or `tag.NAME`. Not set, and in lines
    without it: Good. The field is no channel. Legal are Good, Uncertain, Bad, an OPC UA StatusCode, a text that ends
    with one as `OK (0x0)` does, and what `status_codes` has; any other word is stored as Uncertain, with an event."""
    status_codes: StatusCodes = ()
    """The meanings of the words of `status`, as `WORD=STATUS`."""
    max_channels: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """The maximum number of channels that are created."""
    max_rate: Annotated[int, Field(ge=1, le=10_000_000)] = 50_000
    """The maximum number of lines per second, on average."""
    stale_after: Duration = 300.0
    """A gap is recorded if the gateway sends nothing for this long."""
    skew_limit: Duration = 5.0
    """A larger step of plantlog's clock is recorded as an event `clock_set`. It affects lines without a timestamp."""
    tags: tuple[PushTag, ...] = ()
    """The tag list, a CSV file. Not set: none."""

    @property
    def address(self) -> str:
        """Address that it pushes to, on the host and port of ``[push]``."""
        return "/api/v2/write"


Source: TypeAlias = OpcuaSource | ModbusSource | PushSource
