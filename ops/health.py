"""What the processes say of themselves, over HTTP on loopback."""

from __future__ import annotations

import http.client
import json
from typing import Any

from ingest.config.model import HealthOptions, Plant
from ingest.processes import collectors, port

_SECONDS = 3.0


def control_port(options: HealthOptions) -> int:
    """Where the simulator takes orders, if it serves the plant."""
    return options.port - 1


def processes(plant: Plant) -> list[str]:
    """Our own processes that a plant needs, in the order in which they start."""
    return [
        "writer",
        *collectors(plant, "opcua"),
        *collectors(plant, "modbus"),
        *collectors(plant, "push"),
        "maintenance",
        *(["notifier"] if plant.notify is not None else []),
        "viewer",
    ]


def ask(process: str, options: HealthOptions) -> dict[str, Any] | None:
    """The process' ``/health``; None when it does not answer."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    connection = http.client.HTTPConnection(host, port(process, options), timeout=_SECONDS)
    try:
        connection.request("GET", "/health")
        said = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    # Whoever else listens there is not meant.
    return said if isinstance(said, dict) and said.get("process") == process else None
