"""The simulator's own door: HTTP on a loopback port, to make it fail and to see what it does."""

from __future__ import annotations

import json

from aiohttp import web

from ingest.errors import OperationError
from ingest.http import by_name
from simulator.faults import SECONDS, Fault
from simulator.run import Simulator


def application(simulator: Simulator, host: str) -> web.Application:
    """``POST /fault``, ``POST /clear``, ``GET /state``."""

    async def fault(request: web.Request) -> web.Response:
        try:
            asked = await request.json()
            if not isinstance(asked, dict) or not {"target", "fault"} <= asked.keys():
                raise OperationError('legal: a JSON object with "target", "fault", and maybe "seconds", "value"')
            begun = simulator.faults.add(
                str(asked["target"]), asked["fault"], asked.get("seconds", SECONDS), asked.get("value")
            )
        except json.JSONDecodeError as error:
            return web.json_response({"error": f"not JSON: {error}"}, status=400)
        except OperationError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(_said(begun))

    async def clear(_: web.Request) -> web.Response:
        simulator.faults.clear()
        return web.json_response({})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "plant": simulator.plant.name,
                "tags": len(simulator.plant.tags),
                "published": simulator.published,
                "faults": [_said(f) for f in simulator.faults.active()],
            }
        )

    app = web.Application(middlewares=[by_name(host)])
    app.add_routes([web.post("/fault", fault), web.post("/clear", clear), web.get("/state", state)])
    return app


def _said(fault: Fault) -> dict[str, object]:
    return {
        "target": fault.target,
        "fault": fault.fault,
        "value": fault.value,
        "seconds": round(fault.seconds_left, 1),
    }
