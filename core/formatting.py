"""Numbers and times as text, tables, and consoles for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.box import Box
    from rich.console import Console
    from rich.table import Table


def count(n: int, noun: str) -> str:
    """Number and noun: ``1 source``, ``2 sources``; of several words, the first gets the plural."""
    head, space, rest = noun.partition(" ")
    ending = "" if n == 1 else "es" if head.endswith("ch") else "s"
    return f"{n:,} {head}{ending}{space}{rest}"


def change(n: int, noun: str) -> str:
    """Difference and noun: ``+1 sample``, ``-2 samples``."""
    return ("-" if n < 0 else "+") + count(abs(n), noun)


def names_text(names: Sequence[str], most: int = 10) -> str:
    """The first names, and how many more there are."""
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most:,} more"


def duration(seconds: float) -> str:
    """A duration by its two largest units: ``8 h``, ``36 min 55 s`` or ``0.1 s``."""
    if seconds < 60:
        return f"{max(0.0, seconds):.3g} s"
    rest, parts = round(seconds), list[str]()
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        n, rest = divmod(rest, size)
        parts += [f"{n} {unit}"] if n else []
    return " ".join(parts[:2])


def threshold_text(limit: str, threshold: float | None, unit: str) -> str:
    """A threshold with its unit: ``unit`` is the channel's. Empty: the alarm has none."""
    if threshold is None or limit == "bad":
        return ""
    own = {"stale": "s", "rate": f"{unit}/s"}.get(limit, unit)
    return f"{threshold:g} {own}".rstrip()


def wide(console: Console, columns: int = 160) -> Console:
    """The console itself if it is a terminal, else one of ``columns``, so that rows of tables are not wrapped."""
    from rich.console import Console  # noqa: PLC0415  (texts need no tables)

    return console if console.is_terminal else Console(width=columns)


def table(*columns: str, title: str | None = None, box: Box | None = None) -> Table:
    """Empty table. Columns that begin with ``>`` are figures, aligned to the right; a last one of texts is folded."""
    from rich.table import Table  # noqa: PLC0415

    empty = Table(title=title, box=box, pad_edge=False, header_style="dim")
    for column in columns:
        is_figure = column.startswith(">")
        justify: Literal["left", "right"] = "right" if is_figure else "left"
        no_wrap = is_figure or column != columns[-1]
        empty.add_column(column.lstrip(">"), justify=justify, no_wrap=no_wrap, overflow="fold")
    return empty
