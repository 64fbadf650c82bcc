"""``plantlog bench``: what this machine can do, beside a reference in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import psutil
import typer
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ops.bench.copy_speed import Bench

# Commands import what they need when they run.
# ruff: noqa: PLC0415

app = typer.Typer(help="Measure what this machine can do, beside a reference in the same run.", no_args_is_help=True)

_console = Console(stderr=True)
_WIDE = 200  # columns, where no terminal says how many there are
_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_Plot = Annotated[Path | None, typer.Option("--plot", help="Draw the figures here (.svg, .png or .pdf).")]
_File = Annotated[Path | None, typer.Argument(metavar="[FILE]", help="Where --json writes; default: standard output.")]


@app.callback()
def bench() -> None:
    """Each measurement is a command."""


@app.command()
def ingest(
    rows: Annotated[int, typer.Option(help="Rows of each COPY cell.")] = 4_000_000,
    channels: Annotated[int, typer.Option(help="Channels of the COPY cells.")] = 20_000,
    repeats: Annotated[int, typer.Option(help="Pairs of a COPY cell; the medians are shown.")] = 3,
    rates: Annotated[str, typer.Option(help="End-to-end samples/s, comma separated; '' for none.")] = "10,1000,20000",
    seconds: Annotated[float, typer.Option(help="Length of an end-to-end run.")] = 120.0,
    hold: Annotated[float, typer.Option(help="Length of the last (highest) end-to-end run.")] = 600.0,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Spool + writer beside plain COPY through psql; CPU a sample and lag of the whole appliance under load."""
    from ops.bench import copy_speed, end_to_end, tables

    cells: list[Any] = []
    if repeats:
        with _private() as where:
            load = asyncio.run(copy_speed.prepare(where, channels, max(1, rows // channels)))
            cells = asyncio.run(copy_speed.measure(where, load, (1, 2, 4), repeats, _say))
    wanted = [float(rate) for rate in rates.split(",") if rate]
    runs = []
    with tempfile.TemporaryDirectory(prefix="plantlog-bench-") as folder:
        for rate in wanted:
            length = hold if rate == wanted[-1] and len(wanted) > 1 else seconds
            state = Path(folder) / f"state-{rate:.0f}"
            runs.append(asyncio.run(end_to_end.measure(int(rate), 1.0, length, state, _say)))
    figures = {
        "copy": [{**asdict(cell), "ratio": cell.ratio} for cell in cells],
        "end_to_end": [asdict(run) for run in runs],
    }
    shown = [tables.copy(cells)] if cells else []
    _tell(figures, [*shown, tables.end_to_end(runs), tables.process(runs)] if runs else shown, as_json, file)


@app.command()
def storage(
    channels: Annotated[int, typer.Option(min=1, help="Channels, each with a day at 1 Hz, of each series.")] = 30,
    queries: Annotated[int, typer.Option(min=1, help="Queries of an hour, and at most as many of a day.")] = 100,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Bytes a sample and query times of rows, packed hours and (Community) columnstore, for noisy to slow series."""
    from ops.bench import tables
    from ops.bench.storage import measure

    with _private() as where:
        cells = asyncio.run(measure(where.owner_dsn, channels, queries, _say))
    if plot is not None:
        from ops.bench.plot import plot_storage

        plot_storage(cells, plot)
    _tell({"storage": [asdict(cell) for cell in cells]}, [tables.storage(cells)], as_json, file)


@app.command()
def query(
    channels: Annotated[int, typer.Option(min=1, help="Channels of the history, each at 1 Hz.")] = 10,
    days: Annotated[int, typer.Option(min=1, help="Length of the history.")] = 40,
    queries: Annotated[int, typer.Option(min=1, help="Queries of each cell.")] = 100,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """What one waits for an hour to a month of a channel, raw, by the minute and as a chart, while data come in."""
    from ops.bench import tables
    from ops.bench.query import measure

    with _private() as where:
        cells, rate = asyncio.run(measure(where, channels, days, queries, _say))
    if plot is not None:
        from ops.bench.plot import plot_queries

        plot_queries(cells, plot)
    figures = {"written_per_second": rate, "query": [asdict(cell) for cell in cells]}
    _tell(figures, [tables.query(cells, rate)], as_json, file)


@app.command()
def counters(
    seconds: Annotated[float, typer.Option(min=0.1, help="Length of each measurement.")] = 10.0,
    types: Annotated[int, typer.Option(min=1, help="Types of events, all equally likely.")] = 1000,
    connections: Annotated[int, typer.Option(min=1, max=16, help="To the database, of each way.")] = 2,
    rounds: Annotated[int, typer.Option(min=1, help="Of all three ways in turn; the medians are shown.")] = 3,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Increments/s into event_count_1m, beside upserts that add nothing up first; the sums are checked."""
    from ops.bench import tables
    from ops.bench.counters import measure

    load = os.getloadavg()[0]
    with _private() as where:
        ways = asyncio.run(measure(where, types, connections, seconds, rounds, _say))
    settings = {"types": types, "connections": connections, "seconds": seconds, "load_before": round(load, 2)}
    figures = {**settings, "counters": [asdict(way) for way in ways]}
    _tell(figures, [tables.counters(ways, types, connections, load)], as_json, file)


@app.command()
def alarms(
    channels: Annotated[int, typer.Option(min=1, help="Channels, each with seven alarm limits.")] = 20_000,
    seconds: Annotated[int, typer.Option(min=1, help="So many samples of each.")] = 30,
    repeats: Annotated[int, typer.Option(min=1, help="Of each figure the median of so many is taken.")] = 3,
    sizes: Annotated[str, typer.Option(help="Samples that come at once.")] = "1000,5000,20000",
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """CPU of judging alarms, as a share of that of decoding, spooling and writing the same samples."""
    from ops.bench import alarm_share, copy_speed, tables

    async def run(where: Bench) -> list[alarm_share.Share]:
        load = await copy_speed.prepare(where, channels, seconds)
        return await alarm_share.measure(where, load, [int(size) for size in sizes.split(",")], repeats, _say)

    with _private() as where:
        shares = asyncio.run(run(where))
    figures = {"alarms": [{**asdict(share), "ingest": share.ingest} for share in shares]}
    _tell(figures, [tables.alarms(shares)], as_json, file)


@app.command()
def overload(
    channels: Annotated[int, typer.Option(min=1, max=100_000, help="5,000 by OPC UA, the rest by Modbus.")] = 20_000,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="Values of each channel a second.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=1, help="How long each strain lasts.")] = 60.0,
    busy: Annotated[str, typer.Option(help="Busy processes, each in a session of its own; '' for none.")] = "1,2,4,8",
    load: Annotated[str, typer.Option(help="Pushed load, times what the machine holds; '' for none.")] = "2,4,10",
    database: Annotated[str, typer.Option(help="Share of the time in which the database runs; '' for none.")] = "0.1",
    window: Annotated[float, typer.Option(min=1, help="Seconds before and after in which CPU is measured.")] = 10.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds until the writer makes minutes of rollups.")] = 240.0,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """How soon the whole appliance is as before after too much of each kind, and what is lost and costs more by it."""
    from ops.bench import tables
    from ops.bench.overload.measure import Asked, measure

    floods, shares = ([float(one) for one in text.split(",") if one] for text in (load, database))
    wanted = [int(number) for number in busy.split(",") if number]
    asked = Asked(channels, hz, seconds, tuple(wanted), tuple(floods), tuple(shares), window, warm_up)
    with tempfile.TemporaryDirectory(prefix="plantlog-bench-", dir="/var/tmp") as folder:
        cases = asyncio.run(measure(asked, Path(folder), _say))
    figures = {"asked": asdict(asked), "overload": [case.json() for case in cases]}
    pushed = [tables.flooded(cases)] if any(case.gateway for case in cases) else []
    _tell(figures, [tables.overload(cases), *pushed], as_json, file)


@app.command()
def sustained(
    rate: Annotated[float, typer.Option(min=0, help="Samples/s to hold; 0: the highest that a ramp finds.")] = 0.0,
    hours: Annotated[float, typer.Option(min=0, help="How long it is held; 0: a ramp alone.")] = 1.0,
    rates: Annotated[str, typer.Option(help="Samples/s of the ramp.")] = "20000,40000,60000,80000,100000,125000,150000",
    seconds: Annotated[float, typer.Option(min=1, help="Length of a step of the ramp.")] = 60.0,
    limit: Annotated[float, typer.Option(min=0.01, help="Seconds, the highest p99 of the lag.")] = 1.0,
    port: Annotated[int | None, typer.Option(help="First of the ports, as of `up`.")] = None,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """The highest rate that the whole appliance holds with everything on: lag, CPU, memory, bytes and losses."""
    from ops.bench import tables
    from ops.bench.sustained import hold, ramp

    with tempfile.TemporaryDirectory(prefix="plantlog-bench-", dir="/var/tmp") as name:
        folder = Path(name)
        steps = [] if rate else [float(step) for step in rates.split(",")]
        done = asyncio.run(ramp(steps, seconds, limit, folder, port, _say))
        best = rate or max((step.rate for step in done if step.held), default=0.0)
        if hours and best:
            done.append(asyncio.run(hold(best, hours * 3600, limit, folder / "state-hold", port, _say)))
    if plot is not None:
        from ops.bench.plot import plot_sustained

        plot_sustained(done, plot)
    figures = {"sustained": [step.figures() for step in done]}
    runs = [step.run for step in done]
    _tell(figures, [tables.sustained(done), tables.process(runs)], as_json, file)


@app.command()
def choose(
    minutes: Annotated[float, typer.Option(min=0.5, help="Of all contestants and repeats together, about.")] = 20.0,
    repeats: Annotated[int, typer.Option(min=1, help="Of all contestants, in another order each time.")] = 2,
    hours: Annotated[float | None, typer.Option(help="Hold the sustained rate so long; it comes on top.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Some 20 s for each contestant, once.")] = False,
    only: Annotated[str, typer.Option(help="Contestants, comma separated, as --list names them; '' for all.")] = "",
    weights: Annotated[Path | None, typer.Option(help="How much each criterion counts (TOML).")] = None,
    where: Annotated[Path | None, typer.Option(help="Folders of contestants (TOML); or PLANTLOG_CHOOSE.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="Say who is here and how the others are installed.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Draw an SVG a step into this folder.")] = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Plantlog beside other databases: ingest, sustained rate, queries, bytes, answers, and a decision matrix."""
    from ops.bench.choose import command, tables
    from ops.bench.choose.contestants import contestants
    from ops.bench.choose.matrix import WEIGHTS

    if listed:
        Console().print(tables.listed(contestants(where, only)))
        return
    length = None if quick else minutes
    figures, shown = asyncio.run(command.choose(only, where, weights or WEIGHTS, length, repeats, hours, plot, _say))
    _tell(figures, shown, as_json, file)


@app.command()
def day(
    channels: Annotated[int, typer.Option(min=4, help="Of one source.")] = 20_000,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="Values of each channel a generated second.")] = 1.0,
    hours: Annotated[float, typer.Option(min=0.01, max=48, help="Of generated time.")] = 24.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Generate no longer than this.")] = 60.0,
    first_hour: Annotated[int, typer.Option(min=0, max=23, help="Of the day (UTC) in which it begins.")] = 0,
    keep_free: Annotated[float, typer.Option(min=1, help="GiB of the disk: with less it ends.")] = 6.0,
    port: Annotated[int | None, typer.Option(help="First of the ports, as of `up`.")] = None,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """A day at the speed that is held: ingest, packing, rollups, sealing and retention in balance, hour by hour."""
    from ops.bench.day import measure, tables

    asked = measure.Asked(channels, hz, hours, minutes, first_hour, round(keep_free * 1024**3))
    with tempfile.TemporaryDirectory(prefix="plantlog-bench-", dir="/var/tmp") as folder:
        found = asyncio.run(measure.measure(asked, Path(folder), port, _say))
    if plot is not None:
        tables.plot(found, plot)
    _tell(found.figures(), tables.tables(found), as_json, file)
    if found.checked is None or found.checked.wrong:
        raise typer.Exit(1)


@app.command()
def groups(
    sizes: Annotated[str, typer.Option(help="Rows of a group, comma separated.")] = "6500,500,1000,2000,4000,13000",
    ways: Annotated[
        list[str] | None, typer.Option("--set", help="Settings, NAME=VALUE[,…], beside the default.")
    ] = None,
    channels: Annotated[int, typer.Option(min=500, help="Channels, each with a sample a second.")] = 20_000,
    seconds: Annotated[int, typer.Option(min=1, help="So many samples of each are there before.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Of all in turn; the medians are shown.")] = 5,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """PostgreSQL's CPU and WAL a row against rows a group, and with other settings, each on a server of its own."""
    from ops.bench import tables
    from ops.bench.groups import measure

    with tempfile.TemporaryDirectory(prefix="plantlog-bench-", dir="/var/tmp") as folder:
        wanted = [int(size) for size in sizes.split(",")]
        costs = measure(ways or [], wanted, channels, seconds, rounds, Path(folder), _say)
    _tell({"groups": [asdict(cost) for cost in costs]}, [tables.groups(costs)], as_json, file)


def _say(line: str) -> None:
    _console.print(f"  {line}", highlight=False)


@contextmanager
def _private() -> Iterator[Bench]:
    """A database server for the measurement alone."""
    from ops.bench import server

    with tempfile.TemporaryDirectory(prefix="plantlog-bench-") as folder, server.private(Path(folder)) as where:
        yield where


def _tell(figures: dict[str, Any], shown: list[Table], as_json: bool, file: Path | None) -> None:
    text = json.dumps({"machine": _machine(), **figures}, indent=2) + "\n"
    if file is not None:
        file.write_text(text)
    if as_json and file is None:
        typer.echo(text, nl=False)
    else:
        console = Console()
        for table in shown:
            (console if console.is_terminal else Console(width=_WIDE)).print(table)


def _machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
