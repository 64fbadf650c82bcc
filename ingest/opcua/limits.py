"""How much a server may make us hold: of one chunk, of one message and of its chunks (OPC 10000-6, 6.7.2 and 7.1.2.3).

asyncua has no limit of its own as a client, and takes those that the server names. Ours are told with Hello, and hold
whatever the server answers.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

from asyncua import ua
from asyncua.client.ua_client import UaClient, UASocketProtocol
from asyncua.common.connection import TransportLimits
from asyncua.ua.ua_binary import uatcp_to_binary
from asyncua.ua.uaerrors import BadResponseTooLarge

from ingest.awake import within

MESSAGE = 64 * 1024**2  # bytes; a notification of a million values has some 20 MB
CHUNK = 1024**2
_LEAST_CHUNK = 8192  # that a peer has to take
CHUNKS = MESSAGE // _LEAST_CHUNK
_HEADER = struct.Struct("<4sI")  # type and kind of the chunk, and its size


class TooLarge(BadResponseTooLarge):  # type: ignore[misc]
    """A server sent more than it may: the connection ends."""

    def __str__(self) -> str:
        return f"the server sent more than {MESSAGE // 1024**2} MiB in a message, or {CHUNK // 1024**2} MiB in a chunk"


class _Limits(TransportLimits):  # type: ignore[misc]
    """What the server says of its own limits changes what we send, not what we take."""

    def update_client_limits(self, msg: ua.Acknowledge) -> None:
        """Of OPC 10000-6, 7.1.2.4: the server's ReceiveBufferSize is the largest chunk that we may send."""
        self.max_send_buffer = max(_LEAST_CHUNK, msg.ReceiveBufferSize)

    def is_msg_size_within_limit(self, sz: int) -> bool:
        if sz > MESSAGE:
            raise TooLarge
        return True

    def is_chunk_count_within_limit(self, sz: int) -> bool:
        if sz > CHUNKS:
            raise TooLarge
        return True


class _Protocol(UASocketProtocol):  # type: ignore[misc]
    """asyncua's, which would wait for all that a chunk's header announces."""

    receive_buffer: bytes | None
    heard = False  # something came since this was last set

    def data_received(self, data: bytes) -> None:
        self.heard = True
        super().data_received(data)
        waiting = self.receive_buffer
        if waiting is not None and len(waiting) >= _HEADER.size and _HEADER.unpack_from(waiting)[1] > CHUNK:
            self.receive_buffer = None
            self._fail_all_pending(TooLarge())
            self.disconnect_socket()

    async def send_hello(self, url: str, max_messagesize: int = 0, max_chunkcount: int = 0) -> ua.Acknowledge:
        """Raises TimeoutError where the server does not acknowledge."""
        hello = ua.Hello(ReceiveBufferSize=CHUNK, MaxMessageSize=MESSAGE, MaxChunkCount=CHUNKS, EndpointUrl=url)
        acknowledged = asyncio.get_running_loop().create_future()
        self._callbackmap[0] = acknowledged
        if self.transport is not None:
            self.transport.write(uatcp_to_binary(ua.MessageType.Hello, hello))
        return await within(self.timeout, acknowledged)

    async def send_request(
        self, request: Any, timeout: float | None = None, message_type: ua.MessageType = ua.MessageType.SecureMessage
    ) -> Any:
        """asyncua's, with time-outs by time in which this process ran; 0: none."""
        seconds = self.timeout if timeout is None else timeout
        answer = super().send_request(request, 0, message_type)
        return await (within(seconds, answer) if seconds else answer)


def bound(client: UaClient) -> None:
    """Hold the connections that ``client`` makes from now on to these limits."""

    def make() -> UASocketProtocol:
        protocol = _Protocol(client._timeout, client.security_policy, _Limits(CHUNK, CHUNK, CHUNKS, MESSAGE))
        protocol.pre_request_hook = client.pre_request_hook
        protocol.on_connection_lost = client._on_transport_lost
        protocol.is_session_closing = client._is_session_closing
        client.protocol = protocol
        return protocol

    client._make_protocol = make
