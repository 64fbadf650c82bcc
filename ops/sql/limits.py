"""What a query of DuckDB may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may take of the machine."""

    memory: str  # such as 2GiB
    threads: int
    seconds: float
    narrow: str = (  # what to do if they do not suffice
        "narrow the query by time and channel_id or name, compared with constants, or use samples_1m or samples_1h"
    )
