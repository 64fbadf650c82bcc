"""Whether the appliance works as before: no poll late, nothing that waits, no overload. What is stored is not asked."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

from ingest.config.model import HealthOptions
from ops import health

_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_LOOKS = 6  # in a row in which nothing is said
_BACKLOG_ROWS = 20_000
_COLLECTORS = ("collector-opcua", "collector-modbus", "collector-push")


@dataclass(slots=True)
class Calm:
    """Looks again and again; what is missed counts from one look to the next."""

    options: HealthOptions
    _missed: dict[str, int] = field(default_factory=dict)

    def left(self, collectors: tuple[str, ...]) -> list[str]:
        """What is not as before, in words."""
        said = {name: health.ask(name, self.options) for name in (*collectors, "writer", "maintenance")}
        wrong = [f"{name} does not answer" for name, report in said.items() if report is None]
        for name in collectors:
            for source in (said[name] or {}).get("sources", ()):
                wrong += self._of(source)
        if (said["writer"] or {}).get("backlog_rows", 0) > _BACKLOG_ROWS:
            wrong.append("the writer is behind")
        overload = (said["maintenance"] or {}).get("overload")
        if overload is not None and overload["since"] is not None:
            wrong.append("overload has not ended")
        return wrong

    def _of(self, source: dict[str, Any]) -> list[str]:
        name, missed = source["name"], source["missed"]
        before = self._missed.setdefault(name, missed)
        self._missed[name] = missed
        if source["state"] not in ("connected", "degraded"):
            return [f"source {name} is {source['state']}"]
        late = source["pace_seconds"] > 0 or missed > before
        return [f"polls of source {name} are late"] if late else []


async def calm(options: HealthOptions, modbus: bool, seconds: float = _SECONDS) -> tuple[float, list[str]]:
    """Seconds until all is as before, and what is not after ``seconds``: nothing, where all is."""
    collectors = tuple(name for name in _COLLECTORS if modbus or name != "collector-modbus")
    looking, began, in_a_row = Calm(options), time.monotonic(), 0
    while True:
        left = await asyncio.to_thread(looking.left, collectors)
        took = time.monotonic() - began
        in_a_row = 0 if left else in_a_row + 1
        if in_a_row >= _LOOKS:
            return max(0.0, took - (_LOOKS - 1) * _LOOK_SECONDS), []
        if left and took > seconds:
            return took, left
        await asyncio.sleep(_LOOK_SECONDS)
