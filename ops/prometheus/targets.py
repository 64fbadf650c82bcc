"""``plantlog admin targets``: the scrape targets of a native appliance."""

from __future__ import annotations

import json

from core.config import processes
from core.errors import OperationError
from core.paths import State
from ops.deployment import Running


def targets(state: State) -> str:
    """The processes of the last ``up``, as a file of Prometheus' file_sd. Raises OperationError before the first one.

    https://prometheus.io/docs/prometheus/latest/configuration/configuration/#file_sd_config
    """
    running = Running.load(state)
    if running is None:
        raise OperationError(f"{state.root} has no appliance yet: run `plantlog up`")
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(running.health.host, running.health.host)
    scheme = {} if running.health.scheme == "http" else {"__scheme__": "https"}
    groups = [
        {
            "targets": [f"{host}:{processes.port(process, running.health)}"],
            "labels": {"process": process, "plant": running.plant, **scheme},
        }
        for process in running.processes
    ]
    return json.dumps(groups, indent=2)
