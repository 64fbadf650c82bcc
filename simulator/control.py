"""The simulator's HTTP control API on a loopback port: inject faults, read the state."""

from __future__ import annotations

import json

from aiohttp import web

from core.errors import OperationError
from core.http import check_host
from simulator.faults import SECONDS, Fault
from simulator.simulation import Simulator


def application(simulator: Simulator, host: str) -> web.Application:
    """``POST /fault``, ``POST /clear``, ``GET /state``."""

    async def fault(request: web.Request) -> web.Response:
        try:
            payload = await request.json()
            if not isinstance(payload, dict) or not {"target", "fault"} <= payload.keys():
                raise OperationError(
                    'legal: a JSON object with "target", "fault", and optionally "seconds" and "value"'
                )
            fault_begun = simulator.faults.add(
                str(payload["target"]), payload["fault"], payload.get("seconds", SECONDS), payload.get("value")
            )
        except json.JSONDecodeError as error:
            return web.json_response({"error": f"not JSON: {error}"}, status=400)
        except OperationError as error:
            return web.json_response({"error": str(error)}, status=400)
        return web.json_response(_as_json(fault_begun))

    async def clear(_: web.Request) -> web.Response:
        simulator.faults.clear()
        return web.json_response({})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "plant": simulator.plant.name,
                "tags": len(simulator.plant.tags),
                "published": simulator.published,
                "faults": [_as_json(f) for f in simulator.faults.active()],
            }
        )

    app = web.Application(middlewares=[check_host(host)])
    app.add_routes([web.post("/fault", fault), web.post("/clear", clear), web.get("/state", state)])
    return app


def _as_json(fault: Fault) -> dict[str, object]:
    return {
        "target": fault.target,
        "fault": fault.fault,
        "value": fault.value,
        "seconds": round(fault.seconds_left, 1),
    }
