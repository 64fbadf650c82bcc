"""Transport of sessions: limits of what a server may send (OPC 10000-6, 6.7.2 and 7.1.2.3), and time-outs.

asyncua's clients have no limits, and accept those of the server. Ours are announced in Hello, and enforced whatever the
server answers.
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

from core.timeouts import within

MAX_MESSAGE_BYTES = 64 * 1024**2  # bytes; a notification with a million values takes about 20 MB
_MAX_CHUNK_BYTES = 1024**2
_MIN_CHUNK_BYTES = 8192  # every peer has to accept that
_MAX_CHUNKS = MAX_MESSAGE_BYTES // _MIN_CHUNK_BYTES
_HEADER = struct.Struct("<4sI")  # message type and chunk type, size


class MessageTooLarge(BadResponseTooLarge):  # type: ignore[misc]
    """The server exceeded a limit: the connection is closed."""

    def __str__(self) -> str:
        message, chunk = MAX_MESSAGE_BYTES // 1024**2, _MAX_CHUNK_BYTES // 1024**2
        return f"the server sent more than {message} MiB in a message, or {chunk} MiB in a chunk"


class _Limits(TransportLimits):  # type: ignore[misc]
    """Limits announced by the server apply to what we send, not to what we accept."""

    def update_client_limits(self, msg: ua.Acknowledge) -> None:
        """OPC 10000-6, 7.1.2.4: the server's ReceiveBufferSize is the largest chunk we may send."""
        self.max_send_buffer = max(_MIN_CHUNK_BYTES, msg.ReceiveBufferSize)

    def is_msg_size_within_limit(self, sz: int) -> bool:
        if sz > MAX_MESSAGE_BYTES:
            raise MessageTooLarge
        return True

    def is_chunk_count_within_limit(self, sz: int) -> bool:
        if sz > _MAX_CHUNKS:
            raise MessageTooLarge
        return True


class _Protocol(UASocketProtocol):  # type: ignore[misc]
    """asyncua's protocol with size checks; its own waits for whatever size a header announces."""

    receive_buffer: bytes | None
    received = False  # data came since this was last reset

    def data_received(self, data: bytes) -> None:
        self.received = True
        super().data_received(data)
        waiting = self.receive_buffer
        if waiting is not None and len(waiting) >= _HEADER.size and _HEADER.unpack_from(waiting)[1] > _MAX_CHUNK_BYTES:
            self.receive_buffer = None
            self._fail_all_pending(MessageTooLarge())
            self.disconnect_socket()

    async def send_hello(self, url: str, max_messagesize: int = 0, max_chunkcount: int = 0) -> ua.Acknowledge:
        """Raises TimeoutError if the server does not acknowledge."""
        hello = ua.Hello(
            ReceiveBufferSize=_MAX_CHUNK_BYTES,
            MaxMessageSize=MAX_MESSAGE_BYTES,
            MaxChunkCount=_MAX_CHUNKS,
            EndpointUrl=url,
        )
        acknowledged = asyncio.get_running_loop().create_future()
        self._callbackmap[0] = acknowledged
        if self.transport is not None:
            self.transport.write(uatcp_to_binary(ua.MessageType.Hello, hello))
        return await within(self.timeout, acknowledged)

    async def send_request(
        self, request: Any, timeout: float | None = None, message_type: ua.MessageType = ua.MessageType.SecureMessage
    ) -> Any:
        """asyncua's client with timeouts that count only while this process runs; 0: none."""
        seconds = self.timeout if timeout is None else timeout
        answer = super().send_request(request, 0, message_type)
        return await (within(seconds, answer) if seconds else answer)


def apply_limits(client: UaClient) -> None:
    """Give new connections of ``client`` these limits and time-outs."""

    def make() -> UASocketProtocol:
        protocol = _Protocol(
            client._timeout,
            client.security_policy,
            _Limits(_MAX_CHUNK_BYTES, _MAX_CHUNK_BYTES, _MAX_CHUNKS, MAX_MESSAGE_BYTES),
        )
        protocol.pre_request_hook = client.pre_request_hook
        protocol.on_connection_lost = client._on_transport_lost
        protocol.is_session_closing = client._is_session_closing
        client.protocol = protocol
        return protocol

    client._make_protocol = make
