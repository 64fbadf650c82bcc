"""Imports of commands: what they do not need is time of their users."""

from __future__ import annotations

import gc
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from types import ModuleType

from core.errors import OperationError


class _Without(MetaPathFinder):
    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        """Find no module of the name: others look for it after this."""
        if fullname == self._name:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def leave_out(name: str) -> None:
    """Let this process do without a library that another one imports only because it is installed."""
    if name not in sys.modules:
        sys.meta_path.insert(0, _Without(name))


@contextmanager
def quick_imports() -> Iterator[None]:
    """Import in the block as :func:`uncollected`, for a process that ends soon: what is there is never collected.

    Without pandas, too, which pyarrow imports as soon as it makes a scalar: it takes longer than all others together,
    and no command has a data frame. A notebook may.
    """
    leave_out("pandas")
    with uncollected():
        try:
            yield
        finally:
            gc.freeze()


@contextmanager
def uncollected() -> Iterator[None]:
    """Import in the block without collections of garbage, which take a fifth of the time: there is none yet."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def require_analysis(feature: str, library: str) -> None:
    """Raise OperationError if a library of requirements-analysis.lock is not installed, without importing it."""
    if importlib.util.find_spec(library) is None:
        install = ".venv/bin/python -m pip install --no-warn-conflicts --require-hashes -r requirements-analysis.lock"
        raise OperationError(f"{feature} needs {library}, which is not installed: {install}")
