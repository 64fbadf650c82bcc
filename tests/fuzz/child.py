"""The process that fuzzes: ``python -m tests.fuzz.child NAME``, then libFuzzer's options; libFuzzer ends it."""

from __future__ import annotations

import logging
import operator
import resource
import sys
from typing import Any

import atheris

from tests.fuzz.targets import target

_COMPARISONS = (
    operator.lt,
    operator.le,
    operator.eq,
    operator.ne,
    operator.gt,
    operator.ge,
)  # as the bytecode has them
_MEMORY = 1 << 30  # bytes; a target that takes more gets a MemoryError, which is a crash with its input
_TRACED = (int, float, str, bytes)


def main() -> None:
    """Does not return: libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["core", "ingest", "tomllib", "csv"], enable_loader_override=False):
        fuzzed = target(name)
    trace = atheris._trace_cmp

    def check(data: bytes) -> None:
        if atheris._trace_cmp is not compared:  # Fuzz() has put its own there
            nonlocal trace
            trace, atheris._trace_cmp = atheris._trace_cmp, compared
        fuzzed.check(data)

    def compared(left: Any, right: Any, comparison: int, index: int, constant: bool) -> Any:
        """Compare like atheris, but not arrays: atheris 3.0 never frees a comparison's outcome that is no bool."""
        if isinstance(left, _TRACED) and isinstance(right, _TRACED):
            return trace(left, right, comparison, index, constant)
        return _COMPARISONS[comparison](left, right)

    atheris.Setup([sys.argv[0], *options], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
