"""``plantlog lab``: the simulated plant, benchmarks, and fault injection."""

from __future__ import annotations

import os
import sys

import typer

from core.paths import State
from lab.commands import bench
from lab.commands.chaos import chaos
from ops.cli.options import PASS_THROUGH

app = typer.Typer(help="Make the simulated plant fail, benchmark this machine, inject faults.", no_args_is_help=True)
app.add_typer(bench.app, name="bench")
app.command()(chaos)


@app.command(context_settings=PASS_THROUGH)
def simulator(context: typer.Context) -> None:
    """Run a command of the plant simulator: fault, compare, export or run."""
    from ops import health
    from ops.deployment import Running

    state = State.current()
    os.environ["PLANTLOG_STATE"] = str(state.root)
    if (running := Running.load(state)) is not None:
        os.environ["PLANTLOG_SIMULATOR_CONTROL_PORT"] = str(health.control_port(running.health))
    os.execv(sys.executable, [sys.executable, "-P", "-m", "simulator", *context.args])
