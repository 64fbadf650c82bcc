"""Scans that a session's queries run at the moment, in threads of pyarrow that call back into Python."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any


class Scans:
    """The scans of a session.

    DuckDB lets go of a scan that it no longer needs, and pyarrow's threads read on. A thread that does so while the
    interpreter ends would keep the process from ending (apache/arrow, issue 50482), so that they are waited for before.
    """

    def __init__(self) -> None:
        self.failures: list[BaseException] = []  # what ended a query: DuckDB passes on no more than a text
        self._changed = threading.Condition()
        self._reading = 0
        self._ended = False

    def read(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The batches of a scan, until :meth:`end`."""
        while self._may_read():
            try:
                batch = next(batches, None)
            except BaseException as error:
                self.failures.append(error)
                raise
            finally:
                self._has_read()
            if batch is None:
                return
            yield batch

    def end(self, seconds: float) -> None:
        """No thread reads any more, after so many seconds at most."""
        with self._changed:
            self._ended = True
            self._changed.wait_for(lambda: not self._reading, seconds)

    def _may_read(self) -> bool:
        with self._changed:
            self._reading += not self._ended
            return not self._ended

    def _has_read(self) -> None:
        with self._changed:
            self._reading -= 1
            self._changed.notify_all()
