"""``plantlog admin database``: a database on several machines."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import Annotated

import typer

from core.formatting import table, wide
from core.paths import State
from core.terminal import Console
from ops.cli.options import AsJson

app = typer.Typer(help="Run the database on several machines, with automatic fail-over.", no_args_is_help=True)
_SECONDS = 120.0
_Address = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of this machine that the others reach.")]
_Port = Annotated[int | None, typer.Option(min=1, max=65_535, help="Port of the server. Default: 5432.")]


@app.command()
def monitor(
    address: _Address = None,
    port: _Port = None,
    replace: Annotated[
        str | None, typer.Option(metavar="DSN", help="DSN of a monitor that is lost: secrets/monitor.dsn of a node.")
    ] = None,
) -> None:
    """Start the monitor, which watches the nodes and fails over. Run it on a machine of its own. Safe to repeat."""
    from ops.failover.setup import monitor as run

    run(address, port, replace, Console())


@app.command()
def node(
    monitor: Annotated[
        str | None,
        typer.Option(
            metavar="DSN", envvar="PLANTLOG_MONITOR", help="DSN of the monitor, as `admin database monitor` printed it."
        ),
    ] = None,
    address: _Address = None,
    port: _Port = None,
) -> None:
    """Start a server: the first becomes the primary, the next ones its standbys. Safe to repeat."""
    from ops.failover.setup import node as run

    run(monitor, address, port, Console())


@app.command()
def status(as_json: AsJson = False) -> None:
    """Show the nodes as the monitor sees them."""
    from ops.failover.nodes import nodes
    from ops.failover.setup import membership

    servers = asyncio.run(nodes(membership(State.current()).monitor))
    if as_json:
        typer.echo(json.dumps([asdict(node) for node in servers], indent=2))
        return
    shown = table("node", "state", "to be", "answers", ">timeline", ">behind")
    for node in servers:
        answers = {1: "yes", 0: "no"}.get(node.health, "not known")
        behind = f"{node.bytes_behind / 1024**2:,.1f} MiB"
        shown.add_row(f"{node.address}:{node.port}", node.state, node.assigned, answers, str(node.timeline), behind)
    wide(Console()).print(shown)


@app.command()
def switchover() -> None:
    """Make the standby the primary, and the primary its standby: before work on the primary's machine."""
    from ops.failover.nodes import switch_over
    from ops.failover.setup import membership

    primary = asyncio.run(switch_over(membership(State.current()).monitor, _SECONDS))
    typer.echo(f"{primary.address}:{primary.port} is the primary")


@app.command()
def remove(
    where: Annotated[str, typer.Argument(metavar="ADDRESS[:PORT]", help="Node, as `admin database status` shows it.")],
) -> None:
    """Remove a node whose machine is gone, or that is to be made anew."""
    from ops.failover.nodes import remove as run
    from ops.failover.setup import membership

    address, _, port = where.partition(":")
    asyncio.run(run(membership(State.current()).monitor, address, int(port or 5432)))
    typer.echo(f"{where} is no node any more; on its machine, `plantlog down --wipe` deletes its copy")
