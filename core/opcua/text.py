"""Text forms of the non-numeric scalar built-in types (OPC 10000-6, 5.1.2), for text channels.

Node ids as in OPC 10000-6, 5.1.12 (``ns=2;s=a``), times in ISO 8601 and UTC, byte strings in hexadecimal, status
codes as ``0x80050000``, localized texts without locale, qualified names as ``1:Name``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from core.config.addresses.node_address import escaped
from core.errors import DecodeError
from core.opcua.binary import FieldReader

_EPOCH = datetime(1601, 1, 1, tzinfo=UTC)
_LAST_TICKS = 2_650_467_743_990_000_000  # 9999-12-31 23:59:59, which stands for all later times (OPC 10000-6, 5.2.2.5)


def _string(reader: FieldReader) -> str:
    return reader.string().decode("utf-8", errors="replace")


def _date_time(reader: FieldReader) -> str:
    ticks = min(max(reader.int64(), 0), _LAST_TICKS)
    time = _EPOCH + timedelta(microseconds=ticks // 10)
    fraction = f"{ticks % 10_000_000:07d}".rstrip("0")
    return f"{time:%Y-%m-%dT%H:%M:%S}{'.' + fraction if fraction else ''}Z".rjust(20, "0")


def _guid(reader: FieldReader) -> str:
    start = reader.at
    reader.skip(16)
    return str(UUID(bytes_le=bytes(reader.body[start : reader.at])))


def _bytes(reader: FieldReader) -> str:
    return reader.string().hex()


def _status(reader: FieldReader) -> str:
    return f"0x{reader.uint32():08X}"


def _qualified_name(reader: FieldReader) -> str:
    namespace = reader.uint16()
    name = _string(reader)
    return f"{namespace}:{name}" if namespace else name


def _localized_text(reader: FieldReader) -> str:
    mask = reader.byte()
    if mask & 1:
        reader.string()  # locale
    return _string(reader) if mask & 2 else ""


def node_id(reader: FieldReader) -> str:
    """The text form of a NodeId or ExpandedNodeId."""
    encoding = reader.byte()
    form = encoding & 0x3F
    namespace = 0
    if form == 0:
        identifier = f"i={reader.byte()}"
    elif form == 1:
        namespace = reader.byte()
        identifier = f"i={reader.uint16()}"
    elif form == 2:
        namespace = reader.uint16()
        identifier = f"i={reader.uint32()}"
    elif form not in _NAMED:
        raise DecodeError(f"node id of unknown encoding {form}")
    else:
        namespace = reader.uint16()
        name, read = _NAMED[form]
        identifier = f"{name}={read(reader)}"
    uri = _string(reader) if encoding & 0x80 else ""
    server = reader.uint32() if encoding & 0x40 else 0
    space = f"nsu={escaped(uri)};" if uri else f"ns={namespace};" if namespace else ""
    return f"{f'svr={server};' if server else ''}{space}{identifier}"


_NAMED: Mapping[int, tuple[str, Callable[[FieldReader], str]]] = {3: ("s", _string), 4: ("g", _guid), 5: ("b", _bytes)}

FORMS: Mapping[int, tuple[str, Callable[[FieldReader], str]]] = {
    12: ("String", _string),
    13: ("DateTime", _date_time),
    14: ("Guid", _guid),
    15: ("ByteString", _bytes),
    16: ("XmlElement", _string),
    17: ("NodeId", node_id),
    18: ("ExpandedNodeId", node_id),
    19: ("StatusCode", _status),
    20: ("QualifiedName", _qualified_name),
    21: ("LocalizedText", _localized_text),
}
"""Built-in type → name and reader of one value. Readers raise DecodeError if the message is truncated."""


class TextRun(NamedTuple):
    """Consecutive items with texts."""

    starts: list[int]  # bytes of the message, where each item begins
    texts: list[str]
    tails: list[int]  # where the bytes after each text begin


def text_run(reader: FieldReader, head: int, tail: int, max_items: int, end_at: int) -> TextRun:
    """Read the items whose two encoding bytes are those of the first one. Raises DecodeError.

    ``head`` and ``tail``: bytes of an item before its encoding bytes, and after its text. The run has at most
    ``max_items`` items, and ends with the one that reaches byte ``end_at``.
    """
    body, at = reader.body, reader.at
    encoding = body[at + head : at + head + 2]
    text = FORMS[encoding[1]][1]
    starts: list[int] = []
    texts: list[str] = []
    tails: list[int] = []
    while len(starts) < max_items and body.startswith(encoding, at + head) and (at < end_at or not starts):
        starts.append(at)
        reader.at = at + head + 2
        texts.append(text(reader))
        tails.append(reader.at)
        at = reader.at + tail
    if at > len(body):
        raise DecodeError(f"notification ends within an item, {max_items - len(starts) + 1} items short")
    reader.at = at
    return TextRun(starts, texts, tails)
