"""``plantlog discover``: an OPC UA server's variables as a tag list."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from pydantic import ValidationError

from ingest.config.load import load
from ingest.config.model import OpcuaSource
from ingest.errors import OperationError
from ingest.opcua.discover import discover as browse
from ingest.opcua.discover import write_tag_list
from ops.deployment import Deployment
from ops.paths import EXAMPLE, State


def discover(source: str, insecure: bool, output: Path | None, config: Path | None, state: State) -> None:
    """Write the tag list of a source's server. Raises SourceError or OperationError; a file that exists is kept."""
    if output is not None and output.exists():
        raise OperationError(f"{output} exists: choose another file, a tag list that was edited is not overwritten")
    tags = asyncio.run(browse(_source(source, insecure, config, state), state.pki))
    if output is None:
        write_tag_list(tags, sys.stdout)
    else:
        with output.open("w", newline="", encoding="utf-8") as file:
            write_tag_list(tags, file)


def _source(name: str, insecure: bool, config: Path | None, state: State) -> OpcuaSource:
    if name.startswith("opc.tcp://"):
        try:
            return OpcuaSource(name="discover", kind="opcua", address=name, insecure=insecure, tags=())
        except ValidationError:
            raise OperationError(f"{name} is no address as opc.tcp://host:4840") from None
    deployed = Deployment.load(state)
    path = config or (EXAMPLE if deployed is None else deployed.config)
    sources = {source.name: source for source in load(path).opcua_sources()}
    if name not in sources:
        raise OperationError(f"{path} has no OPC UA source {name}; it has {', '.join(sources) or 'none'}")
    return sources[name]
