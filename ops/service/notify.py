"""Messages to the service manager (sd_notify(3)): datagrams to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Self

_SEND_SECONDS = 5.0
_EXTEND_SECONDS = 15.0  # between two messages
_EXTEND_BY = "EXTEND_TIMEOUT_USEC=90000000"  # longer than a loaded machine may stop a thread


class ServiceManager:
    """The service manager of this process. Without one, messages go nowhere."""

    def __init__(self, address: str, watchdog_seconds: float | None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds  # None: it expects no WATCHDOG=1

    @classmethod
    def take(cls) -> Self:
        """Make it of the environment's variables, and remove these: they are not for processes started here."""
        address, pid, usec = (
            os.environ.pop(f"{name}", "") for name in ("NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC")
        )
        watched = usec.isdigit() and pid in ("", str(os.getpid()))
        return cls(address, int(usec) / 1e6 if watched else None)

    def send(self, *assignments: str) -> None:
        """Send assignments such as ``READY=1``. A manager that does not take them is no failure of ours."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
                client.settimeout(_SEND_SECONDS)
                client.connect(self._address)
                client.sendall("\n".join(assignments).encode())

    @contextmanager
    def extending(self) -> Iterator[None]:
        """Inside the block, the time-outs of start, stop and watchdog do not expire while this process runs."""
        ended = threading.Event()

        def extend() -> None:
            while not ended.is_set():
                self.send(_EXTEND_BY, "WATCHDOG=1")
                ended.wait(_EXTEND_SECONDS)

        thread = threading.Thread(target=extend, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
