"""Where a collector takes its operators' commands: a Unix socket in the state folder, for those who may use that.

Alarms are acknowledged and shelved there while the database is away, and nothing of it is open to the network.
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

from ingest.alarms.desk import Asked, Desk
from ingest.errors import PlantlogError
from ingest.writer.event_rows import storable

log = logging.getLogger(__name__)

_ASKED: TypeAdapter[Asked] = TypeAdapter(Asked)


def socket_path(state: Path, process: str) -> Path:
    """Where the collector ``process`` listens."""
    return state / "run" / f"{process.removeprefix('collector-')}.alarms"


@asynccontextmanager
async def serve(path: Path, desk: Desk) -> AsyncIterator[None]:
    """Answer ``GET /alarms`` and ``POST /alarms`` while the block runs."""

    async def alarms(_: web.Request) -> web.Response:
        return web.json_response(desk.alarms())

    async def do(request: web.Request) -> web.Response:
        try:
            content = await request.json()
            content["why"] = storable(str(content.get("why") or ""))[0]
            content["who"] = _who(content.get("who"), request)
            asked = _ASKED.validate_python(content)
            return web.json_response({"done": await desk.do(asked)})
        except (ValidationError, ValueError, TypeError, AttributeError) as error:
            return web.json_response({"error": f"not a command: {error}"}, status=400)
        except PlantlogError as error:
            return web.json_response({"error": str(error)}, status=409)

    app = web.Application()
    app.add_routes([web.get("/alarms", alarms), web.post("/alarms", do)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    try:
        try:
            _make_room(path)
            await _listen(runner, path)
        except OSError as error:  # a path that is too long, a disk that is full: what is measured goes on
            log.error("alarms can't be acknowledged: %s: %s", path, error)
        yield
    finally:
        await runner.cleanup()
        _make_room(path)


def _make_room(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)  # of a process that was killed


async def _listen(runner: web.AppRunner, path: Path) -> None:
    before = os.umask(0o177)
    try:
        await web.UnixSite(runner, path).start()
    finally:
        os.umask(before)


def _who(said: Any, request: web.Request) -> str:
    """Who asks: the user that the system knows, and the name that was given beside it."""
    connection = request.get_extra_info("socket")
    _, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        user = f"user {uid}"
    said = storable(said)[0] if isinstance(said, str) else None
    return f"{said} ({user})" if said and said != user else user
