"""Client of the processes' health endpoints."""

from __future__ import annotations

import http.client
import json
import ssl
from pathlib import Path
from typing import Any

from core.config.model import HealthOptions
from core.config.processes import port
from core.installation import installation_of

_TIMEOUT = 3.0


def control_port(options: HealthOptions) -> int:
    """Port of the simulator's control API."""
    return options.port - 1


def fetch(process: str, options: HealthOptions, state: Path) -> dict[str, Any] | None:
    """``/health`` of a process of the state folder; None if it does not respond."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(options.host, options.host)
    connection: http.client.HTTPConnection
    if options.scheme == "http":
        connection = http.client.HTTPConnection(host, port(process, options), timeout=_TIMEOUT)
    else:
        # Not verified: it is this machine's own address.
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(host, port(process, options), timeout=_TIMEOUT, context=context)
    try:
        connection.request("GET", "/health")
        report = json.loads(connection.getresponse().read())
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        connection.close()
    # Another program, or another appliance, may have that port meanwhile.
    if not isinstance(report, dict) or report.get("process") != process:
        return None
    ours = str(installation_of(state))
    return report if report.get("installation", ours) == ours else None
