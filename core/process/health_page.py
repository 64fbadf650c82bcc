"""The health page of a process, by its settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from core.config.processes import port
from core.config.settings import ProcessSettings
from core.servers import health


def serve(
    process: str, settings: ProcessSettings, report: Callable[[], Awaitable[health.HealthReport]], state: Path
) -> AbstractAsyncContextManager[None]:
    """Serve while the block runs. Raises OperationError if the port is in use."""
    options = settings.health
    return health.serve(options.host, port(process, options), report, state, settings.server_tls(options, state))
