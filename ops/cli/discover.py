"""``plantlog source discover``: an OPC UA server's variables as a tag list, or compared with the tag list."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from asyncua import ua
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from core.config.load import load_opcua_source, load_opcua_tags
from core.config.sources import OpcuaSource
from core.errors import OperationError, SourceError, one_line
from core.files import write_atomically
from core.opcua.session import NO_SECURITY
from core.paths import State
from ops.deployment import chosen_config
from ops.registration.discovery.compare import Comparison, DifferentTag, UnreadableTag, compare
from ops.registration.discovery.discover import COLUMNS, Discovered, write_tag_list
from ops.registration.discovery.discover import discover as browse

_NAMELESS = "discover"  # a source that is given as an address


def discover(source: str, insecure: bool, output: Path | None, config: Path | None, state: State) -> bool:
    """Write the tag list of an OPC UA server and report what was skipped. False: not all of the server was seen.

    An existing file is not overwritten. Raises SourceError or OperationError.
    """
    if output is not None and output.exists():
        raise OperationError(f"{output} already exists: choose another file name")
    server = _browse(_source(source, insecure, config, state), state)
    if output is None:
        write_tag_list(server.tags, sys.stdout)
    else:
        text = io.StringIO()
        write_tag_list(server.tags, text)
        write_atomically(output, text.getvalue())
    for outcome, variables in (("skipped", server.skipped), ("not seen", server.not_seen)):
        for variable in variables:
            name = f"{variable.name} {variable.address}".strip()
            print(one_line(f"{outcome}: {name}: {variable.reason}"), file=sys.stderr)
    incomplete = f", {len(server.not_seen):,} not seen: the tag list is incomplete" if server.not_seen else ""
    print(f"{len(server.tags):,} variables listed, {len(server.skipped):,} skipped{incomplete}", file=sys.stderr)
    return not server.not_seen


def show_difference(name: str, as_json: bool, config: Path | None, state: State) -> bool:
    """Print what differs between the tag list of a source and its server. False: nothing.

    Raises ConfigError, SourceError or OperationError.
    """
    if "://" in name:
        raise OperationError(f"{name} is an address: --diff needs the name of a source, which has a tag list")
    source, file, tags = load_opcua_tags(chosen_config(config, state), name)
    comparison = compare(tags, _browse(source, state))
    print(
        json.dumps(_as_json(file, comparison), indent=2)
        if as_json
        else "\n".join(map(one_line, _lines(file, comparison)))
    )
    return not comparison.equal


def _lines(file: Path, comparison: Comparison) -> Iterator[str]:
    """One line a difference, by sections."""
    if comparison.only_server:
        yield "only on the server:"
    for tag in comparison.only_server:
        yield f"  {tag.name} {tag.address}: {' '.join(filter(None, (tag.kind, tag.unit)))}"
    if comparison.only_list:
        yield "only in the tag list:"
    for unreadable in comparison.only_list:
        yield f"  {file}:{unreadable.location}: {unreadable.tag.name} {unreadable.tag.address}: {unreadable.reason}"
    if comparison.different:
        yield "different:"
    for other in comparison.different:
        columns = (f"{name} {_cell(a)}, on the server {_cell(b)}" for name, (a, b) in other.columns.items())
        yield f"  {file}:{other.location}: {other.tag.name}: {'; '.join(columns)}"
    if comparison.not_seen:
        yield "not seen, and not compared:"
    for unseen in comparison.not_seen:
        if isinstance(unseen, UnreadableTag):
            yield f"  {file}:{unseen.location}: {unseen.tag.name} {unseen.tag.address}: {unseen.reason}"
        else:
            yield f"  {f'{unseen.name} {unseen.address}'.strip()}: {unseen.reason}"
    parts = [
        f"{len(comparison.only_server):,} only on the server",
        f"{len(comparison.only_list):,} only in the tag list",
        f"{len(comparison.different):,} different",
        f"{comparison.same:,} the same",
    ]
    if comparison.not_seen:
        parts.append(f"{len(comparison.not_seen):,} not seen")
    yield ", ".join(parts)


def _cell(value: object) -> str:
    return "empty" if value in ("", None) else f"{value:.15g}" if isinstance(value, float) else str(value)


def _tag(difference: UnreadableTag | DifferentTag) -> dict[str, object]:
    line, instances, instance = difference.location
    within = {"instances": instances, "instance_line": instance} if instances else {}
    return {"line": line, **within, "name": difference.tag.name, "address": difference.tag.address}


def _as_json(file: Path, comparison: Comparison) -> dict[str, object]:
    return {
        "tag_list": str(file),
        "only_server": [{name: getattr(tag, name) for name in COLUMNS} for tag in comparison.only_server],
        "only_list": [_tag(tag) | {"reason": tag.reason} for tag in comparison.only_list],
        "different": [
            _tag(tag) | {name: {"list": listed, "server": value} for name, (listed, value) in tag.columns.items()}
            for tag in comparison.different
        ],
        "not_seen": [
            _tag(variable) | {"reason": variable.reason}
            if isinstance(variable, UnreadableTag)
            else {"name": variable.name, "address": variable.address, "reason": variable.reason}
            for variable in comparison.not_seen
        ],
        "same": comparison.same,
    }


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
        except SourceError as error:
            if NO_SECURITY not in str(error):
                raise
            hint = "--insecure" if source.name == _NAMELESS else f"insecure = true under source {source.name}"
            raise SourceError(f"{error}. To connect without encryption: {hint}") from error
        except (ua.UaError, OSError, TimeoutError) as error:
            raise OperationError(f"browsing {source.address} failed: {error or type(error).__name__}") from error


def _source(name: str, insecure: bool, config: Path | None, state: State) -> OpcuaSource:
    if name.startswith("opc.tcp://"):
        try:
            return OpcuaSource(name=_NAMELESS, kind="opcua", address=name, insecure=insecure, tags=())
        except ValidationError:
            raise OperationError(f"{name} is not an address such as opc.tcp://host:4840") from None
    if name.startswith(("tcp://", "rtu+tcp://", "serial://")):
        raise OperationError(f"{name} is a Modbus address: Modbus devices have no list of their registers")
    return load_opcua_source(chosen_config(config, state), name)
