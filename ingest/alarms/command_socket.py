"""Operator commands of a collector: HTTP over a Unix socket in the state folder, protected by file permissions.

Alarms can be acknowledged and shelved without the database, and nothing is open to the network.
"""

from __future__ import annotations

import logging
import os
import pwd
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from pydantic import TypeAdapter, ValidationError

from ingest.alarms.operator_api import AlarmCommand, OperatorApi
from ingest.errors import PlantlogError
from ingest.event_rows import storable

log = logging.getLogger(__name__)

_COMMAND: TypeAdapter[AlarmCommand] = TypeAdapter(AlarmCommand)


def socket_path(state: Path, process: str) -> Path:
    """The socket of the collector ``process``."""
    return state / "run" / f"{process.removeprefix('collector-')}.alarms"


@asynccontextmanager
async def serve(path: Path, operator_api: OperatorApi) -> AsyncIterator[None]:
    """Answer ``GET /alarms`` and ``POST /alarms`` while the block runs."""

    async def alarms(_: web.Request) -> web.Response:
        return web.json_response(operator_api.alarms())

    async def execute(request: web.Request) -> web.Response:
        try:
            content = await request.json()
            content["why"] = storable(str(content.get("why") or ""))[0]
            content["who"] = _operator_name(content.get("who"), request)
            command = _COMMAND.validate_python(content)
            return web.json_response({"done": await operator_api.execute(command)})
        except (ValidationError, ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": f"invalid command: {error}"}, status=400)
        except PlantlogError as error:
            return web.json_response({"error": str(error)}, status=409)

    app = web.Application()
    app.add_routes([web.get("/alarms", alarms), web.post("/alarms", execute)])
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


def _remove_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a process that was killed


async def _listen(runner: web.AppRunner, path: Path) -> None:
    before = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(before)


def _operator_name(given_name: Any, request: web.Request) -> str:
    """The operator: the name given in the command, and the system user of the peer."""
    connection = request.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user {uid}"
    given_name = storable(given_name)[0] if isinstance(given_name, str) else None
    return f"{given_name} ({user})" if given_name and given_name != user else user
