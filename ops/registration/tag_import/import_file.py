"""Reads a file of another product, writes the tag lists, and prints the sources."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from core.config.base import Name
from core.config.sources import ModbusSource, OpcuaSource, WordOrder
from core.errors import OperationError
from core.files import file_errors, write_atomically
from core.formatting import count
from ops.registration.tag_import import ignition, kepware, opc_publisher
from ops.registration.tag_import.imported import Imported, ImportedSource


def run(file: Path, name: str | None, address: str | None, word_order: str, server: str | None, output: Path) -> None:
    """Import ``file``. What is not carried over is printed on standard error. Raises OperationError."""
    source_name = name or re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-")[:63].strip("-")
    try:
        TypeAdapter(Name).validate_python(source_name)
    except ValidationError:
        raise OperationError(f"{source_name!r} is no name of a source, as in boiler-house: give --name") from None
    try:
        with file_errors(file, "an export of KEPServerEX (CSV) or Ignition (JSON), or publishednodes.json"):
            imported = _read(file, source_name, address, word_order, server)
        _write(imported, output)
    except OSError as error:
        raise OperationError(f"{error.filename}: {error.strerror}") from error
    print("\n\n".join(source.stanza() for source in imported.sources))
    for note in imported.notes():
        print(note, file=sys.stderr)
    channels = sum(len(source.rows) for source in imported.sources)
    print(f"{count(channels, 'channel')} imported, {imported.left_out:,} left out", file=sys.stderr)


def _read(file: Path, name: str, address: str | None, word_order: str, server: str | None) -> Imported:
    published = file.suffix.lower() == ".json" and opc_publisher.is_published_nodes(file)
    if published and address is not None:
        raise OperationError("--address is for KEPServerEX and Ignition: publishednodes.json has the addresses")
    if published:
        imported = opc_publisher.read(file, name)
    elif address is None:
        example = "opc.tcp://192.0.2.10:4840" if file.suffix.lower() == ".json" else "tcp://192.0.2.20:502"
        raise OperationError(f"{file} has no address of its source: give --address, as in {example}")
    elif file.suffix.lower() == ".json":
        imported = ignition.read(file, name, address, server)
    else:
        try:
            order = TypeAdapter[WordOrder](WordOrder).validate_python(word_order)
        except ValidationError:
            raise OperationError(f"--word-order {word_order!r}: legal are ABCD, CDAB, BADC, DCBA") from None
        imported = kepware.read(file, name, address, order)
    for source in imported.sources:
        _check_source(file, source)
    return imported


def _check_source(file: Path, source: ImportedSource) -> None:
    model = ModbusSource if source.kind == "modbus" else OpcuaSource
    try:
        model.model_validate({"name": source.name, "kind": source.kind, **source.options, "tags": ()})
    except ValidationError as error:
        detail = error.errors()[0]
        raise OperationError(f"{file}: {detail['loc'][0]} {detail['input']!r}: {detail['msg']}") from None


def _write(imported: Imported, folder: Path) -> None:
    """Write the tag lists; the folder is made if it is missing. Existing lists are not overwritten."""
    files = {folder / f"{source.name}.csv": source for source in imported.sources}
    if existing := [file for file in files if file.exists()]:
        raise OperationError(f"{existing[0]} already exists: choose another --name or --output")
    folder.mkdir(parents=True, exist_ok=True)
    for file, source in files.items():
        write_atomically(file, source.tag_list())
