"""Output to a terminal with control characters escaped. Output to files stays as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import rich.console
from rich.segment import Segment

from core.errors import NotConfirmed
from core.log import printable


class Console(rich.console.Console):
    """Rich's console: only its own styles and cursor movements reach a terminal."""

    def render(self, renderable: Any, options: Any = None) -> Iterable[Segment]:
        """The parts of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class _Terminal:
    """A text stream whose control characters are escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.rich_proxied_file = stream  # rich writes here: what it prints was escaped before it was styled

    def write(self, text: str) -> int:
        return self._stream.write(printable(text))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def protect() -> None:
    """Escape what is written to the standard streams, where they are a terminal."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream.isatty():
            setattr(sys, name, _Terminal(stream))


def confirm(is_terminal: Callable[[], bool], ask: Callable[[], bool], action: str = "applied") -> None:
    """Raise NotConfirmed unless somebody confirms. ``action``: what was to be done, as a participle."""
    if not is_terminal():
        raise NotConfirmed(f"nothing was {action}: there is no terminal to ask for confirmation; use --yes")
    if not ask():
        raise NotConfirmed(f"nothing was {action}")
