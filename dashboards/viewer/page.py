"""Static files of the page, loaded once; other names do not exist."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from aiohttp import web

FOLDER = Path(__file__).parent / "page"
# What the package uplot-python carries. The package is not imported: that needs IPython.
UPLOT = Path(str(distribution("uplot-python").locate_file("uplot/static")))
_UPLOT_FILES = ("uPlot.iife.js", "uPlot.min.css")
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file, plain and compressed."""

    kind: str
    body: bytes
    compressed: bytes
    tag: str

    def answer(self, request: web.Request, status: int = 200) -> web.Response:
        """The file, or 304 Not Modified instead of 200."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if status == 200 and self.tag in request.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=headers)
        headers["Content-Type"] = self.kind
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
            return web.Response(status=status, body=self.compressed, headers=headers)
        return web.Response(status=status, body=self.body, headers=headers)


def files() -> dict[str, File]:
    """Path relative to the folder → file; those of uPlot are below ``uplot``."""
    own_files = {
        path.relative_to(FOLDER).as_posix(): _file(path)
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in _TYPES and path.is_file()
    }
    return own_files | {f"uplot/{name}": _file(UPLOT / name) for name in _UPLOT_FILES}


def _file(path: Path) -> File:
    body = path.read_bytes()
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return File(_TYPES[path.suffix], body, gzip.compress(body, 9, mtime=0), tag)
