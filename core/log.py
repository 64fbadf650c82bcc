"""Logging to standard error, with a rate limit per kind of message."""

from __future__ import annotations

import logging
import re
import time

_MAX_PER_MINUTE = 60  # records of one kind a minute
_MINUTE = 60.0  # s
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # of ECMA-48, but for tab and line feed


def printable(text: str) -> str:
    """``text`` with control characters as in ``\\x1b[31m``: sequences such as CSI and OSC do nothing to a terminal."""
    return _CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", text)


class RateLimitFilter(logging.Filter):
    """Limit the records per minute of each kind (logger, level and unformatted text), and report the suppression.

    A client must not be able to fill the disk, or to hide other messages, by provoking warnings.
    """

    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[tuple[str, int, str], tuple[float, int]] = {}  # kind → since (monotonic s), records

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the record is to be written."""
        kind = (record.name, record.levelno, str(record.msg)[:200])
        now = time.monotonic()
        since, count = self._counts.get(kind, (now, 0))
        if now - since > _MINUTE:
            if count > _MAX_PER_MINUTE:
                record.msg = f"({count - _MAX_PER_MINUTE} similar messages suppressed) {record.msg}"
            since, count = now, 0
            if len(self._counts) > 1000:  # unbounded kinds
                self._counts.clear()
        self._counts[kind] = since, count + 1
        if count + 1 == _MAX_PER_MINUTE:
            record.msg = f"{record.msg} (similar messages are suppressed for one minute)"
        return count < _MAX_PER_MINUTE


class UtcFormatter(logging.Formatter):
    """Lines with times in the form of PostgreSQL's log: ``2026-11-26 08:00:00.123 Z``."""

    converter = staticmethod(time.gmtime)
    default_msec_format = "%s.%03d Z"

    def format(self, record: logging.LogRecord) -> str:
        """The line, with control characters escaped."""
        return printable(super().format(record))


def utc_now() -> str:
    """Now, in that form."""
    return UtcFormatter().formatTime(logging.makeLogRecord({}))


def configure() -> None:
    """Configure logging to standard error."""
    logging.basicConfig(level=logging.INFO)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(UtcFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        handler.addFilter(RateLimitFilter())
