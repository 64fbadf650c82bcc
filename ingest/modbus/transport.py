"""A connection to one Modbus device, over TCP. pymodbus frames and parses; deadlines and reconnection are ours.

After a time-out the connection is closed: an answer that comes late must not be taken for the next one's.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pymodbus.client import AsyncModbusTcpClient
from pymodbus.exceptions import ModbusException

from ingest.errors import SourceError
from ingest.modbus.plan import Read

ILLEGAL_DATA_ADDRESS = 2  # MODBUS Application Protocol V1.1b3, 7

BAD_COMMUNICATION_ERROR = 0x80050000  # OPC 10000-6, A.2
BAD_TIMEOUT = 0x800A0000
BAD_NODE_ID_UNKNOWN = 0x80340000
BAD_DEVICE_FAILURE = 0x808B0000
BAD_DECODING_ERROR = 0x80070000

_EXCEPTIONS = {
    1: "illegal function",
    2: "illegal data address",
    3: "illegal data value",
    4: "device failure",
    5: "acknowledge",
    6: "device busy",
    8: "memory parity error",
    10: "gateway path unavailable",
    11: "gateway target failed to respond",
}


class ConnectionLost(SourceError):  # noqa: N818  (what happened, in the field's words)
    """The device can't be reached; ``status`` is the StatusCode that its channels get."""

    def __init__(self, reason: str, status: int = BAD_COMMUNICATION_ERROR) -> None:
        super().__init__(reason)
        self.status = status


class ExceptionAnswer(SourceError):  # noqa: N818
    """The device answered a read with an exception; ``code`` is the protocol's."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exception {code}: {_EXCEPTIONS.get(code, 'unknown')}")
        self.code = code
        self.status = BAD_NODE_ID_UNKNOWN if code == ILLEGAL_DATA_ADDRESS else BAD_DEVICE_FAILURE


class TcpDevice:
    """Reads registers from one unit id behind ``tcp://host:port``."""

    def __init__(self, address: str, unit_id: int, time_out: float) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._unit_id = unit_id
        self._time_out = time_out
        # retries 0, reconnect_delay 0: one owner of recovery, and that is the collector
        self._client = AsyncModbusTcpClient(
            host.strip("[]"), port=int(port), timeout=time_out, retries=0, reconnect_delay=0
        )

    async def connect(self) -> None:
        """Connect within the deadline. Raises ConnectionLost."""
        try:
            async with asyncio.timeout(self._time_out):
                connected = await self._client.connect()
        except (OSError, TimeoutError) as error:
            raise ConnectionLost(f"connect: {error or 'no answer in time'}", BAD_COMMUNICATION_ERROR) from error
        if not connected:
            raise ConnectionLost("connect: refused or unreachable")

    async def read(self, read: Read) -> NDArray[np.uint16]:
        """Registers (or 0/1 for each bit) of one read. Raises ConnectionLost or ExceptionAnswer."""
        try:
            async with asyncio.timeout(2 * self._time_out):
                answer = await self._request(read)
        except TimeoutError as error:
            raise ConnectionLost(f"no answer within {self._time_out:g} s", BAD_TIMEOUT) from error
        except (ModbusException, OSError) as error:
            silent = self._client.connected
            reason = f"no answer within {self._time_out:g} s" if silent else "connection closed by the device"
            raise ConnectionLost(reason, BAD_TIMEOUT if silent else BAD_COMMUNICATION_ERROR) from error
        if answer.isError():
            raise ExceptionAnswer(answer.exception_code)
        if read.table in ("coil", "discrete"):
            return np.array(answer.bits, np.uint16)
        return np.array(answer.registers, np.uint16)

    async def _request(self, read: Read) -> Any:
        request = {
            "coil": self._client.read_coils,
            "discrete": self._client.read_discrete_inputs,
            "input": self._client.read_input_registers,
            "holding": self._client.read_holding_registers,
        }[read.table]
        return await request(read.start, count=read.count, device_id=self._unit_id)

    def close(self) -> None:
        """Close; what may still come is not read."""
        self._client.close()
