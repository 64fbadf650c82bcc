"""The standard address space of asyncua's servers, made once for all servers of a process.

asyncua makes its 6,174 nodes for each server, which takes a second. It can load them from a file, one by one as they
are accessed (``Server.init(shelf_file)``); this is the same in memory.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

from asyncua.server.internal_server import InternalServer

_load = InternalServer.load_standard_address_space
_standard: dict[Any, bytes] = {}  # by node id: the node, pickled


class Nodes(MutableMapping[Any, Any]):
    """A server's own nodes, and those of the standard that it has used, by node id."""

    def __init__(self) -> None:
        self._own: dict[Any, Any] = {}

    def __getitem__(self, node_id: Any) -> Any:
        try:
            return self._own[node_id]
        except KeyError:
            node = self._own[node_id] = pickle.loads(_standard[node_id])
            return node

    def __setitem__(self, node_id: Any, node: Any) -> None:
        self._own[node_id] = node

    def __delitem__(self, node_id: Any) -> None:
        del self._own[node_id]

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._own or node_id in _standard

    def __iter__(self) -> Iterator[Any]:
        return iter(self._own)

    def __len__(self) -> int:
        return len(self._own)


async def _load_once(server: InternalServer, shelf_file: Path | None = None) -> None:
    if not _standard:
        await _load(server)
        _standard.update({node_id: pickle.dumps(node, -1) for node_id, node in server.aspace._nodes.items()})
    server.aspace._nodes = Nodes()


def share() -> None:
    """Share the standard address space from now on."""
    InternalServer.load_standard_address_space = _load_once
