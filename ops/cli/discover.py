"""``plantlog discover``: an OPC UA server's variables as a tag list."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from asyncua import ua
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from ingest.config.load import load_opcua_source
from ingest.config.sources import OpcuaSource
from ingest.errors import OperationError, SourceError
from ingest.opcua.discover import Discovered, write_tag_list
from ingest.opcua.discover import discover as browse
from ingest.opcua.session import NO_SECURITY
from ops.deployment import Deployment
from ops.paths import EXAMPLE, State


def discover(source: str, insecure: bool, output: Path | None, config: Path | None, state: State) -> None:
    """Write the tag list of an OPC UA server and report what was skipped. An existing file is not overwritten.

    Raises SourceError or OperationError.
    """
    if output is not None and output.exists():
        raise OperationError(f"{output} already exists: choose another file name")
    try:
        found = _browse(_source(source, insecure, config, state), state)
    except SourceError as error:
        if NO_SECURITY not in str(error):
            raise
        hint = "--insecure" if _is_address(source) else f"insecure = true under source {source}"
        raise SourceError(f"{error}. To connect without encryption: {hint}") from error
    if output is None:
        write_tag_list(found.tags, sys.stdout)
    else:
        with output.open("w", newline="", encoding="utf-8") as file:
            write_tag_list(found.tags, file)
    for variable in found.skipped:
        print(f"skipped: {variable.name} {variable.address}: {variable.reason}", file=sys.stderr)
    print(f"{len(found.tags):,} variables listed, {len(found.skipped):,} skipped", file=sys.stderr)


def _browse(source: OpcuaSource, state: State) -> Discovered:
    """Ask the server, with a bar on a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("browsing"), BarColumn(), TextColumn("{task.completed:,.0f} nodes and attributes"))
    with Progress(
        *columns, TimeElapsedColumn(), console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=None)
        try:
            return asyncio.run(browse(source, state.pki, lambda n: bar.advance(task, n)))
        except (ua.UaError, OSError, TimeoutError) as error:
            raise OperationError(f"browsing {source.address} failed: {error or type(error).__name__}") from error


def _source(name: str, insecure: bool, config: Path | None, state: State) -> OpcuaSource:
    if _is_address(name):
        try:
            return OpcuaSource(name="discover", kind="opcua", address=name, insecure=insecure, tags=())
        except ValidationError:
            raise OperationError(f"{name} is not an address such as opc.tcp://host:4840") from None
    if name.startswith(("tcp://", "rtu+tcp://", "serial://")):
        raise OperationError(f"{name} is a Modbus address: Modbus devices have no list of their registers")
    deployment = Deployment.load(state)
    path = config or (EXAMPLE if deployment is None else deployment.config)
    return load_opcua_source(path, name)


def _is_address(source: str) -> bool:
    return source.startswith("opc.tcp://")
