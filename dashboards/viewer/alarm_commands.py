"""Operator commands of the page: the same that ``plantlog alarms`` sends to the collectors."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Literal

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from core.errors import OperationError
from core.users.directory import OPERATORS, User
from dashboards.viewer.login import Login, Refused
from ingest.alarms import command_socket

_Name = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^*?\[]+$")]  # no pattern: one alarm


class AlarmRequest(BaseModel):
    """The body of ``POST /api/alarms``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    action: Literal["ack", "shelve", "unshelve"]
    channel: _Name
    limit: _Name
    why: Annotated[str, Field(max_length=300)] = ""
    seconds: Annotated[int, Field(gt=0)] | None = None  # to shelve


class AlarmCommands:
    """Sends the commands of users who may to the collectors of a state folder."""

    def __init__(self, state: Path, login: Login) -> None:
        self._run = state / "run"
        self._login = login

    async def execute(self, request: web.Request, user: User | None) -> web.StreamResponse:
        """``POST /api/alarms``: what became of the alarm. Raises Refused."""
        try:
            command = AlarmRequest.model_validate_json(await request.read())
        except ValidationError as error:
            first = error.errors()[0]
            raise Refused(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
        # Also if the browser does not wait for it: what has begun gets an outcome in the audit trail.
        return await asyncio.shield(asyncio.ensure_future(self._execute(request, user, command)))

    async def _execute(self, request: web.Request, user: User | None, command: AlarmRequest) -> web.StreamResponse:
        fields = command.model_dump(exclude_none=True, exclude={"action"})
        arguments = {name: str(value) for name, value in fields.items() if value != ""}
        action = f"alarms {command.action}"
        if user is None:
            raise Refused(403, "nobody is logged in: add users with `plantlog user add`")
        if user.role not in OPERATORS:
            why = f"user {user.name} has the role {user.role}; legal: {' or '.join(sorted(OPERATORS))}"
            await self._login.record(request, user, action, "refused", why, arguments)
            raise Refused(403, why)
        if not await self._login.record(request, user, action, "begun", "", arguments):
            raise Refused(503, "the action can't be recorded in the audit trail: see the log of the viewer")
        try:
            sent = {**command.model_dump(), "who": user.name, "logged_in": True}
            done = await command_socket.send(self._run, sent)
        except OperationError as error:
            await self._login.record(request, user, action, "failed", str(error), arguments)
            raise Refused(409, str(error)) from error
        await self._login.record(request, user, action, "done", "", arguments)
        return web.json_response({"done": done})
