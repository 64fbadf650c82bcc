"""``python healthy.py URL``: exit code 0 if the URL responds with 200. For container health checks."""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

_TIMEOUT = 4.0


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
    sys.exit(not healthy(sys.argv[1]))
