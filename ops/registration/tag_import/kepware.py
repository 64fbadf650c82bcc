"""Tags of a Modbus device as KEPServerEX exports them: "Export CSV" of a device, by the driver Modbus TCP/IP Ethernet.

The columns are those of the section "Tag Management, Import/Export CSV" of the KEPServerEX manual, the addresses and
data types those of the driver's manual. An address counts from 1 (``400001`` is the register 0), as with the device's
default "Zero-Based Addressing: Enable"; ``400001.3`` is a bit, ``400001.20H`` a string of 20 bytes.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from pathlib import Path

from core.config.sources import RegisterTable, WordOrder
from core.errors import OperationError
from ops.registration.tag_import.imported import Imported, ImportedSource, NotImported

_REQUIRED = ("Tag Name", "Address", "Data Type")
_KNOWN = (
    *_REQUIRED,
    *("Respect Data Type", "Client Access", "Scan Rate", "Scaling", "Raw Low", "Raw High", "Scaled Low", "Scaled High"),
    *("Scaled Data Type", "Clamp Low", "Clamp High", "Eng Units", "Description", "Negate Value"),
)
_TABLES: Mapping[str, RegisterTable] = {"0": "coil", "1": "discrete", "3": "input", "4": "holding"}
_TYPES = {
    "Short": "int16",
    "Word": "uint16",
    "Long": "int32",
    "DWord": "uint32",
    "LLong": "int64",
    "QWord": "uint64",
    "Float": "float32",
    "Double": "float64",
}
_ADDRESS = re.compile(r"([0134])([0-9]{4,5})(?:\.([0-9]{1,3})([HL]?))?")
_OFF = ("", "0", "False", "false")
_EXACT = 1 << 53  # integers up to here are exact as float64


def read(path: Path, name: str, address: str, word_order: WordOrder) -> Imported:
    """The device's tags as one source. Raises OperationError if the file is not such an export."""
    imported = Imported()
    source = ImportedSource(name, "modbus", {"address": address})
    imported.sources.append(source)
    rows = csv.DictReader(io.StringIO(_text(path), newline=""))
    header = rows.fieldnames or ()
    if missing := [column for column in _REQUIRED if column not in header]:
        raise OperationError(f"{path} is no CSV export of KEPServerEX: it has no column {missing[0]!r}")
    for unknown in sorted(set(header) - set(_KNOWN)):
        imported.drop(f"{path}:1", f"column {unknown!r}, which plantlog does not know")
    try:
        for row in rows:
            location = f"{path}:{rows.line_num}"
            cells = {column: (row[column] or "").strip() for column in header}
            if not cells["Tag Name"] or cells["Tag Name"].startswith(";"):
                continue
            try:
                columns = _columns(cells, word_order)
                source.add(cells["Tag Name"].replace("/", " ").replace(".", "/"), columns)
            except NotImported as reason:
                imported.leave_out(f"{location} {cells['Tag Name']}", str(reason))
            else:
                for setting in _dropped(cells):
                    imported.drop(location, setting)
    except csv.Error as error:
        raise OperationError(f"{path}:{rows.line_num}: {error}") from None
    return imported


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")  # as Windows writes it


def _columns(cells: Mapping[str, str], word_order: WordOrder) -> dict[str, str]:
    """The columns of a tag list. Raises NotImported."""
    if cells.get("Client Access", "") == "WO":
        raise NotImported("a tag that can only be written")
    columns = _register(cells["Address"], cells["Data Type"], word_order)
    columns |= {"unit": cells.get("Eng Units", ""), "description": " ".join(cells.get("Description", "").split())}
    if rate := cells.get("Scan Rate", ""):
        if not rate.isdecimal() or int(rate) == 0:
            raise NotImported(f"Scan Rate {rate!r}, which is no number of milliseconds")
        columns["interval"] = f"{int(rate)}ms"
    scaling = cells.get("Scaling", "") or "None"
    if scaling == "Linear":
        columns |= _linear(cells, columns)
    elif scaling != "None":
        raise NotImported(f"Scaling {scaling!r}: plantlog has linear scaling only")
    return columns


def _register(address: str, data_type: str, word_order: WordOrder) -> dict[str, str]:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        actual = "an array" if "[" in address else f"address {address!r}"
        raise NotImported(f"{actual}: legal are 000001, 100001, 300001, 400001, 400001.3 and 400001.20H")
    digit, number, part, order = match.groups()
    table, register = _TABLES[digit], int(number) - 1
    if not 0 <= register <= 0xFFFF:
        raise NotImported(f"address {address!r}: registers are numbered from 1 to 65536")
    columns = {"address": f"{table}:{register}"}
    of_bits = table in ("coil", "discrete")
    if data_type == "Default":
        data_type = "Boolean" if of_bits or (part and not order) else "String" if order else "Word"
    if data_type == "Boolean" and not order:
        if of_bits and part is None:
            return columns | {"kind": "discrete"}
        if not of_bits and part is not None and int(part) <= 15:
            return columns | {"kind": "discrete", "type": "bool", "bit": str(int(part))}
    if data_type == "String" and order and not of_bits and int(part) % 2 == 0 and 2 <= int(part) <= 246:
        swapped = {} if order == "H" else {"word_order": "BADC"}
        return columns | {"kind": "text", "type": "string", "length": str(int(part) // 2)} | swapped
    kind = _TYPES.get(data_type)
    if kind is None or of_bits or part is not None:
        remark = " with a bit or a length" if part is not None else ""
        raise NotImported(f"Data Type {data_type!r} in table {table}{remark}")
    return columns | {"type": kind} | ({"word_order": word_order} if kind[-2:] != "16" and word_order != "ABCD" else {})


def _linear(cells: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, str]:
    """Scale, divisor and offset that give exactly the scaled range for the raw range. Raises NotImported."""
    if columns.get("type", "bool") in ("bool", "string"):
        raise NotImported("Scaling 'Linear' of a bit or a string")
    names = ("Raw Low", "Raw High", "Scaled Low", "Scaled High")
    try:
        raw_low, raw_high, low, high = (Fraction(cells[name]) for name in names)
        factor = (high - low) / (raw_high - raw_low)
        exact = _is_decimal(low - raw_low * factor)
    except (KeyError, ValueError, ZeroDivisionError, OverflowError):
        raise NotImported("Scaling 'Linear' without a raw and a scaled range") from None
    if cells.get("Negate Value", "") not in _OFF:
        factor, low, high = -factor, -low, -high
    offset = low - raw_low * factor
    if not factor or not exact or abs(factor.numerator) > _EXACT or factor.denominator > _EXACT:
        raise NotImported("Scaling 'Linear' with a range that no scale, divisor and offset give exactly")
    scaled_columns = {"scale": factor.numerator, "divisor": factor.denominator}
    low, high = min(low, high), max(low, high)
    return {name: str(value) for name, value in scaled_columns.items() if value != 1} | {
        "offset": _number(offset) if offset else "",
        "lo": _number(low),
        "hi": _number(high),
    }


def _dropped(cells: Mapping[str, str]) -> Iterator[str]:
    """Settings that plantlog does not have, and what is done instead."""
    if cells.get("Client Access", "") not in ("", "RO"):
        yield f"Client Access {cells['Client Access']!r}: plantlog only reads"
    if cells.get("Respect Data Type", "1") in _OFF:
        yield "Respect Data Type: channels have one data type"
    if cells.get("Scaling", "") != "Linear":
        return
    for name in ("Clamp Low", "Clamp High"):
        if cells.get(name, "") not in _OFF:
            yield f"{name}: values are stored as they are measured"
    if (scaled := cells.get("Scaled Data Type", "")) not in ("", "Double", "Float"):
        yield f"Scaled Data Type {scaled!r}: values keep their fraction"


def _is_decimal(value: Fraction) -> bool:
    """Return whether the shortest text of the nearest float64 is exactly the value, as 0.1 and 2.5 are."""
    return Fraction(repr(float(value))) == value


def _number(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else repr(float(value))
