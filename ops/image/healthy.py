"""``python healthy.py URL``: exit code 0 where the URL is answered with 200. What a container's health check asks."""

from __future__ import annotations

import http.client
import sys
from urllib.parse import urlsplit

_SECONDS = 4.0


def healthy(url: str) -> bool:
    """Whether somebody answers there, and says that he is well."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_SECONDS)
    try:
        connection.request("GET", parts.path)
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(not healthy(sys.argv[1]))
