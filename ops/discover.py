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
from ingest.config.model import OpcuaSource
from ingest.errors import OperationError, SourceError
from ingest.opcua.discover import Discovered, write_tag_list
from ingest.opcua.discover import discover as browse
from ingest.opcua.session import NO_SECURITY
from ops.deployment import Deployment
from ops.paths import EXAMPLE, State


def discover(source: str, insecure: bool, output: Path | None, config: Path | None, state: State) -> None:
    """Write the tag list of a source's server, and say what is left out; a file that exists is kept.

    Raises SourceError or OperationError.
    """
    if output is not None and output.exists():
        raise OperationError(f"{output} exists: choose another file, a tag list that was edited is not overwritten")
    try:
        found = _browsed(_source(source, insecure, config, state), state)
    except SourceError as error:
        if NO_SECURITY not in str(error):
            raise
        way_out = "--insecure" if _is_address(source) else f"insecure = true under source {source}"
        raise SourceError(f"{error}. To read it without encryption: {way_out}") from error
    if output is None:
        write_tag_list(found.tags, sys.stdout)
    else:
        with output.open("w", newline="", encoding="utf-8") as file:
            write_tag_list(found.tags, file)
    for one in found.left_out:
        print(f"left out: {one.name} {one.address}: {one.why}", file=sys.stderr)
    print(f"{len(found.tags):,} variables listed, {len(found.left_out):,} left out", file=sys.stderr)


def _browsed(source: OpcuaSource, state: State) -> Discovered:
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
            raise OperationError(
                f"{source.address} was not browsed to its end: {error or type(error).__name__}"
            ) from error


def _source(name: str, insecure: bool, config: Path | None, state: State) -> OpcuaSource:
    if _is_address(name):
        try:
            return OpcuaSource(name="discover", kind="opcua", address=name, insecure=insecure, tags=())
        except ValidationError:
            raise OperationError(f"{name} is no address as opc.tcp://host:4840") from None
    deployed = Deployment.load(state)
    path = config or (EXAMPLE if deployed is None else deployed.config)
    return load_opcua_source(path, name)


def _is_address(source: str) -> bool:
    return source.startswith("opc.tcp://")
