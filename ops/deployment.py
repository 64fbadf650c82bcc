"""What ``up`` was told and what it started, kept so that the next ``up`` and the other commands know it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.config.model import HealthOptions
from ops.paths import State


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which plant runs here, and who serves it."""

    config: Path
    simulator: bool  # whether the simulator serves the plant
    channels: int | None = None  # load mode: a generated plant of so many channels
    hz: float = 1.0  # load mode: new values a second and channel
    port: int | None = None  # a generated plant's first port; None: the simulator's own choice

    @property
    def generated(self) -> bool:
        """Whether the plant's configuration is made anew by each ``up``."""
        return self.channels is not None or self.port is not None

    def save(self, state: State) -> None:
        """Keep it in the state folder."""
        _write(state.run / "deployment.json", {**asdict(self), "config": str(self.config)})

    @classmethod
    def load(cls, state: State) -> Deployment | None:
        """What the last ``up`` was told; None before the first one."""
        content = _read(state.run / "deployment.json")
        return content and cls(**{**content, "config": Path(content["config"])})


@dataclass(frozen=True, slots=True)
class Running:
    """What was started; it stays true when the configuration is edited under the running processes."""

    plant: str
    health: HealthOptions
    processes: tuple[str, ...]  # those with a health page

    def save(self, state: State) -> None:
        """Keep it in the state folder."""
        _write(state.run / "running.json", {**asdict(self), "health": self.health.model_dump()})

    @classmethod
    def load(cls, state: State) -> Running | None:
        """What the last ``up`` started; None before the first one."""
        content = _read(state.run / "running.json")
        return content and cls(content["plant"], HealthOptions(**content["health"]), tuple(content["processes"]))


def _write(path: Path, content: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    partial.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return None
