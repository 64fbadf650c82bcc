"""``python healthy.py [URL]``: exit code 0 if the URL responds with 200. The health check of containers.

Without a URL: the health page of the process that the container is named after, at the port of its metrics, which
Prometheus knows. A container with another name has no page, and is healthy while it runs.
"""

from __future__ import annotations

import http.client
import re
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

_TIMEOUT = 4.0  # s
_TARGETS = Path(__file__).parents[1] / "prometheus" / "containers" / "plantlog.yml"
_READY = ("writer", "collector-push")  # others are healthy while they run: alerts report devices that are down


def page(process: str) -> str | None:
    """Address of the health page of a process; None if it has none."""
    target = re.search(rf'"{re.escape(process)}:(\d+)"', _TARGETS.read_text())
    path = "/health" if process in _READY else "/health/live"
    return target and f"http://127.0.0.1:{target[1]}{path}"


def healthy(url: str) -> bool:
    """Return whether the URL responds with 200."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_TIMEOUT)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    url = sys.argv[1] if sys.argv[1:] else page(socket.gethostname())
    sys.exit(url is not None and not healthy(url))
