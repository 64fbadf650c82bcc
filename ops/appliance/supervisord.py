"""supervisord, whose log has times like all other logs: in UTC, and with their zone. It has no option for that."""

from __future__ import annotations

from typing import Any

from supervisor import loggers, supervisord

from core import log


class _Record(loggers.LogRecord):  # type: ignore[misc]  # supervisor has no types
    def asdict(self) -> dict[str, Any]:
        """Fields for the format of a line."""
        return {**super().asdict(), "asctime": log.utc_now()}


if __name__ == "__main__":
    loggers.LogRecord = _Record
    supervisord.main()
