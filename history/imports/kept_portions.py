"""Portions that were checked, on disk: what is stored is what was checked, and a file is parsed once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType

import numpy as np

from core.errors import OperationError
from history.imports.portion import Portion


class KeptPortions:
    """Portions in a file without a name in ``folder``, 32 bytes a sample; it is gone when the process ends.

    Raises OperationError if it can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bytes_read: list[int] = []
        try:
            self._file = TemporaryFile(dir=folder)  # noqa: SIM115  (closed by the context manager)
        except OSError as error:
            raise self._failure(error) from None

    def __enter__(self) -> KeptPortions:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, portion: Portion) -> None:
        """Keep the next portion."""
        try:
            for column in (portion.channel, portion.time, portion.value, portion.status, portion.line):
                np.save(self._file, column, allow_pickle=False)
            self._file.flush()
        except OSError as error:
            raise self._failure(error) from None
        self._bytes_read.append(portion.bytes_read)

    def __iter__(self) -> Iterator[Portion]:
        self._file.seek(0)
        for bytes_read in self._bytes_read:
            channel, time, value, status, line = (np.load(self._file, allow_pickle=False) for _ in range(5))
            yield Portion(channel, time, value, status, line, bytes_read)

    def _failure(self, error: OSError) -> OperationError:
        return OperationError(f"{self._folder}: {error.strerror}; checked samples are kept there, 32 bytes each")
