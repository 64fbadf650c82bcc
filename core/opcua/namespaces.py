"""Namespace URIs and their indices on the server. An index is valid for one session only (OPC 10000-3, 8.2.2).

An update of a server may give a namespace another index. So URIs are resolved in each session, and a monitored item
that was created under another index is not continued: it may belong to another variable.
"""

from __future__ import annotations

from collections.abc import Sequence

from asyncua import Client, ua

from core.config.addresses import node_address
from core.config.addresses.node_address import NodeAddress
from core.errors import SourceError
from core.opcua.service import read

_MAX_LISTED = 20  # namespaces in a reason


class Namespaces:
    """The NamespaceArray (OPC 10000-5, 6.3.1) of the server in one session."""

    def __init__(self, uris: Sequence[str | None] = (), unreadable: str = "") -> None:
        """``unreadable``: the reason why the namespaces are unknown; empty: they are known."""
        self._unreadable = unreadable
        self._uris = uris
        self._indices: dict[str, list[int]] = {}
        for index, uri in enumerate(uris):
            self._indices.setdefault(uri or "", []).append(index)

    def node_id(self, address: str) -> ua.NodeId:
        """The node id of an address in this session. Raises SourceError with the reason why there is none."""
        try:
            parsed = node_address.parse(address)
        except ValueError:
            raise SourceError("BadNodeIdInvalid") from None
        index = parsed.namespace if isinstance(parsed.namespace, int) else self._index(parsed.namespace)
        return ua.NodeId(parsed.identifier, index)

    def index(self, address: str) -> int | None:
        """The current index of the namespace URI in an address; None: there is no URI, or the server lacks it."""
        uri = node_address.namespace_uri(address)
        indices = [] if uri is None else self._indices.get(uri, [])
        return indices[0] if len(indices) == 1 else None

    def address(self, node_id: ua.NodeId) -> str:
        """The address of a node, with a URI if it has an unambiguous one."""
        index = node_id.NamespaceIndex
        uri = self._uris[index] if index < len(self._uris) else None
        by_uri = index and uri and self._indices[uri] == [index]
        return str(NodeAddress(uri if by_uri and uri else index, node_id.Identifier))

    def _index(self, uri: str) -> int:
        indices = self._indices.get(uri, [])
        if len(indices) == 1:
            return indices[0]
        if self._unreadable:
            raise SourceError(f"the server does not tell its namespaces: {self._unreadable}")
        if indices:
            also = " and ".join(map(str, indices))
            raise SourceError(f"the server has namespace {node_address.escaped(uri)} more than once, as {also}")
        listed = [node_address.escaped(uri) for uri in self._uris if uri]
        others = f" and {len(listed) - _MAX_LISTED} others" if len(listed) > _MAX_LISTED else ""
        raise SourceError(
            f"the server has no namespace {node_address.escaped(uri)}; it has {', '.join(listed[:_MAX_LISTED])}{others}"
        )


async def read_namespaces(client: Client, time_out: float) -> Namespaces:
    """Read the server's namespaces. Raises ua.UaError, OSError or TimeoutError."""
    node = ua.NodeId(ua.ObjectIds.Server_NamespaceArray)
    (result,) = await read(client, [(node, ua.AttributeIds.Value)], time_out)
    if not result.StatusCode.is_good():
        return Namespaces(unreadable=result.StatusCode.name)
    uris = None if result.Value is None else result.Value.Value
    if not isinstance(uris, list) or not all(uri is None or isinstance(uri, str) for uri in uris):
        return Namespaces(unreadable="its NamespaceArray is no array of strings")
    return Namespaces(uris)
