"""The manual page plantlog(1), from the help of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from core.paths import CHECKOUT
from ops.cli.app import application

LIBRARY = Path("/usr/lib/plantlog")
_FILES = (
    ("/etc/plantlog/plant.toml", "the plant: sources, tag lists, options"),
    ("/var/lib/plantlog", "the state folder: database, spools, certificates, secrets, logs"),
)


def page(version: str) -> str:
    """The page in roff (man(7))."""
    root = typer.main.get_command(application())
    parts = [
        f'.TH PLANTLOG 1 "" "plantlog {version}" "User Commands"',
        *(".SH NAME", rf"plantlog \- {_roff(_first_line(root)).rstrip('.')}"),
        *(".SH SYNOPSIS", ".B plantlog", r"COMMAND [OPTIONS]"),
        ".SH DESCRIPTION",
        "Each installation has one state folder. Commands of root run as its owner.",
        ".SH COMMANDS",
        *_commands(root, "plantlog"),
        ".SH FILES",
        *(line for path, text in _FILES for line in (".TP", f".I {_roff(path)}", _roff(text))),
        ".SH ENVIRONMENT",
        *(".TP", ".B PLANTLOG_STATE", "another state folder"),
        *(".TP", ".B PLANTLOG_DSN", "a database server of your own, at the first start"),
    ]
    return "\n".join(parts) + "\n"


def _commands(command: Any, path: str) -> Iterator[str]:
    context = typer.Context(command, info_name=path)
    if not hasattr(command, "commands"):
        usage = command.collect_usage_pieces(context)
        yield f".SS {_roff(' '.join([path, *usage]))}"
        yield from (_roff(line) for line in Text.from_markup(command.help or "").plain.splitlines() if line.strip())
        for parameter in command.params:
            if (record := parameter.get_help_record(context)) is not None:
                yield from (".TP", f".B {_roff(record[0])}", _roff(record[1]))
        return
    for name in command.list_commands(context):
        yield from _commands(command.commands[name], f"{path} {name}")


def _first_line(command: Any) -> str:
    return str(command.help).partition("\n")[0]


def _roff(text: str) -> str:
    """A text as it is: nothing in it is a request or an escape."""
    text = " ".join(text.replace(str(CHECKOUT), str(LIBRARY)).split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{text}" if text[:1] in ("'", ".") else text
