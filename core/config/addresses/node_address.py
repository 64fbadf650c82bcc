"""The address of an OPC UA tag: a node id as text (OPC 10000-6, 5.3.1.10 and 5.3.1.11).

``ns=2;s=Tank1.Level`` names the namespace by its index, ``nsu=http://vendor.com/line;s=Tank1.Level`` by its URI. In a
URI, ``%3B`` stands for a semicolon, ``%25`` for a percent sign. A text identifier may hold anything, also ``;`` and
blanks at its ends, but no NUL, which the database cannot store.
"""

from __future__ import annotations

import base64
import re
import uuid
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import unquote

Identifier: TypeAlias = int | str | uuid.UUID | bytes

_ADDRESS = re.compile(r"(?:ns=([0-9]{1,5});|nsu=([^;]+);)?([isgb])=(.*)", re.DOTALL)
_STRAY_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_GUID = re.compile("[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
_BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_URI_PREFIX = "nsu="
_NO_TEXT = re.compile("[\0\ud800-\udfff]")  # lone surrogates stand for bytes that are not UTF-8
_MAX_IDENTIFIER = 4096  # characters or bytes of an identifier (OPC 10000-3, 8.2.4)


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
    """Parse an address. Raises ValueError, which says what is wrong."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise ValueError("not a node id")
    if (no_text := _NO_TEXT.search(text)) is not None:
        raise ValueError("a node id with a NUL character" if no_text[0] == "\0" else "a node id that is not UTF-8")
    index, uri, kind, identifier = match.groups()
    if not identifier:
        raise ValueError("a node id with an empty identifier")
    if int(index or 0) > 0xFFFF:
        raise ValueError("a namespace index is at most 65535")
    return NodeAddress(_unescaped(uri) if uri else int(index or 0), _identifier(kind, identifier))


def fault(text: str) -> str:
    """Reason why a text is no address; empty: it is one."""
    try:
        parse(text)
    except ValueError as error:
        return str(error)
    return ""


def in_cell(cell: str) -> str:
    """The address in a cell, without blanks around it, except that a text identifier keeps blanks at its end."""
    text = cell.strip()
    match = _ADDRESS.fullmatch(text)
    return cell.lstrip() if match is not None and match[3] == "s" else text


def namespace_uri(text: str) -> str | None:
    """The namespace URI of a legal address; None if the address has an index."""
    if not text.startswith(_URI_PREFIX):
        return None
    return _unescaped(text[len(_URI_PREFIX) : text.index(";")])


def escaped(uri: str) -> str:
    """A URI, escaped for a node id."""
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
            if _GUID.fullmatch(text) is None:
                raise ValueError("not a GUID")
            return uuid.UUID(text)
        case "b":
            if _BASE64.fullmatch(text) is None:
                raise ValueError("not Base64")
            content = base64.b64decode(text)
            if len(content) > _MAX_IDENTIFIER:
                raise ValueError(f"a node id with more than {_MAX_IDENTIFIER} bytes")
            return content
    if len(text) > _MAX_IDENTIFIER:
        raise ValueError(f"a node id with more than {_MAX_IDENTIFIER} characters")
    return text
