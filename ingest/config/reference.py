"""The reference of all options, made from the model: docs/configuration.md and ops/example/plant.sample.toml.

``python -m ingest.config.reference`` writes both anew; a test fails where they are not what it would write.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from ingest.config import model, sources
from ingest.config.base import fields_of
from ingest.config.explain import field_legal
from ingest.config.model import NotifyOptions, Plant, PlantOptions, RetentionOptions
from ingest.config.quantities import (
    AGE_LEGAL,
    BYTES_LEGAL,
    DELAY_LEGAL,
    DURATION_LEGAL,
    KEEP_LEGAL,
    RETENTION_LEGAL,
    size_text,
    span_text,
)
from ingest.config.sources import (
    DEFAULT_CLASS,
    ModbusSource,
    ModbusTag,
    OpcuaSource,
    OpcuaTag,
    PushSource,
    PushTag,
    Tag,
)

_CHECKOUT = Path(__file__).parents[2]
PAGE = _CHECKOUT / "docs" / "configuration.md"
SAMPLE = _CHECKOUT / "ops" / "example" / "plant.sample.toml"

SOURCES: Mapping[str, type[Any]] = {"opcua": OpcuaSource, "modbus": ModbusSource, "push": PushSource}
TAGS: Mapping[str, type[Any]] = {"All sources": Tag, "OPC UA": OpcuaTag, "Modbus": ModbusTag, "Push": PushTag}
_SPANS = (DURATION_LEGAL, DELAY_LEGAL, AGE_LEGAL, KEEP_LEGAL, RETENTION_LEGAL)
# The page says once what these are.
_SHORT = {
    DURATION_LEGAL: "a duration",
    DELAY_LEGAL: 'a duration up to "1s"',
    AGE_LEGAL: "a span",
    KEEP_LEGAL: '"0s" or a span up to "30d"',
    RETENTION_LEGAL: '"forever" or a span',
    BYTES_LEGAL: "a size",
    "a string in quotes": "a string",
    "a file's path in quotes": "a path",
    "a list of strings in quotes": "a list of strings",
}
_LISTED = ("one of ", "a list of bad-signature", "a whole number from ")  # what the sample says of legal values

# What the sample shows of options that have no default, and of those whose default is an empty list.
EXAMPLES: Mapping[str, Any] = {
    "compression": "packed",
    "disk_budget": "200 GiB",
    "mail_from": "plantlog@example.org",
    "mail_to": ["operators@example.org"],
    "password_file": "secrets/kiln_password",
    "sampling_interval": "250ms",
    "server_certificate": "pki/kiln.der",
    "smtp": "mail.example.org:587",
    "smtp_ca_file": "pki/mail.pem",
    "smtp_password_file": "secrets/smtp_password",
    "smtp_username": "plantlog",
    "stale_after": "10m",
    "token_file": "secrets/viewer_token",
    "username": "plantlog",
    "webhook": "https://alarms.example.org/plantlog",
    "webhook_secret_file": "secrets/webhook_secret",
}
_NAMES = {"opcua": "kiln", "modbus": "crusher", "push": "edge"}
_ADDRESSES = {"opcua": "opc.tcp://192.0.2.10:4840", "modbus": "tcp://192.0.2.20:502"}

_REGION = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
_SAMPLE_HEAD = """\
# Every option of plantlog with its default, made by `python -m ingest.config.reference`.
#
# A line that begins with # and an option shows the option's default, or an example where there is none: remove the # to
# set it. Paths are relative to this file's folder. Check a configuration with `./plantlog check PLANT.TOML`.
"""


def page(text: str) -> str:
    """The text of docs/configuration.md with its tables made anew."""
    made = {"tables": _tables, "tags": _tag_columns}
    return _REGION.sub(lambda match: f"{match[1]}\n{made[match[2]]()}\n{match[3]}", text)


def sample() -> str:
    """The text of the sample configuration."""
    parts = [_SAMPLE_HEAD, _table("plant", PlantOptions)]
    for name, table in tables().items():
        parts.append(_table(name, table))
    parts.append(_table("notify", NotifyOptions, off=True))
    parts += [_source(kind, table) for kind, table in SOURCES.items()]
    return "\n".join(parts)


def tables() -> dict[str, type[Any]]:
    """The tables of plant.toml that may be left out, by name, [notify] apart."""
    named: dict[str, type[Any]] = {}
    for name, field in fields_of(Plant).items():
        if inspect.isclass(field.annotation) and hasattr(field.annotation, "__pydantic_fields__"):
            named[name] = field.annotation
        elif name == "retention":
            named[f"retention.{DEFAULT_CLASS}"] = RetentionOptions
    return named


def meanings(table: type[Any]) -> Mapping[str, str]:
    """Option → the text below it in the model, also where a base class has it."""
    found: dict[str, str] = {}
    for one in reversed(table.__mro__):
        found |= _texts().get(one.__name__, {})
    return found


@cache
def _texts() -> Mapping[str, Mapping[str, str]]:
    """Class → option → text. Python itself forgets what stands below an attribute."""
    found: dict[str, dict[str, str]] = {}
    for node in (node for module in (sources, model) for node in ast.parse(inspect.getsource(module)).body):
        if isinstance(node, ast.ClassDef):
            texts = found.setdefault(node.name, {})
            for one, below in zip(node.body, node.body[1:], strict=False):
                match one, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        texts[name] = " ".join(text.split())
    return found


def about(table: type[Any]) -> str:
    """What a class says of itself."""
    return " ".join(inspect.cleandoc(table.__doc__ or "").split())


def value_text(name: str, field: FieldInfo, value: Any) -> str:
    """A value as it is written in plant.toml."""
    legal = field_legal(name, field)
    if value is None and legal == RETENTION_LEGAL:
        value = "forever"
    elif isinstance(value, float) and legal in _SPANS:
        value = span_text(value)
    elif isinstance(value, int) and legal == BYTES_LEGAL:
        value = size_text(value)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    elif isinstance(value, tuple):
        value = list(value)
    return json.dumps(value, ensure_ascii=False)  # texts, numbers, true, false and lists are alike in TOML


def _tables() -> str:
    shown: dict[str, type[Any]] = {"`[plant]`": PlantOptions}
    for name, table in tables().items():
        shown[f"`[{name.replace(DEFAULT_CLASS, 'CLASS')}]`"] = table
    shown["`[notify]`"] = NotifyOptions
    shown |= {f'`[[source]]` with `kind = "{kind}"`': table for kind, table in SOURCES.items()}
    return "\n".join(f"### {title}\n\n{about(table)}\n\n{_rows(table, 'Option')}" for title, table in shown.items())


def _tag_columns() -> str:
    parts = []
    for title, table in TAGS.items():
        common = fields_of(Tag) if table is not Tag else {}
        parts.append(f"### {title}\n\n{about(table)}\n\n{_rows(table, 'Column', common)}")
    return "\n".join(parts)


def _rows(table: type[Any], first: str, without: Mapping[str, Any] | None = None) -> str:
    lines = [f"| {first} | Default | Legal | Meaning |", "|---|---|---|---|"]
    for name, field in fields_of(table).items():
        if (name == "kind" and first == "Option") or name in (without or ()):
            continue
        legal = _legal(name, field)
        cells = (f"`{name}`", _default(name, field, first), legal, meanings(table)[name])
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _legal(name: str, field: FieldInfo) -> str:
    legal = field_legal(name, field)
    return "a path" if name == "tags" else _SHORT.get(legal, legal)


def _default(name: str, field: FieldInfo, first: str) -> str:
    if field.is_required():
        return "required"
    text = "" if name == "tags" else value_text(name, field, field.default)
    if first == "Column":
        text = text.strip('"')
    return "" if text in ("", "null") else f"`{text}`"


def _table(name: str, table: type[Any], off: bool = False) -> str:
    begin = f"{'#' if off else ''}[{name}]\n"
    given = {"name": "mill"} if table is PlantOptions else {}
    return "".join((*_comment(about(table)), begin, *_options(table, given)))


def _source(kind: str, table: type[Any]) -> str:
    given = {"name": _NAMES[kind], "kind": kind, "tags": f"{_NAMES[kind]}.csv"}
    if kind in _ADDRESSES:
        given["address"] = _ADDRESSES[kind]
    else:
        given["token_file"] = f"secrets/{_NAMES[kind]}_token"
    return "".join((*_comment(about(table)), "[[source]]\n", *_options(table, given)))


def _options(table: type[Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Lines of a table: options that are ``given`` are set, all others commented out."""
    for name, field in sorted(fields_of(table).items(), key=lambda option: option[0] not in given):
        if name in meanings(table):
            legal = field_legal(name, field)
            listed = f" Legal: {legal}." if legal.startswith(_LISTED) else ""
            yield from _comment(meanings(table)[name] + listed)
        if name in given:
            yield f"{name} = {json.dumps(given[name])}\n"
        else:
            example = not field.default and field.default is not False and name in EXAMPLES
            shown = EXAMPLES[name] if example else field.default
            yield f"#{name} = {value_text(name, field, shown)}\n"


def _comment(text: str) -> list[str]:
    return [f"# {line}\n" for line in textwrap.wrap(text.replace("`", ""), 117, break_on_hyphens=False)]


def main() -> None:
    """Write both files."""
    PAGE.write_text(page(PAGE.read_text()))
    SAMPLE.write_text(sample())


if __name__ == "__main__":
    main()
