"""What a query of DuckDB may take."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take of the machine."""

    memory: str  # such as 2GiB
    threads: int
    seconds: float
    narrow: str = (  # what to do if they do not suffice
        "narrow the query by time and channel_id or name, compared with constants, or use samples_1m or samples_1h"
    )
    are_options: bool = True  # of a command
    stop: Future[None] = field(default_factory=Future)  # done: nobody waits for the answer any more

    def advice(self, option: str) -> str:
        """What to do if one does not suffice."""
        return f"{self.narrow}, or raise {option}" if self.are_options else self.narrow
