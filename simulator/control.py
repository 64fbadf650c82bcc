"""The simulator's own door: HTTP on a loopback port, to make it fail and to see what it does."""

from __future__ import annotations

from aiohttp import web

from simulator.faults import KINDS
from simulator.run import Simulator


def application(simulator: Simulator) -> web.Application:
    """``POST /fault``, ``POST /clear``, ``GET /state``."""
    targets = {"opcua", *(d.name for d in simulator.devices), *(t.name for t in simulator.plant.tags)}

    async def fault(request: web.Request) -> web.Response:
        asked = await request.json()
        if asked.get("fault") not in KINDS:
            return web.json_response(
                {"error": f"fault: found {asked.get('fault')!r}; legal: {', '.join(KINDS)}"}, status=400
            )
        if asked.get("target") not in targets:
            legal = f"opcua, {', '.join(d.name for d in simulator.devices)}, or a channel's name"
            return web.json_response({"error": f"target: found {asked.get('target')!r}; legal: {legal}"}, status=400)
        seconds, value = float(asked.get("seconds", 10)), float(asked.get("value", 0x80050000))
        simulator.faults.add(asked["target"], asked["fault"], seconds, value)
        return web.json_response({"target": asked["target"], "fault": asked["fault"], "seconds": seconds})

    async def clear(_: web.Request) -> web.Response:
        simulator.faults.clear()
        return web.json_response({})

    async def state(_: web.Request) -> web.Response:
        return web.json_response(
            {
                "plant": simulator.plant.name,
                "tags": len(simulator.plant.tags),
                "published": simulator.published,
                "faults": [f"{f.target}: {f.fault}" for f in simulator.faults.active],
            }
        )

    app = web.Application()
    app.add_routes([web.post("/fault", fault), web.post("/clear", clear), web.get("/state", state)])
    return app
