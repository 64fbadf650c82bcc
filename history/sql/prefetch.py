"""Results of tasks, prefetched by other threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Result = TypeVar("Result")
_THREADS = 2  # that read an archive, or compute what of its samples is asked


def prefetched(tasks: Iterable[Callable[[], Result]], threads: int = _THREADS) -> Iterator[Result]:
    """Results of the tasks in order. As many tasks run as there are threads, and no more results wait."""
    pool = ThreadPoolExecutor(threads)
    started: deque[Future[Result]] = deque()
    waiting = iter(tasks)
    try:
        while True:
            started.extend(pool.submit(task) for task in islice(waiting, threads - len(started)))
            if not started:
                return
            yield started.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
