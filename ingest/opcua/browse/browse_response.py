"""Decodes answers to Browse and BrowseNext (OPC 10000-4, 5.9.2, 5.9.3 and 7.30): only what is needed of references.

asyncua's objects take kilobytes for a reference, and an answer may have tens of thousands.
"""

from __future__ import annotations

from sys import intern
from typing import Any, NamedTuple
from uuid import UUID

from asyncua import ua

from core.errors import DecodeError
from ingest.opcua.decode.binary import Reader
from ingest.opcua.decode.message import response_header

_RESPONSES = {ua.BrowseResponse: 530, ua.BrowseNextResponse: 536}  # binary encodings' node ids (OPC 10000-6, A.3)
_LEAST_RESULT = 12  # bytes: status, continuation point, no references
_LEAST_REFERENCE = 18


class Reference(NamedTuple):
    """A reference of a browsed node."""

    node: Any | None  # None: a node of another server
    name: str  # its browse name
    is_variable: bool
    is_property: bool


class BrowseResult(NamedTuple):
    """The references of a node. They are not all if there is a continuation point, or a fault."""

    references: list[Reference]
    point: bytes = b""
    fault: str = ""  # name of a status code that is not Good, or a sentence


def browse_results(body: bytes, response: type) -> list[BrowseResult]:
    """The result of each node, or continuation point, that was browsed. Raises DecodeError."""
    reader = Reader(body)
    response_header(reader, _RESPONSES[response])
    return [_result(reader) for _ in range(reader.count(_LEAST_RESULT))]


def _result(reader: Reader) -> BrowseResult:
    status = ua.StatusCode(reader.uint32())
    point = reader.string()
    references = [_reference(reader) for _ in range(reader.count(_LEAST_REFERENCE))]
    return BrowseResult(references, point, "" if status.is_good() else str(status.name))


def _reference(reader: Reader) -> Reference:
    is_property = reader.node_id() == ua.ObjectIds.HasProperty
    reader.skip(1)  # is it forward?
    node = _node(reader)
    reader.skip(2)  # namespace of the browse name
    name = _text(reader.string())
    reader.built_in(ua.VariantType.LocalizedText.value)  # display name
    is_variable = reader.int32() == ua.NodeClass.Variable
    reader.node_id()  # type definition
    return Reference(node, intern(name), is_variable, is_property)


def _node(reader: Reader) -> ua.NodeId | None:
    """A node of this server, whose identifier may be empty; None: one of another server."""
    encoding = reader.byte()
    namespace = 0
    identifier: int | str | UUID | bytes
    match encoding & 0x3F:
        case 0:
            identifier = reader.byte()
        case 1:
            namespace, identifier = reader.byte(), reader.uint16()
        case 2:
            namespace, identifier = reader.uint16(), reader.uint32()
        case 3:
            namespace, identifier = reader.uint16(), _text(reader.string())
        case 4:
            namespace, start = reader.uint16(), reader.at
            reader.skip(16)
            identifier = UUID(bytes_le=bytes(reader.body[start : reader.at]))
        case 5:
            namespace, identifier = reader.uint16(), reader.string()
        case unknown:
            raise DecodeError(f"node id of unknown encoding {unknown}")
    if encoding & 0x80:
        reader.string()  # namespace URI
    return None if encoding & 0x40 and reader.uint32() else ua.NodeId(identifier, namespace)


def _text(content: bytes) -> str:
    """Bytes that are not UTF-8 stay recognisable, as lone surrogates."""
    return content.decode(errors="surrogateescape")
