"""Execution of queries of DuckDB: their limits, and who computes for them."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from threading import Timer
from typing import TypeVar

from core.config.options import table_in_force
from core.errors import OperationError
from history.sql.sources.processes import Processes

Item = TypeVar("Item")
Result = TypeVar("Result")
_SIZE = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*([KMGT])(i?)B\s*", re.IGNORECASE)
_SIZES = 8 * 10**6, 1024 * 10**12  # bytes: with 2 MiB DuckDB counts no rows


@dataclass(frozen=True, slots=True)
class Limits:
    """Memory and processors that a query may take. Raises OperationError for a memory that is none."""

    memory: str  # such as 2GiB
    threads: int
    seconds: float
    narrow: str = (  # what to do if they do not suffice
        "narrow the query by time and channel_id or name, compared with constants, or use samples_1m or samples_1h"
    )
    are_options: bool = True  # of a command
    stop: Future[None] = field(default_factory=Future)  # done: nobody waits for the answer any more

    def __post_init__(self) -> None:
        match = _SIZE.fullmatch(self.memory)
        size = 0.0
        if match is not None:
            size = float(match[1]) * (1024 if match[3] else 1000) ** (1 + "KMGT".index(match[2].upper()))
        if not _SIZES[0] <= size <= _SIZES[1]:
            legal = "a size from 8MB to 1024TB, such as 500MB or 2GB"
            raise OperationError(f"--memory: found {self.memory!r}; legal: {legal}")

    @contextmanager
    def deadline(self) -> Iterator[Timer]:
        """Let all that is done in the block with these limits share their time. The timer ends it, unless cancelled."""
        timer = Timer(self.seconds, self.stop.set_result, (None,))
        timer.daemon = True
        timer.start()
        try:
            yield timer
        finally:
            timer.cancel()

    def require_time(self) -> None:
        """Raise OperationError if nobody waits for the answer any more."""
        if self.stop.done():
            raise self.overdue()

    def overdue(self) -> OperationError:
        """Error of what takes longer than it may."""
        return OperationError(f"the query took longer than {self.seconds:g} s: {self.advice('--timeout')}")

    def advice(self, option: str) -> str:
        """Advice on what to do where a limit does not suffice."""
        return f"{self.narrow}, or raise {option}" if self.are_options else self.narrow

    def executor(self, state: Path, questions: Mapping[str, str] | None = None) -> Executor:
        """Executor that uses as many processors: processes, or threads of this one; or the cluster of ``[questions]``.

        ``questions``: that table; None: as a state folder's configuration has it.
        """
        options = table_in_force(state, "questions") if questions is None else questions
        if "cluster" in options:
            from history.sql.sources.cluster import Cluster  # noqa: PLC0415

            return Cluster(options, self.seconds)
        return Processes(self.threads) if self.threads > 1 else ThreadPoolExecutor(1)


def in_order(
    submit: Callable[[Item], Future[Result]],
    items: Iterable[Item],
    at_a_time: int,
    size: Callable[[Item], int] = lambda _: 0,
    enough: float = inf,
) -> Iterator[Result]:
    """Results of items in their order. So many are submitted at a time, and no more results wait.

    ``size``: of an item; while those submitted have ``enough`` together, no further one is read.
    """
    waiting = iter(items)
    submitted: deque[tuple[int, Future[Result]]] = deque()
    try:
        while True:
            while len(submitted) < at_a_time and sum(n for n, _ in submitted) < enough:
                if (item := next(waiting, None)) is None:
                    break
                submitted.append((size(item), submit(item)))
            if not submitted:
                return
            yield submitted.popleft()[1].result()
    finally:
        for _, future in submitted:
            future.cancel()
