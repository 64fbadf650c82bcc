"""Limits of a query of DuckDB."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory and processors that a query may take."""

    memory: str  # such as 2GiB
    threads: int
    seconds: float
    narrow: str = (  # what to do if they do not suffice
        "narrow the query by time and channel_id or name, compared with constants, or use samples_1m or samples_1h"
    )
    are_options: bool = True  # of a command
    stop: Future[None] = field(default_factory=Future)  # done: nobody waits for the answer any more

    def advice(self, option: str) -> str:
        """Advice on what to do where a limit does not suffice."""
        return f"{self.narrow}, or raise {option}" if self.are_options else self.narrow
