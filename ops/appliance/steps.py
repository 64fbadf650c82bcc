"""Progress output of long commands: one line per step, with its duration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console
from rich.markup import escape


class Step:
    """One step under way."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self.result = ""  # shown beside the title at the end
        self.mark = "[green]✓[/]"

    def note(self, line: str) -> None:
        """A line below the step, at once."""
        self._console.print(f"  [dim]·[/] {escape(line)}", highlight=False, soft_wrap=True)

    def warn(self, result: str) -> None:
        """The step succeeded with a warning."""
        self.mark, self.result = "[yellow]![/]", result


class Steps:
    """Steps one after the other; a spinner shows the one under way where there is a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """A block that is one step."""
        started = time.monotonic()
        step = Step(self.console, title)
        try:
            with self.console.status(escape(title)) if self.console.is_terminal else nullcontext():
                yield step
        except BaseException:
            self._finish("[red]✗[/]", title, "", started)
            raise
        self._finish(step.mark, title, step.result, started)

    def _finish(self, mark: str, title: str, result: str, started: float) -> None:
        seconds = f"[dim]{time.monotonic() - started:6.1f} s[/]"
        self.console.print(
            f"{mark} {seconds}  {escape(title)}  [dim]{escape(result)}[/]", highlight=False, soft_wrap=True
        )
