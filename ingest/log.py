"""What processes write to their logs: all that happens, but not the same thing thousands of times a minute."""

from __future__ import annotations

import logging
import time

_MOST = 60  # records of one kind a minute
_MINUTE = 60.0  # s


class Sparing(logging.Filter):
    """Lets through so many records of a kind (logger, level and unformatted text) a minute, and says that it does.

    Who is outside must not be able to fill a disk, or to hide what else happens, by making us complain.
    """

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, int, str], tuple[float, int]] = {}  # kind → since (monotonic s), records

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is written."""
        kind = (record.name, record.levelno, str(record.msg)[:200])
        now = time.monotonic()
        since, count = self._seen.get(kind, (now, 0))
        if now - since > _MINUTE:
            if count > _MOST:
                record.msg = f"({count - _MOST} more like this were not written) {record.msg}"
            since, count = now, 0
            if len(self._seen) > 1000:  # kinds that somebody invents
                self._seen.clear()
        self._seen[kind] = since, count + 1
        if count + 1 == _MOST:
            record.msg = f"{record.msg} (more like this are not written for a minute)"
        return count < _MOST


def begin() -> None:
    """Write to standard error from now on."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for handler in logging.getLogger().handlers:
        handler.addFilter(Sparing())
