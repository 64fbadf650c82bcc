"""The process that fuzzes: ``python -m tests.fuzz.child NAME``, then libFuzzer's options; libFuzzer ends it."""

from __future__ import annotations

import logging
import sys

import atheris

from tests.fuzz.targets import target


def main() -> None:
    """Does not return: libFuzzer ends the process."""
    name, *options = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=["ingest", "tomllib", "csv"], enable_loader_override=False):
        fuzzed = target(name)
    atheris.Setup([sys.argv[0], *options], fuzzed.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
