"""A proxy in front of S3-compatible storage that answers 503 SlowDown, over TLS."""

from __future__ import annotations

import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPSConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_SLOW_DOWN = b'<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Slow down.</Message></Error>'
_KEPT = ("content-length", "content-type", "etag", "last-modified", "content-range", "accept-ranges")


@contextmanager
def throttling(port: int, certificate: Path, key: Path, path: str, times: int) -> Iterator[str]:
    """HOST:PORT of a proxy of the storage at ``port``, inside the block.

    ``path``: of the objects whose first ``times`` reads, each, are refused.
    """
    refused = Counter[tuple[str, str | None]]()
    lock = threading.Lock()
    trusting = ssl.create_default_context(cafile=certificate)
    trusting.check_hostname = False

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            read = self.path, self.headers.get("Range")
            with lock:
                is_refused = path in self.path and refused[read] < times
                refused[read] += is_refused
            if is_refused:
                self._answer(503, [("content-length", str(len(_SLOW_DOWN)))], _SLOW_DOWN)
                return
            connection = HTTPSConnection("127.0.0.1", port, context=trusting)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            headers = [(name, value) for name, value in answer.getheaders() if name.lower() in _KEPT]
            self._answer(answer.status, headers, answer.read())
            connection.close()

        do_HEAD = do_GET  # noqa: N815

        def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
            self.send_response(status)
            for header in headers:
                self.send_header(*header)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Print nothing."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
