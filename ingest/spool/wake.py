"""Notifies the writer process of new batches in a spool.

A datagram on a Unix socket: if nobody listens or its queue is full, nothing is lost, because the writer checks
the spools when it starts and before it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

_NAME = "writer.wake"


def _address(folder_fd: int) -> str:
    # Unix socket addresses are limited to 107 characters, folder names are not: go through the open folder.
    return f"/proc/self/fd/{folder_fd}/{_NAME}"


class Waker:
    """The collector's end."""

    def __init__(self, folder: Path) -> None:
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wake(self) -> None:
        """Wake the writer, if it is running."""
        with contextlib.suppress(OSError):
            self._socket.sendto(b"1", _address(self._folder_fd))

    def close(self) -> None:
        """Close the file descriptors."""
        self._socket.close()
        os.close(self._folder_fd)


class WakeUpListener:
    """The writer's end: sets ``event`` whenever a collector wakes it."""

    def __init__(self, folder: Path, event: asyncio.Event) -> None:
        self._folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        (folder / _NAME).unlink(missing_ok=True)  # of a writer that was killed
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind(_address(self._folder_fd))
        self._event = event
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._read)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(64):
                pass
        self._event.set()

    def close(self) -> None:
        """Stop listening."""
        self._loop.remove_reader(self._socket)
        self._socket.close()
        os.close(self._folder_fd)
