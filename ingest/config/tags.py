"""Tag lists: CSV files, one channel a row, as plants keep them in spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from ingest.config.explain import found, legal, nearest
from ingest.config.model import ModbusTag, OpcuaTag, Tag
from ingest.errors import Problem

T = TypeVar("T", bound=Tag)

_WIDTH = {"int64": 4, "uint64": 4, "float64": 4, "int32": 2, "uint32": 2, "float32": 2}
_BITS = ("coil", "discrete")


def width(tag: ModbusTag) -> int:
    """How many registers, or coils, a value takes."""
    return tag.length if tag.type == "string" else _WIDTH.get(tag.type, 1)


def read_tags(path: Path, model: type[T], problems: list[Problem]) -> list[tuple[T, int]]:
    """Every legal row of a tag list with its line number; what is not legal goes to ``problems``."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        problems.append(Problem(str(path), None, "tags", "no such file", "a CSV file beside plant.toml"))
        return []
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(str(path), None, "tags", str(error), "a CSV file in UTF-8"))
        return []
    tags: list[tuple[T, int]] = []
    for line, row in _rows(path, text, model, problems):
        tag = _tag(path, line, row, model, problems)
        if tag is not None:
            tags.append((tag, line))
    return tags


def _rows(path: Path, text: str, model: type[Tag], problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        legal_header = True
        for name in header:
            if name not in model.model_fields:
                problems.append(Problem(str(path), 1, "header", found(name), nearest(name, model.model_fields)))
                legal_header = False
        for name in ("name", "address"):
            if name not in header:
                problems.append(Problem(str(path), 1, "header", found(",".join(header)), f"a column {name}"))
                legal_header = False
        if not legal_header:
            return
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) > len(header):
                legal = f"{len(header)} cells, as in the header"
                problems.append(Problem(str(path), reader.line_num, "row", f"{len(cells)} cells", legal))
                continue
            yield (
                reader.line_num,
                {name: cell.strip() for name, cell in zip(header, cells, strict=False) if cell.strip()},
            )
    except csv.Error as error:
        problems.append(Problem(str(path), reader.line_num, "row", str(error), "a CSV row"))


def _tag(path: Path, line: int, row: dict[str, Any], model: type[T], problems: list[Problem]) -> T | None:
    try:
        tag = model.model_validate(row)
    except ValidationError as error:
        for detail in error.errors():
            name = str(detail["loc"][0])
            value = "nothing" if detail["type"] == "missing" else found(detail["input"])
            problems.append(Problem(str(path), line, name, value, legal(model, detail)))
        return None
    before = len(problems)
    for name, value, allowed in _contradictions(tag):
        problems.append(Problem(str(path), line, name, value, allowed))
    return tag if len(problems) == before else None


def _contradictions(tag: Tag) -> Iterator[tuple[str, str, str]]:
    """(field, found, legal) for what is legal alone and not together."""
    if tag.lo is not None and tag.hi is not None and tag.lo >= tag.hi:
        yield "lo", found(tag.lo), f"less than hi, which is {tag.hi}"
    if isinstance(tag, OpcuaTag) and not _node_id_like(tag.address):
        yield "address", found(tag.address), "a node id as in ns=2;s=Boiler1.Pressure or ns=2;i=1001"
    if isinstance(tag, ModbusTag):
        yield from _modbus_contradictions(tag)


def _modbus_contradictions(tag: ModbusTag) -> Iterator[tuple[str, str, str]]:
    if tag.register + width(tag) > 65_536:
        yield "address", found(tag.address), f"a place where {width(tag)} registers end at 65535 or before"
    if tag.table in _BITS and tag.type != "bool":
        yield "type", found(tag.type), f"bool, as every {tag.table}"
    if tag.table not in _BITS and tag.type == "bool" and tag.bit is None:
        yield "bit", "nothing", "0 to 15, the bit of the register that is meant"
    if tag.bit is not None and (tag.type != "bool" or tag.table in _BITS):
        yield "bit", found(tag.bit), "nothing: a bit goes with type bool in a holding or input register"
    if (tag.kind == "text") != (tag.type == "string"):
        yield "kind", found(tag.kind), "text for type string, and only for it"
    if tag.divisor == 0:
        yield "divisor", "0", "a number other than 0"


def _node_id_like(text: str) -> bool:
    parts = text.split(";")
    identifier = parts[-1]
    namespaces = all(part[:3] == "ns=" and part[3:].isdigit() for part in parts[:-1])
    return namespaces and len(parts) <= 2 and identifier[:2] in ("s=", "i=", "g=", "b=") and len(identifier) > 2
