"""What ``up`` prints at its end."""

from __future__ import annotations

from rich.console import Console

from ingest.config import processes
from ingest.config.model import Plant
from ingest.config.sources import PushSource, Source
from ops import health
from ops.deployment import Deployment
from ops.formatting import count
from ops.paths import State


def print_summary(
    deployment: Deployment, plant: Plant, database: str, state: State, console: Console, *, database_is_away: bool
) -> None:
    """Sources, addresses and next commands. ``database``: where it is."""
    served = " (simulated)" if deployment.simulator else ""
    away = " does not respond; samples wait in the spool" if database_is_away else ""
    lines = [
        f"Logging plant [bold]{plant.name}[/]{served}; configuration {deployment.config}",
        *(f"  {s.name:<24} {_address(s, plant)}  {count(len(s.tags), 'channel')}" for s in plant.sources),
        f"  {'database':<24} {database}{away}  (passwords in {state.root / 'secrets'})",
        *(
            f"  {name:<24} http://{plant.health.host}:{processes.port(name, plant.health)}/health and /metrics"
            for name in health.processes(plant)
        ),
        f"  {'dashboards':<24} http://{plant.viewer.host}:{plant.viewer.port}/",
        f"  {'state and logs':<24} {state.root}",
        "Next: ./plantlog status · ./plantlog alarms · ./plantlog psql · ./plantlog logs -f · stop: ./plantlog down",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _address(source: Source, plant: Plant) -> str:
    at = f"http://{plant.push.host}:{plant.push.port}" if isinstance(source, PushSource) else ""
    return at + source.address
