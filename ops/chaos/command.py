"""``plantlog chaos``."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from ingest.errors import PlantlogError

if TYPE_CHECKING:
    from ops.chaos.report import Report


def chaos(
    seconds: Annotated[float, typer.Option(min=10, max=86_400, help="How long things fail.")] = 180.0,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="What fails when follows from it.")] = 1,
    server: Annotated[
        Literal["simulator", "node-opcua"], typer.Option(help="Whose OPC UA server; node-opcua brings no Modbus.")
    ] = "simulator",
    channels: Annotated[
        int, typer.Option(min=1, max=10_000, help="Of the simulator: 5,000 by OPC UA, the rest by Modbus.")
    ] = 5_500,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="New values a second and channel.")] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the figures as JSON; what happens meanwhile goes to standard error.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder, to look at what happened.")] = False,
) -> None:
    """Run the appliance under load in a folder of its own while what can fail fails, then compare with the truth.

    Ends with 1 where a sample was duplicated, invented, altered, or is missing and no gap says so, and where a rollup
    is not what its samples give.
    """
    from ops.chaos.run import Asked, run  # noqa: PLC0415  (slow imports only when used)

    console = Console(stderr=as_json)
    folder = Path(tempfile.mkdtemp(prefix="plantlog-chaos-", dir="/var/tmp"))
    asked = Asked(seed, seconds, server, channels, hz, folder)
    wrong: list[str] = []
    try:
        report = asyncio.run(_until_told(run(asked, lambda line: console.print(line, highlight=False, markup=False))))
    except* PlantlogError as errors:
        wrong += [str(error) for error in errors.exceptions]
    except* asyncio.CancelledError:
        wrong.append("it was told to end")
    if wrong:
        for line in wrong:
            console.print(f"chaos could not go on: {line}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"what is left is in {folder}", highlight=False, markup=False)
        raise typer.Exit(2)
    for table in report.tables():
        console.print(table)
    for line in (*report.left_out, *report.compared["all"].examples):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if as_json:
        typer.echo(json.dumps(report.json(), indent=2))
    if keep or report.failures:
        console.print(f"state, logs and ground truth are kept in {folder}", highlight=False, markup=False)
    else:
        shutil.rmtree(folder)
    for failure in report.failures:
        console.print(f"[red]✗[/] {escape(failure)}", highlight=False)
    if report.failures:
        raise typer.Exit(1)
    console.print("[green]✓[/] no sample was duplicated, invented or altered; none is missing without a gap")
    console.print("[green]✓[/] rollups are what their samples give")


async def _until_told(running: Coroutine[Any, Any, Report]) -> Report:
    """SIGTERM ends it as Ctrl-C does: everything is brought down, the disk unmounted."""
    task = asyncio.ensure_future(running)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
