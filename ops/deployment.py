"""Deployment by ``up``, stored in the state folder for the next ``up`` and for other commands."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.config import processes
from core.config.model import HealthOptions
from core.errors import OperationError
from core.files import write_atomically
from core.paths import EXAMPLE, State


@dataclass(frozen=True, slots=True)
class Deployment:
    """Plant that runs here, and whether the simulator serves it."""

    config: Path
    simulator: bool  # whether the simulator serves the plant
    channels: int | None = None  # load mode: a generated plant with this many channels
    hz: float = 1.0  # load mode: new values per second and channel
    port: int | None = None  # a generated plant's first port; None: the simulator's own choice

    @property
    def generated(self) -> bool:
        """Return whether each ``up`` generates the configuration."""
        return self.channels is not None or self.port is not None

    def save(self, state: State) -> None:
        """Save the deployment in the state folder."""
        write_atomically(state.run / "deployment.json", json.dumps({**asdict(self), "config": str(self.config)}))

    @classmethod
    def load(cls, state: State) -> Deployment | None:
        """Deployment of the last ``up``; None before the first one."""
        content = _read(state.run / "deployment.json")
        return content and cls(**{**content, "config": Path(content["config"])})


@dataclass(frozen=True, slots=True)
class Running:
    """Configuration that was started. Edits of the configuration file do not change it."""

    plant: str
    health: HealthOptions
    processes: tuple[str, ...]  # those with a health page
    stopped_at: int | None = None  # µs, when `plantlog down` stopped it; None: it runs, or was not stopped

    def save(self, state: State) -> None:
        """Save what runs in the state folder."""
        content = {**asdict(self), "health": self.health.model_dump()}
        write_atomically(state.run / "running.json", json.dumps(content))

    @classmethod
    def load(cls, state: State) -> Running | None:
        """Load what the last ``up`` started; None before the first one."""
        content = _read(state.run / "running.json")
        return content and cls(
            content["plant"],
            HealthOptions(**content["health"]),
            tuple(content["processes"]),
            content.get("stopped_at"),
        )


def first_config() -> Path:
    """Configuration before the first ``up``: that of ``PLANTLOG_CONFIG``, or the example."""
    return Path(os.environ.get("PLANTLOG_CONFIG") or EXAMPLE).absolute()


def chosen_config(config: Path | None, state: State) -> Path:
    """Configuration file that a command names; None: that of the last ``up``."""
    last = Deployment.load(state)
    return config or (first_config() if last is None else last.config)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None


def scrape_targets(state: State) -> str:
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
