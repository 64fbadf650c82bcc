"""Checks across fields that are legal on their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import Any
from urllib.parse import urlsplit

from core.addresses import OPCUA_PORT, is_loopback, reachable
from core.config import certificate_files, modbus_tls, repositories
from core.config.addresses import modbus_address, node_address, push_address
from core.config.base import fields_of
from core.config.explain import FieldFault, shown
from core.config.model import (
    ArchiveOptions,
    BackupOptions,
    NotifyOptions,
    QuestionsOptions,
    RetentionOptions,
    TlsOptions,
)
from core.config.sources import (
    INTEGERS,
    STRINGS,
    ModbusSource,
    ModbusTag,
    OpcuaSource,
    OpcuaTag,
    PushSource,
    PushTag,
    Source,
    Tag,
)

_BITS = ("coil", "discrete")
# Bytes of an RTU frame besides the registers: unit id, function code and CRC, with address and count, or byte count
_REQUEST_BYTES, _RESPONSE_BYTES = 8, 5
_NO_BROADCAST = "1 to 255: on a serial line, 0 is a broadcast, which no device answers"
_ALARM_COLUMNS = {name: field.default for name, field in fields_of(Tag).items() if name.startswith("alarm_")}
_alarms = attrgetter(*_ALARM_COLUMNS)
_NO_ALARMS = tuple(_ALARM_COLUMNS.values())
_LIMITS = ("alarm_lolo", "alarm_lo", "alarm_hi", "alarm_hihi")


def in_options(options: object) -> Iterator[FieldFault]:
    """Faults between options of one table."""
    if isinstance(options, BackupOptions):
        yield from repositories.in_backup(options)
    if isinstance(options, ArchiveOptions):
        yield from repositories.in_archive(options)
    if isinstance(options, TlsOptions):
        yield from certificate_files.incomplete(options, "certificate_file", "key_file")
    if isinstance(options, QuestionsOptions):
        yield from _in_questions(options)


def _in_questions(options: QuestionsOptions) -> Iterator[FieldFault]:
    files = {name: getattr(options, name) for name in ("ca_file", "certificate_file", "key_file")}
    if options.cluster is None or options.cluster.startswith("tcp:"):
        for name, file in files.items():
            if file is not None:
                yield name, shown(file), "no value without cluster = tls://HOST:PORT"
    else:
        for name, file in files.items():
            if file is None:
                yield name, "nothing", f"a file of the cluster's certificates, for {shown(options.cluster)}"
    if options.cluster is None:
        return
    if not reachable(options.cluster):
        yield "cluster", shown(options.cluster), "a host, and a port from 1 to 65535"
    elif options.cluster.startswith("tcp:") and not is_loopback(urlsplit(options.cluster).hostname or ""):
        legal = "tls://, or tcp:// on loopback: a cluster runs what anybody who reaches it sends"
        yield "cluster", shown(options.cluster), legal


def in_source(source: Source) -> Iterator[FieldFault]:
    """Faults between options of a source."""
    if isinstance(source, PushSource):
        if source.unknown == "reject" and not source.tags and not source.counts:
            yield "unknown", shown(source.unknown), "create, or add tags or counts: otherwise nothing can be pushed"
        if source.status_codes and not source.status:
            yield "status_codes", shown(list(source.status_codes)), "with status: the field or tag that has these words"
        return
    if isinstance(source, ModbusSource):
        yield from _in_modbus_source(source)
    elif not reachable(source.address):
        yield "address", shown(source.address), "a host, and a port from 1 to 65535"
    if source.backoff_min > source.backoff_max:
        yield "backoff_min", f"{source.backoff_min:g} s", f"at most backoff_max, which is {source.backoff_max:g} s"
    if isinstance(source, OpcuaSource):
        yield from _in_opcua_source(source)


def _in_modbus_source(source: ModbusSource) -> Iterator[FieldFault]:
    try:
        address = modbus_address.parse(source.address)
    except modbus_address.AddressError as error:
        yield "address", error.found, error.legal
        return
    yield from modbus_tls.contradictions(source)
    if not address.rtu:
        return
    if source.unit_id == 0:
        yield "unit_id", "0", _NO_BROADCAST
    if source.any_transaction_id:
        legal = f"false with {source.address.partition(':')[0]}://, which has no transaction ids"
        yield "any_transaction_id", "true", legal
    if source.standby == "poll":
        yield (
            "standby",
            shown(source.standby),
            "idle: a serial line has one client at a time",
        )
    longest = address.seconds(_REQUEST_BYTES + _RESPONSE_BYTES + 2 * source.max_registers)
    if longest >= source.time_out:
        legal = f"more than {longest:.3g} s, which {source.max_registers} registers take at {address.baud} baud"
        yield "time_out", f"{source.time_out:g} s", f"{legal}; or a lower max_registers"


def _in_opcua_source(source: OpcuaSource) -> Iterator[FieldFault]:
    if source.addresses:
        yield from _in_addresses(source)
    if source.lifetime < 3 * source.keep_alive:
        if "lifetime" in source.model_fields_set:
            legal = f"at least three times keep_alive, which is {source.keep_alive:g} s (OPC 10000-4, 5.14.2)"
            yield "lifetime", f"{source.lifetime:g} s", legal
        else:
            legal = f"at most a third of lifetime, which is {source.lifetime:g} s by default (OPC 10000-4, 5.14.2)"
            yield "keep_alive", f"{source.keep_alive:g} s", legal
    for notifier in source.notifiers:
        if node_address.fault(notifier):
            yield "notifiers", shown(notifier), 'node ids, such as "i=2253" for the Server object'
    if source.password_file is not None and source.username is None:
        yield "password_file", shown(source.password_file), "no value, or set username"
    if source.insecure and source.server_certificate is not None:
        yield "server_certificate", shown(source.server_certificate), "no value with insecure = true"
    if source.insecure and source.accept:
        yield "accept", shown(list(source.accept)), "no value with insecure = true: no certificate is checked"
    yield from _in_user_certificate(source)
    if source.password_in_clear and not (source.insecure and source.password_file is not None):
        yield "password_in_clear", "true", "false without insecure = true and a password_file"


def in_notify(options: NotifyOptions) -> Iterator[FieldFault]:
    """Faults between options of [notify]."""
    if options.webhook is None and options.smtp is None:
        yield "webhook", "nothing", "webhook or smtp: otherwise nobody is notified"
    if options.webhook_secret_file is not None and options.webhook is None:
        yield "webhook_secret_file", shown(options.webhook_secret_file), "no value, or set webhook"
    mail = options.smtp is not None
    for name, value in (("mail_from", options.mail_from), ("mail_to", options.mail_to)):
        if mail != bool(value):
            yield (
                name,
                shown(value) if value else "nothing",
                "an address, because smtp is set" if mail else "no value, or set smtp",
            )
    yield from certificate_files.incomplete(options, "smtp_username", "smtp_password_file")
    if options.smtp_username is not None and options.smtp_security == "none":
        yield "smtp_security", shown("none"), "starttls or tls: a password is never sent unencrypted"


def in_tag(tag: Tag, illegal: Collection[str] = ()) -> Iterator[FieldFault]:
    """Faults between columns of a tag.

    ``illegal``: columns that the tag lacks because their cells have no legal value; checks that need them are left out.
    """
    for check in _TAG_CHECKS[type(tag)]:
        try:
            yield from check(tag)
        except AttributeError:
            if not illegal:
                raise


def _in_range(tag: Tag) -> Iterator[FieldFault]:
    if tag.lo is not None and tag.hi is not None and tag.lo >= tag.hi:
        yield "lo", shown(tag.lo), f"less than hi, which is {tag.hi}"


def _in_no_data(tag: Tag) -> Iterator[FieldFault]:
    if tag.no_data and tag.kind == "text":
        yield "no_data", shown(tag.no_data), "no value with kind text"


def _in_limits(tag: Tag) -> Iterator[FieldFault]:
    """Check that alarm limits are in their order, those that are legal."""
    limits = [(name, level) for name in _LIMITS if (level := getattr(tag, name, None)) is not None]
    for (lower, low), (higher, high) in pairwise(limits):
        if low >= high:
            yield lower, shown(low), f"less than {higher}, which is {high}"
    lows = [level for name, level in limits if name in _LIMITS[:2]]
    highs = [level for name, level in limits if name in _LIMITS[2:]]
    if lows and highs and 0 < min(highs) - max(lows) < tag.alarm_deadband:
        legal = f"at most {min(highs) - max(lows)}, the distance between the limits: no value would be normal again"
        yield "alarm_deadband", shown(tag.alarm_deadband), legal


def _in_alarms(tag: Tag) -> Iterator[FieldFault]:
    """Check the columns ``alarm_…``: nothing without a limit."""
    if _alarms(tag) == _NO_ALARMS:
        return
    if tag.alarm_rate is not None and tag.alarm_rate <= 0:
        yield "alarm_rate", shown(tag.alarm_rate), "more than 0 units per second"
    has_limit = any(getattr(tag, name) is not None for name in (*_LIMITS, "alarm_rate", "alarm_stale"))
    has_limit = has_limit or tag.alarm_bad
    if tag.kind == "text" and has_limit:
        yield "kind", shown(tag.kind), "analog, discrete or counter: a text has no alarm limits"
    if not has_limit:
        for name in ("alarm_deadband", "alarm_delay", "alarm_off_delay", "alarm_priority", "alarm_latch"):
            if getattr(tag, name) != _ALARM_COLUMNS[name]:
                yield name, shown(getattr(tag, name)), "no value in a row without an alarm limit"


def _in_wraps(tag: Tag) -> Iterator[FieldFault]:
    if tag.wraps_at is not None and tag.kind != "counter":
        yield "wraps_at", shown(tag.wraps_at), "no value in a row whose kind is not counter"
    elif tag.wraps_at is not None and tag.wraps_at <= 0:
        yield "wraps_at", shown(tag.wraps_at), "more than 0"


def _in_node_id(tag: OpcuaTag) -> Iterator[FieldFault]:
    if fault := node_address.fault(tag.address):
        legal = "a node id as in ns=2;s=Boiler1.Pressure, ns=2;i=1001 or nsu=http://vendor.com/line;s=Boiler1.Pressure"
        yield "address", f"{shown(tag.address)} ({fault})", legal


def _in_deadband(tag: OpcuaTag) -> Iterator[FieldFault]:
    if tag.reads_whole and tag.deadband:
        column, kind = ("member", "structure") if tag.member else ("an index of several dimensions", "matrix")
        yield "deadband", shown(tag.deadband), f"no value with {column}: a server has no deadband for a {kind}"


def _in_registers(tag: ModbusTag) -> Iterator[FieldFault]:
    if tag.register + tag.width > 65_536:
        registers = "1 register ends" if tag.width == 1 else f"{tag.width} registers end"
        yield "address", shown(tag.address), f"an address whose {registers} at or before 65535"


def _in_bit(tag: ModbusTag) -> Iterator[FieldFault]:
    table, of_bits = tag.table, tag.table in _BITS
    if of_bits and tag.type != "bool":
        yield "type", shown(tag.type), f"bool, the only type in table {table}"
    if not of_bits and tag.type == "bool" and tag.bit is None:
        yield "bit", "nothing", "the bit of the register, 0 to 15"
    if tag.bit is not None and (tag.type != "bool" or of_bits):
        yield "bit", shown(tag.bit), "no value: a bit requires type bool in a holding or input register"


def _in_length(tag: ModbusTag) -> Iterator[FieldFault]:
    if tag.length != 1 and tag.type not in STRINGS:
        yield "length", shown(tag.length), "no value: a length requires type string, stringz or string16"


def _in_text(tag: ModbusTag) -> Iterator[FieldFault]:
    """Check a register's text: a string, or an integer's exact decimal form."""
    if tag.type in STRINGS and tag.kind != "text":
        default = ", the default" if tag.kind == fields_of(Tag)["kind"].default else ""
        yield "kind", f"{shown(tag.kind)}{default}", f"text for type {tag.type}"
    if tag.kind == "text" and tag.type not in (*INTEGERS, *STRINGS):
        yield "kind", shown(tag.kind), f"text for a string or an integer, not for type {tag.type}"


def _in_factors(tag: ModbusTag) -> Iterator[FieldFault]:
    for name in ("scale", "divisor"):
        if getattr(tag, name, None) == 0:
            yield name, "0", "a number other than 0"
    for name in ("scale", "divisor", "offset") if tag.kind == "text" else ():
        plain, factor = fields_of(ModbusTag)[name].default, getattr(tag, name, None)
        if factor not in (None, plain):
            yield name, shown(factor), f"{plain:g} with kind text: texts are stored unscaled"


def _in_field(tag: PushTag) -> Iterator[FieldFault]:
    if (matching := push_address.matching(tag.address)) != tag.address:
        yield "address", shown(tag.address), f"{matching}, the form that the template gives: others never match"


_CHECKS: tuple[Callable[[Any], Iterator[FieldFault]], ...] = (_in_range, _in_no_data, _in_limits, _in_alarms, _in_wraps)
_TAG_CHECKS = {
    Tag: _CHECKS,
    OpcuaTag: (*_CHECKS, _in_node_id, _in_deadband),
    ModbusTag: (*_CHECKS, _in_registers, _in_bit, _in_length, _in_text, _in_factors),
    PushTag: (*_CHECKS, _in_field),
}


def between(source: Source, tag: Tag) -> Iterator[FieldFault]:
    """Faults between columns of a tag and options of its source."""
    if not (isinstance(source, ModbusSource) and isinstance(tag, ModbusTag)):
        return
    if tag.unit_id == 0 and not source.address.startswith(("tcp:", "tls:")):
        yield "unit_id", "0", _NO_BROADCAST
    if tag.width > source.max_registers:
        name = "length" if tag.type in STRINGS else "type"
        legal = f"at most {source.max_registers} registers, the source's max_registers"
        yield name, f"{tag.width} registers", legal


def in_retention(options: RetentionOptions) -> Iterator[FieldFault]:
    """Faults between retention periods of a class: rollups and events must not be deleted before the samples."""
    for name, minimum_name in (("minute", "raw"), ("hour", "minute"), ("event", "raw")):
        age, minimum = getattr(options, name), getattr(options, minimum_name)
        if age is not None and (minimum is None or age < minimum):
            yield name, _days(age), f"at least {minimum_name}, which is {_days(minimum)}"


def _days(age: float | None) -> str:
    return "forever" if age is None else f"{age / 86400:g}d"


def _in_user_certificate(source: OpcuaSource) -> Iterator[FieldFault]:
    yield from certificate_files.incomplete(source, "user_certificate_file", "user_key_file")
    if source.user_certificate_file is not None:
        found = shown(source.user_certificate_file)
        if source.username is not None:
            yield "user_certificate_file", found, "no value with username: a user has one identity"
        if source.insecure:
            yield "user_certificate_file", found, "no value with insecure = true: it needs the server's certificate"


def _in_addresses(source: OpcuaSource) -> Iterator[FieldFault]:
    """Check the addresses of redundant servers."""
    if source.address != source.addresses[0]:
        yield "address", shown(source.address), "either address or addresses, not both"
    if len(source.addresses) == 1:
        yield "addresses", "one", "two or more; for one server, address"
    seen: dict[tuple[str | None, int | None], str] = {}
    for address in source.addresses:
        if not reachable(address):
            yield "addresses", shown(address), "a host, and a port from 1 to 65535"
            continue
        parts = urlsplit(address)
        if (first := seen.setdefault((parts.hostname, parts.port or OPCUA_PORT), address)) is not address:
            server = "" if first == address else f", which is the same server as {first}"
            yield "addresses", f"{shown(address)} again{server}", "each server once"
    if source.server_certificate is not None:
        legal = "not with addresses: each server has its own; put them into pki/trusted in the state folder"
        yield "server_certificate", shown(source.server_certificate), legal
