"""Ports of 127.0.0.1 for tests: none is given to another worker of the run, nor soon to another test."""

from __future__ import annotations

import os
import random

from ops.ports import FREE_RANGE, are_free

_WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_SIZE = len(FREE_RANGE) // _WORKERS
_OURS = FREE_RANGE[_WORKER * _SIZE : (_WORKER + 1) * _SIZE]
_next = random.choice(_OURS)  # another run may go on beside this one


def free_ports(count: int) -> int:
    """The first of ``count`` consecutive ports: the next ones of this worker, so that all others come before these do
    again. Whoever is given them may listen much later."""
    global _next  # noqa: PLW0603
    while True:
        first = _next if _next + count <= _OURS.stop else _OURS.start
        _next = first + count
        if are_free(range(first, _next)):
            return first


def free_port() -> int:
    """A single port, of the same ones."""
    return free_ports(1)
