"""``plantlog lab chaos``."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape

from core.errors import OperationError, PlantlogError
from lab.bench.termination import cancelled_by_sigterm

_CHANNELS = 5_500
_MACHINES_CHANNELS = 1_100


def chaos(
    seconds: Annotated[float, typer.Option(min=10, max=86_400, help="Duration of fault injection.")] = 180.0,
    machines: Annotated[
        bool,
        typer.Option(
            "--machines",
            help="Fail the machines of a redundant pair and of its database, one at a time, then together.",
        ),
    ] = False,
    soak: Annotated[
        bool,
        typer.Option(
            "--soak", help="One fault a minute. Memory and descriptors of every process, and the logs, are checked."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the fault schedule.")] = 1,
    server: Annotated[
        Literal["simulator", "node-opcua"], typer.Option(help="OPC UA server. node-opcua has no Modbus devices.")
    ] = "simulator",
    channels: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=10_000,
            help="Channels of the simulator: ten of eleven OPC UA, at most 5,000; the rest Modbus, which a pair "
            "does not read. Default: 5,500; with --machines 1,100.",
        ),
    ] = None,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="New values per second and channel.")] = 1.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON. Progress goes to standard error.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the state folder.")] = False,
) -> None:
    """Run the appliance under load while faults are injected, then compare the database with the ground truth.

    Exits with 1 if a sample was duplicated, invented, altered or lost without a gap, or if a rollup is wrong.
    """
    from lab.chaos.appliance_trial import ChaosOptions, run
    from lab.chaos.machines.pair_trial import run as run_machines

    if machines and (soak or server != "simulator"):
        raise OperationError("--machines goes with neither --soak nor --server node-opcua")

    console = Console(stderr=as_json)
    folder = Path(tempfile.mkdtemp(prefix="plantlog-chaos-", dir="/var/tmp"))
    channels = channels or (_MACHINES_CHANNELS if machines else _CHANNELS)
    options = ChaosOptions(seed, seconds, server, channels, hz, folder, soak)
    messages: list[str] = []
    play = run_machines if machines else run
    try:
        report = asyncio.run(
            cancelled_by_sigterm(play(options, lambda line: console.print(line, highlight=False, markup=False)))
        )
    except* PlantlogError as errors:
        messages += [str(error) for error in errors.exceptions]
    except* asyncio.CancelledError:
        messages.append("terminated")
    if messages:
        for line in messages:
            console.print(f"chaos failed: {line}", highlight=False, markup=False, soft_wrap=True)
        console.print(f"state, logs and ground truth are kept in {folder}", highlight=False, markup=False)
        raise typer.Exit(2)
    for table in report.tables():
        console.print(table)
    for line in report.remarks:
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
    console.print("[green]✓[/] no sample was duplicated, invented, altered or lost without a recorded gap")
    console.print("[green]✓[/] all rollups match their samples")
