"""The variables of a source whose members are channels.

An update of the server may change the definition of a data type. So each session reads them anew, and reads them again
when a value does not fit. Until then its members are Bad, never wrong.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from asyncua import Client, ua

from core.backoff import after_refusal
from core.opcua.browse import Browser
from core.opcua.definitions import Definitions
from core.opcua.structure import Structure
from ingest.opcua.decode.members import MemberChannel, StructureDecoder

log = logging.getLogger(__name__)

_SESSION_ENDED = (
    ConnectionError,
    ua.uaerrors.BadConnectionClosed,
    ua.uaerrors.BadSessionClosed,
    ua.uaerrors.BadSessionIdInvalid,
)


class Structures:
    """Variables are known by their address, monitored items by their client handle."""

    def __init__(self) -> None:
        self.decoders: dict[int, StructureDecoder] = {}  # by client handle
        self._of_items: dict[int, tuple[str, Sequence[MemberChannel]]] = {}
        self._nodes: dict[str, Any] = {}
        self._types: dict[str, Any] = {}  # data type; or, as str, why it is not known
        self._definitions = Definitions()
        self._unfit = asyncio.Event()  # there was a value that does not fit its definition

    def begin_session(self) -> None:
        """Forget all definitions."""
        self._nodes, self._types, self._definitions = {}, {}, Definitions()

    async def read(self, client: Client, time_out: float, nodes: Mapping[str, Any]) -> None:
        """Read the definitions for variables (address → node id). Raises ua.UaError, OSError or TimeoutError if the
        session has ended."""
        if new := {address: node for address, node in nodes.items() if address not in self._types}:
            self._nodes |= new
            self._types |= await _read(client, time_out, new, self._definitions)

    def structure(self, address: str) -> Structure | str:
        """The structure of a variable; or why its members cannot be read."""
        data_type = self._types.get(address, "its data type is not known")
        return data_type if isinstance(data_type, str) else self._definitions.structure(data_type)

    def monitor(self, handle: int, address: str, members: Sequence[MemberChannel]) -> None:
        """Decode the values of an item as those of a variable."""
        self._of_items[handle] = address, members
        self.decoders[handle] = StructureDecoder(self.structure(address), members, self._unfit.set)

    def monitor_only(self, of_items: Mapping[int, tuple[str, Sequence[MemberChannel]]]) -> None:
        """Replace all items by these."""
        self._of_items.clear()
        self.decoders.clear()
        for handle, (address, members) in of_items.items():
            self.monitor(handle, address, members)

    async def follow(self, client: Client, time_out: float) -> None:
        """Read the definitions again when a value does not fit, with growing intervals while that changes nothing.

        Runs until cancelled.
        """
        backoff = after_refusal()
        while True:
            self._unfit.clear()
            await self._unfit.wait()
            definitions = Definitions()
            types = await _read(client, time_out, self._nodes, definitions)
            if (types, definitions) == (self._types, self._definitions):
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            log.info("the server has changed the definitions of its structures")
            self._types, self._definitions = types, definitions
            self.monitor_only(dict(self._of_items))


async def _read(client: Client, time_out: float, nodes: Mapping[str, Any], definitions: Definitions) -> dict[str, Any]:
    """The data types of variables, whose definitions are put into ``definitions``."""
    browser = Browser(client, time_out, lambda _: None)
    try:
        await browser.prepare()
        read = await browser.read([(node, ua.AttributeIds.DataType) for node in nodes.values()], _data_type)
        types = dict(zip(nodes, read, strict=True))
        await definitions.read(browser, {data_type for data_type in types.values() if not isinstance(data_type, str)})
    except _SESSION_ENDED:
        raise
    except Exception as error:  # whatever a server sends as a definition must not end the collector
        if len(nodes) > 1 and not isinstance(error, TimeoutError):  # only the one that it is about is lost
            alone = [await _read(client, time_out, {address: node}, definitions) for address, node in nodes.items()]
            return {
                address: type_or_reason
                for types_or_reasons in alone
                for address, type_or_reason in types_or_reasons.items()
            }
        reason = f"its data type cannot be read: {type(error).__name__}: {error}".rstrip(": ")
        return dict.fromkeys(nodes, reason)
    return types


def _data_type(value: Any) -> Any:
    node = None if value.Value is None else value.Value.Value
    return node if isinstance(node, ua.NodeId) else f"its data type cannot be read: {value.StatusCode.name}"
