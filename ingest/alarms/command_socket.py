"""Operator commands of a collector: HTTP over a Unix socket in the state folder, protected by file permissions.

Alarms can be acknowledged and shelved without the database, and nothing is open to the network.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, UnixConnector, web
from pydantic import TypeAdapter, ValidationError

from core.accounts import account_name
from core.errors import OperationError, PlantlogError
from ingest.alarms.operator_api import AlarmCommand, AlarmRecord, CommandOutcome, OperatorApi
from ingest.event_rows import storable

log = logging.getLogger(__name__)

_COMMAND: TypeAdapter[AlarmCommand] = TypeAdapter(AlarmCommand)
_RECORDS: TypeAdapter[list[AlarmRecord]] = TypeAdapter(list[AlarmRecord])
_MAX_BYTES = 2**28  # of a request: states of a million alarms
_TIMEOUT = 30.0


def socket_path(state: Path, process: str) -> Path:
    """The socket of the collector ``process``."""
    return state / "run" / f"{process.removeprefix('collector-')}.alarms"


@asynccontextmanager
async def serve(path: Path, operator_api: OperatorApi) -> AsyncIterator[None]:
    """Answer ``GET /alarms``, ``POST /alarms`` and ``POST /alarms/states`` while the block runs."""

    async def alarms(_: web.Request) -> web.Response:
        return web.json_response(operator_api.alarms())

    async def execute(request: web.Request) -> web.Response:
        try:
            content = await request.json()
            content["why"] = storable(str(content.get("why") or ""))[0]
            content["who"] = _operator_name(content.get("who"), content.pop("logged_in", False) is True, request)
            command = _COMMAND.validate_python(content)
            return web.json_response(asdict(await operator_api.execute(command)))
        except (ValidationError, ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": f"invalid command: {error}"}, status=400)
        except PlantlogError as error:
            return web.json_response({"error": str(error)}, status=409)

    async def adopt(request: web.Request) -> web.Response:
        try:
            await operator_api.adopt(_RECORDS.validate_json(await request.read()))
            return web.json_response({})
        except ValidationError as error:
            return web.json_response({"error": f"invalid states: {error}"}, status=400)
        except PlantlogError as error:
            return web.json_response({"error": str(error)}, status=409)

    app = web.Application(client_max_size=_MAX_BYTES)
    app.add_routes([web.get("/alarms", alarms), web.post("/alarms", execute), web.post("/alarms/states", adopt)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            _remove_socket(path)
            await _listen(runner, path)
        except OSError as error:  # path too long, disk full: measuring continues
            log.error("operator commands are not available: cannot listen on %s: %s", path, error)
        yield
    finally:
        await runner.cleanup()
        _remove_socket(path)


async def send(run: Path, command: Mapping[str, Any]) -> list[str]:
    """Send a command to all collectors; ``run``: the folder with their sockets. Returns a line for each alarm.

    Raises NotAllDone if the command failed for an alarm, and OperationError if none matches or the command is refused.
    """
    answers = await request(run, "POST", "/alarms", command)
    if not answers:
        raise no_collector(run)
    outcome = CommandOutcome()
    for status, payload in answers:
        if status == 200:
            outcome.add(CommandOutcome(**payload))
    channel = str(command["channel"])
    if not outcome.matches or set(channel) & set("*?["):  # else one collector has all of the channel's alarms
        outcome.failed += dict.fromkeys(payload["error"] for status, payload in answers if status != 200)
    return outcome.lines(str(command["action"]), channel, command.get("limit"))


def no_collector(run: Path) -> OperationError:
    """The error that no collector runs."""
    return OperationError(
        f"no collector is running in {run.parent}: run `plantlog up` (stored alarm states are in plant.alarm)"
    )


async def request(run: Path, method: str, path: str, content: Any = None) -> list[tuple[int, Any]]:
    """Send a request to each collector with a socket in the folder ``run``; return status and payload of each response.

    Status 0: it does not respond.
    """
    answers: list[tuple[int, Any]] = []
    for socket_file in await asyncio.to_thread(lambda: sorted(run.glob("*.alarms"))):
        connector, timeout = UnixConnector(str(socket_file)), ClientTimeout(total=_TIMEOUT)
        try:
            async with (
                ClientSession(connector=connector, timeout=timeout) as session,
                session.request(method, f"http://plantlog{path}", json=content) as answer,
            ):
                answers.append((answer.status, await answer.json()))
        except (ClientError, TimeoutError, ValueError) as error:
            cause = error.os_error if isinstance(error, ClientConnectorError) else None
            if not isinstance(cause, (FileNotFoundError, ConnectionRefusedError)):  # else it does not run
                reason = str(error) or f"no answer for {_TIMEOUT:g} s"
                answers.append((0, {"error": f"the collector {socket_file.stem} does not answer: {reason}"}))
    return answers


def _remove_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a process that was killed


async def _listen(runner: web.AppRunner, path: Path) -> None:
    before = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(before)


def _operator_name(command_name: Any, logged_in: bool, request: web.Request) -> str:
    """Name of the operator: the user of the viewer, or the name in the command and the peer's system user."""
    name = storable(command_name)[0] if isinstance(command_name, str) else None
    if name and logged_in:  # the peer is the viewer
        return name
    connection = request.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    user = account_name(uid) or f"user {uid}"
    return f"{name} ({user})" if name and name != user else user
