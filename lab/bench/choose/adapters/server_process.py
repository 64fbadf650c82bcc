"""Shared by adapters of servers: a process on loopback, an HTTP client, and columns as InfluxDB line protocol."""

from __future__ import annotations

import asyncio
import io
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyarrow import csv

from core.errors import OperationError
from lab.bench.data import Columns

_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.1


class Process:
    """A server as a child, with what it says in a file."""

    def __init__(self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent, env=environment)

    async def until(self, answers: Callable[[], Awaitable[object]]) -> None:
        """Wait until ``answers`` raises no more. Raises OperationError where the server ends, or does not answer."""
        give_up = time.monotonic() + _START_SECONDS
        while True:
            try:
                await answers()
                return
            except (OSError, aiohttp.ClientError, OperationError) as error:
                if self._process.poll() is not None or time.monotonic() > give_up:
                    tail = self._log.read_text(errors="replace")[-500:]
                    raise OperationError(f"the server does not respond: {error}; end of its log: {tail}") from error
            await asyncio.sleep(_POLL_SECONDS)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL where that is not enough."""
        self._process.terminate()
        try:
            await asyncio.to_thread(self._process.wait, _STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


async def listens(port: int) -> None:
    """Raises OSError where nobody does."""
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()
    await writer.wait_closed()


class Http:
    """A client of one server, with a connection for each request that is under way."""

    def __init__(self, port: int) -> None:
        self._base = f"http://127.0.0.1:{port}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=300)
        )

    async def ask(self, path: str, accept: str = "*/*", **parameters: str) -> bytes:
        """GET. Raises OperationError with the server's words where it refuses."""
        return await self._send("GET", path, parameters, None, accept)

    async def post(self, path: str, body: bytes | None = None, **parameters: str) -> bytes:
        """POST. Raises OperationError with the server's words where it refuses."""
        return await self._send("POST", path, parameters, body, "*/*")

    async def _send(
        self, method: str, path: str, parameters: Mapping[str, str], body: bytes | None, accept: str
    ) -> bytes:
        headers = {"Accept": accept}
        data = None if body is None else io.BytesIO(body)  # aiohttp sends it piece by piece
        async with self._session.request(
            method, self._base + path, params=parameters, data=data, headers=headers
        ) as response:
            content = await response.read()
            if response.status >= 300:
                raise OperationError(f"{method} {path}: {response.status} {content[:300].decode(errors='replace')}")
            return content

    async def close(self) -> None:
        """Close its connections."""
        await self._session.close()


def csv_columns(text: bytes, types: Mapping[str, pa.DataType]) -> dict[str, NDArray[Any]]:
    """Columns of CSV with a head; what is missing is NaN. No text: no rows."""
    if not text.strip():
        return {name: np.empty(0, kind.to_pandas_dtype()) for name, kind in types.items()}
    options = csv.ConvertOptions(column_types=types, include_columns=list(types))
    table = csv.read_csv(pa.BufferReader(text), convert_options=options)
    return {name: table[name].to_numpy() for name in types}


class Lines:
    """Columns as line protocol: a measurement ``samples``, tags channel and unit, fields value and status.

    The protocol knows no NaN (its reference: "Float"): such a sample has a status only.
    """

    def __init__(self, names: Sequence[str], units: Sequence[str]) -> None:
        self._heads = pa.array([f"samples,channel={n},unit={u} " for n, u in zip(names, units, strict=True)])

    def encode(self, columns: Columns, *, signed: bool = False) -> bytes:
        """Times in µs. ``signed``: the status as a signed integer of the same 32 bits."""
        value = pa.array(columns.value)
        digits = pc.binary_join_element_wise("value=", pc.cast(value, pa.string()), ",", "")
        status = columns.status.view(np.int32) if signed else columns.status
        lines: Any = pc.binary_join_element_wise(
            self._heads.take(pa.array(columns.channel - 1)),
            pc.if_else(pc.is_nan(value), "", digits),
            "status=",
            pc.cast(pa.array(status), pa.string()),
            "i ",
            pc.cast(pa.array(columns.time), pa.string()),
            "\n",
            "",
        )
        offsets = np.frombuffer(lines.buffers()[1], np.int32, len(lines) + 1)
        return bytes(memoryview(lines.buffers()[2])[: int(offsets[-1])])
