"""Pydantic's findings as a Problem: what was found, and what is legal, in words."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from ingest.config.quantities import (
    AGE_LEGAL,
    BYTES_LEGAL,
    DURATION_LEGAL,
    RETENTION_LEGAL,
    parse_age,
    parse_bytes,
    parse_duration,
    parse_retention,
)
from ingest.errors import Problem

# What a pattern means, for those who don't read them.
_PATTERNS = {
    "name": "at most 63 lower-case letters, digits, underscores and hyphens, as in boiler-house",
    "channel": "a slash path of letters, digits and . _ % -, as in north/boiler1/drum_pressure, at most 255 long",
    "template": "a channel's name with {measurement}, {field}, {tag.NAME} in it: {tag.host}/{measurement}.{field}",
    "host": "an address or host name of this machine, as in 127.0.0.1",
    "opc.tcp": "an address as in opc.tcp://host:4840",
    "tcp": "an address as in tcp://host:502",
    "register": "coil:N, discrete:N, input:N or holding:N, N from 0",
}

_QUANTITIES = {
    parse_duration: DURATION_LEGAL,
    parse_age: AGE_LEGAL,
    parse_retention: RETENTION_LEGAL,
    parse_bytes: BYTES_LEGAL,
}
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", Path: "a file's path in quotes"}


def read_text(path: Path, field: str, legal: str, problems: list[Problem]) -> str | None:
    """A file's text; None, and a problem, where it can't be had."""
    try:
        content = path.read_bytes()
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except FileNotFoundError:
        problems.append(Problem(str(path), None, field, "no such file", legal))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        what = f"byte 0x{content[error.start]:02x}, which is not UTF-8"
        problems.append(Problem(str(path), line, field, what, legal))
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        problems.append(Problem(str(path), None, field, str(error), legal))
    return None


def found(value: Any) -> str:
    """A value as it may be shown in one line."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return "tables nested too deep"
    return short(text)


def short(text: str) -> str:
    """At most 80 characters of it."""
    return text if len(text) <= 80 else text[:77] + "..."


def nearest(name: str, legal: Iterable[str]) -> str:
    """The legal names, the one that was probably meant first."""
    names = sorted(legal)
    close = difflib.get_close_matches(name, names, 1)
    choices = f"one of {', '.join(names)}"
    return f"did you mean {close[0]}? {choices}" if close else choices


def legal(model: type[BaseModel], error: ErrorDetails) -> str:
    """What may stand where ``error`` was found."""
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] == "extra_forbidden":
        return nearest(name, model.model_fields)
    field = model.model_fields.get(name)
    return error["msg"] if field is None else field_legal(name, field)


def field_legal(name: str, field: FieldInfo) -> str:
    """What may stand in a field, from its type and limits."""
    metadata = list(field.metadata)
    annotation: Any = field.annotation
    optional = get_origin(annotation) in (Union, types.UnionType)
    if optional:
        annotation = next(part for part in get_args(annotation) if part is not types.NoneType)
    if hasattr(annotation, "__metadata__"):
        metadata += annotation.__metadata__
        annotation = annotation.__origin__
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    for item in metadata:
        if getattr(item, "func", None) in _QUANTITIES:
            return _QUANTITIES[item.func]
        for constraint in (item, *getattr(item, "metadata", ())):
            pattern = getattr(constraint, "pattern", None)
            if pattern is not None:
                return _pattern(name, pattern)
    kind = _KINDS.get(annotation, "a text in quotes")
    return kind + _limits(metadata)


def _pattern(name: str, pattern: str) -> str:
    if "measurement" in pattern:
        return _PATTERNS["template"]
    if name == "address" and not pattern.startswith("^[A-Za-z"):
        return _PATTERNS["register" if "holding" in pattern else "opc.tcp" if "opc" in pattern else "tcp"]
    if name == "host":
        return _PATTERNS["host"]
    return _PATTERNS["channel" if "/" in pattern else "name"]


def _limits(metadata: Iterable[Any]) -> str:
    flat = [part for item in metadata for part in (item, *getattr(item, "metadata", ()))]
    low = next((item.ge for item in flat if isinstance(item, Ge)), None)
    high = next((item.le for item in flat if isinstance(item, Le)), None)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f" from {low} up"
