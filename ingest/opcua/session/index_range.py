"""Elements of arrays by IndexRange (OPC 10000-4, 7.27), which not every server supports."""

from __future__ import annotations

from asyncua import Client, ua

from core.config.sources import OpcuaTag
from ingest.opcua.session.service import call


def index_range_of(tag: OpcuaTag) -> str | None:
    """The IndexRange of a tag; None: the value is read as it is.

    Of a matrix, too: of one of several dimensions, some servers send another element, also Good where there is none.
    """
    return None if tag.reads_whole else tag.index


async def sends_whole_arrays(client: Client, time_out: float) -> bool:
    """Whether the server ignores or rejects an IndexRange. Raises ua.UaError, OSError or TimeoutError.

    Tried with the NamespaceArray, which has at least two elements.
    """
    request = ua.ReadRequest()
    request.Parameters.TimestampsToReturn = ua.TimestampsToReturn.Neither
    request.Parameters.NodesToRead = [
        ua.ReadValueId(
            NodeId=ua.NodeId(ua.ObjectIds.Server_NamespaceArray), AttributeId=ua.AttributeIds.Value, IndexRange="1"
        )
    ]
    answer = await call(client, request, ua.ReadResponse, time_out)
    (result,) = answer.Results
    value = None if result.Value is None else result.Value.Value
    return not (result.StatusCode.is_good() and isinstance(value, list) and len(value) == 1)
