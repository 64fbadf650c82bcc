"""Summary that ``up`` prints at its end."""

from __future__ import annotations

from rich.console import Console

from core.config import processes
from core.config.https import TlsSettings, base_url, viewer_url
from core.config.model import Plant
from core.config.sources import PushSource, Source
from core.formatting import count
from core.paths import State
from ops import health
from ops.deployment import Deployment


def print_summary(
    deployment: Deployment, plant: Plant, database: str, state: State, console: Console, *, database_is_away: bool
) -> None:
    """Sources, addresses and next commands. ``database``: where it is."""
    health_page = base_url(plant, plant.health)
    served = " (simulated)" if deployment.simulator else ""
    away = " does not respond; samples wait in the spool" if database_is_away else ""
    lines = [
        f"Logging plant [bold]{plant.name}[/]{served}; configuration {deployment.config}",
        *(f"  {s.name:<24} {_address(s, plant)}  {count(len(s.tags), 'channel')}" for s in plant.sources),
        f"  {'database':<24} {database}{away}  (passwords in {state.root / 'secrets'})",
        *(
            f"  {name:<24} {health_page}:{processes.port(name, plant.health)}/health and /metrics"
            for name in health.processes(plant)
        ),
        f"  {'dashboards':<24} {viewer_url(plant)}/",
        *_certificate(plant, state),
        f"  {'state and logs':<24} {state.root}",
        "Next: ./plantlog status · ./plantlog alarms · ./plantlog psql · ./plantlog logs -f · stop: ./plantlog down",
    ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _certificate(plant: Plant, state: State) -> list[str]:
    file = TlsSettings.of(plant).certificate_file(state.root)
    return [] if file is None else [f"  {'certificate':<24} {file}  (./plantlog admin certificate)"]


def _address(source: Source, plant: Plant) -> str:
    at = f"{base_url(plant, plant.push)}:{plant.push.port}" if isinstance(source, PushSource) else ""
    return at + source.address
