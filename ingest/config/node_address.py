"""The address of an OPC UA tag: a node id as text (OPC 10000-6, 5.3.1.10 and 5.3.1.11).

``ns=2;s=Tank1.Level`` names the namespace by its index, ``nsu=http://vendor.com/line;s=Tank1.Level`` by its URI. In a
URI, ``%3B`` stands for a semicolon, ``%25`` for a percent sign. A text identifier may hold anything, also ``;``.
"""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

Identifier: TypeAlias = int | str | uuid.UUID | bytes

_ADDRESS = re.compile(r"(?:ns=([0-9]{1,5});|nsu=([^;]+);)?([isgb])=(.+)", re.DOTALL)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_URI_PREFIX = "nsu="


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A parsed node id. Its text is the shortest form."""

    namespace: int | str  # index, or URI
    identifier: Identifier

    def __str__(self) -> str:
        match self.identifier:
            case int():
                identifier = f"i={self.identifier}"
            case str():
                identifier = f"s={self.identifier}"
            case uuid.UUID():
                identifier = f"g={self.identifier}"
            case bytes():
                identifier = f"b={base64.b64encode(self.identifier).decode()}"
        if isinstance(self.namespace, str):
            return f"{_URI_PREFIX}{escaped(self.namespace)};{identifier}"
        return f"ns={self.namespace};{identifier}" if self.namespace else identifier


def parse(text: str) -> NodeAddress:
    """Parse an address. Raises ValueError."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError("not a node id")
    index, uri, kind, identifier = match.groups()
    if int(index or 0) > 0xFFFF:
        raise ValueError("a namespace index is at most 65535")
    return NodeAddress(_unescaped(uri) if uri else int(index or 0), _identifier(kind, identifier))


def namespace_uri(text: str) -> str | None:
    """The namespace URI of a legal address; None if the address has an index."""
    if not text.startswith(_URI_PREFIX):
        return None
    return _unescaped(text[len(_URI_PREFIX) : text.index(";")])


def escaped(uri: str) -> str:
    """A URI as it stands in a node id."""
    return uri.replace("%", "%25").replace(";", "%3B")


def _unescaped(uri: str) -> str:
    if _STRAY_PERCENT.search(uri):
        raise ValueError("a percent sign in a namespace URI is written %25")
    return unquote(uri, errors="strict")


def _identifier(kind: str, text: str) -> Identifier:
    match kind:
        case "i":
            if not (text.isascii() and text.isdecimal() and int(text) <= 0xFFFF_FFFF):
                raise ValueError("a numeric identifier is 0 to 4294967295")
            return int(text)
        case "g":
            guid = uuid.UUID(text)
            if str(guid) != text.lower():
                raise ValueError("not a GUID")
            return guid
        case "b":
            if not (content := base64.b64decode(text, validate=True)):
                raise ValueError("an empty byte string")
            return content
    return text
