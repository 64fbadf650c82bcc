"""``plantlog lab bench``: benchmarks, each with a reference measured in the same run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from core.errors import OperationError
from core.formatting import wide
from core.terminal import Console
from lab.bench.termination import run, terminable

if TYPE_CHECKING:
    from lab.bench.server import BenchDatabase

app = typer.Typer(help="Benchmark this machine. Most benchmarks also measure a reference.", no_args_is_help=True)

_console = Console(stderr=True)
_WIDE = 200  # columns without a terminal
_Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
_Plot = Annotated[Path | None, typer.Option("--plot", help="Plot to this file (.svg, .png or .pdf).")]
_Kept = Annotated[
    Path | None, typer.Option("--folder", help="Keep database and archive in this folder, or ask those that it has.")
]
_File = Annotated[Path | None, typer.Argument(metavar="FILE", help="Output of --json. Default: standard output.")]


@app.callback()
def bench() -> None:
    """Each benchmark is a command."""


@app.command()
def ingest(
    rows: Annotated[int, typer.Option(help="Rows per COPY measurement.")] = 4_000_000,
    channels: Annotated[int, typer.Option(help="Channels of the COPY measurements.")] = 20_000,
    repeats: Annotated[int, typer.Option(help="Repeats of each COPY measurement. Medians are shown.")] = 3,
    rates: Annotated[str, typer.Option(help="End-to-end rates in samples/s. '' for none.")] = "10,1000,20000",
    seconds: Annotated[float, typer.Option(help="Duration of an end-to-end run.")] = 120.0,
    hold: Annotated[float, typer.Option(help="Duration of the last (highest) end-to-end run.")] = 600.0,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Compare spool and writer with plain COPY. Measure CPU per sample and lag of the appliance under load."""
    from lab.bench import copy_speed, end_to_end, tables

    cells: list[Any] = []
    if repeats:
        with _private_database() as database:
            load = run(copy_speed.prepare(database, channels, max(1, rows // channels)))
            cells = run(copy_speed.measure(database, load, (1, 2, 4), repeats, _print_progress))
    values = _numbers(rates)
    runs = []
    with _folder() as folder:
        for rate in values:
            length = hold if rate == values[-1] and len(values) > 1 else seconds
            state = folder / f"state-{rate:.0f}"
            runs.append(run(end_to_end.measure(int(rate), 1.0, length, state, _print_progress)))
    figures = {
        "copy": [{**asdict(cell), "ratio": cell.ratio} for cell in cells],
        "end_to_end": [asdict(run) for run in runs],
    }
    tables_shown = [tables.copy(cells)] if cells else []
    _output(
        figures, [*tables_shown, tables.end_to_end(runs), tables.process(runs)] if runs else tables_shown, as_json, file
    )


@app.command()
def archive(
    channels: Annotated[int, typer.Option(min=1, help="Channels, each at 1 Hz for two days.")] = 200,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Measure CPU and bytes per sample of the archive, and queries there and in the database."""
    from core.paths import State
    from lab.bench import server, tables
    from lab.bench.archive import measure

    with _folder() as folder:
        (folder / "archive").mkdir()
        with server.private(folder) as database:
            state = State(folder / "server")
            figures = run(measure(database.owner_dsn, state, folder / "archive", channels, _print_progress))
    shown = [tables.archived(figures.series), tables.archive_queries(figures.queries)]
    _output({"channels": channels, **asdict(figures)}, shown, as_json, file)


@app.command()
def planning(
    channels: Annotated[int, typer.Option(min=50, help="Channels of the plant, each at 1 Hz.")] = 20_000,
    days: Annotated[int, typer.Option(min=1, help="Archived days.")] = 365,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Measure what it takes to know where the samples of a question are in an archive of a year."""
    from lab.bench import tables
    from lab.bench.planning import measure

    with _folder() as folder:
        costs = measure(folder, channels, days, _print_progress)
    shown = [tables.planned(costs)]
    _output({"channels": channels, "days": days, "plans": [asdict(cost) for cost in costs]}, shown, as_json, file)


@app.command()
def questions(
    channels: Annotated[int, typer.Option(min=20, help="Channels of the day, each at 1 Hz.")] = 20_000,
    few: Annotated[int, typer.Option(min=20, help="Channels of the days before.")] = 50,
    days: Annotated[int, typer.Option(min=1, help="Days, with the one of all channels.")] = 30,
    over: Annotated[
        str, typer.Option(help="Spans: the day, an hour of it, all days (month) of some channels. '' for none.")
    ] = "day,hour,month",
    only: Annotated[str, typer.Option(help="Questions, comma separated. Default: all.")] = "",
    folder: _Kept = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Measure time, CPU and memory of the questions of `ask` over generated archived days of a large plant."""
    from lab.bench import question_costs, tables
    from lab.bench.generated_archive import ArchivePlan

    spans = _chosen("--over", over, question_costs.SPANS)
    names = _chosen("--only", only, question_costs.NAMES) or list(question_costs.NAMES)
    plan = ArchivePlan(channels, min(few, channels), days)
    with _folder(folder) as place:
        plan, costs = question_costs.measure(place, plan, spans, names, _print_progress)
    figures = {"plan": asdict(plan), "questions": [{**asdict(cost), "cpu_ns": cost.cpu_ns} for cost in costs]}
    _output(figures, [tables.questions(costs)] if costs else [], as_json, file)
    for cost in costs:
        if cost.rows is None:
            _print_progress(f"{cost.question} over the {cost.span} failed: {cost.error}")
    if any(cost.rows is None for cost in costs):
        raise typer.Exit(1)


@app.command()
def cluster(
    channels: Annotated[int, typer.Option(min=20, help="Channels of the day, each at 1 Hz.")] = 320,
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "1,2,4,8",
    only: Annotated[str, typer.Option(help="Questions, comma separated. Default: three that differ in kind.")] = "",
    folder: _Kept = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Measure what each worker of a cluster of Dask does for a question, and what does not depend on their number."""
    from lab.bench import cluster_costs, question_costs, tables
    from lab.bench.generated_archive import ArchivePlan

    names = _chosen("--only", only, question_costs.NAMES) or list(cluster_costs.NAMES)
    sizes = [int(size) for size in _chosen("--workers", workers, [str(n) for n in range(1, 65)])]
    with _folder(folder) as place:
        plan, costs = cluster_costs.measure(place, ArchivePlan(channels, channels, 1), sizes, names, _print_progress)
    _output({"plan": asdict(plan), "costs": [asdict(cost) for cost in costs]}, [tables.cluster(costs)], as_json, file)
    for cost in costs:
        if cost.asking.rows is None:
            raise OperationError(f"{cost.asking.question} on {len(cost.workers)} workers: {cost.asking.error}")


@app.command()
def labelled(
    folder: Annotated[Path, typer.Option(help="Where the recordings are, a folder for each project.")],
    recordings: Annotated[str, typer.Option(help="Projects of lab/bench/recordings.toml. Default: all.")] = "",
    only: Annotated[str, typer.Option(help="Questions, comma separated, or pca. Default: all.")] = "",
    tuned: Annotated[bool, typer.Option(help="Also ask with the options for each recording.")] = True,
    half: Annotated[str, typer.Option(help="Half of the events: tuned or reported. Default: all.")] = "",
    details: Annotated[bool, typer.Option(help="Print each event, too.")] = False,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Compare the answers of the questions of `ask` with labelled events of public recordings, beside a PCA."""
    from lab.bench import labelled, tables
    from lab.bench.recordings import projects

    names = _chosen("--recordings", recordings, [*projects()]) or [*projects()]
    question_names = _chosen("--only", only, labelled.NAMES) or [*labelled.NAMES]
    halves = _chosen("--half", half, labelled.HALVES) or [*labelled.HALVES]
    with _folder() as place:
        findings = labelled.measure(place, folder, names, question_names, tuned, halves, _print_progress)
    shown = [tables.labelled(findings), *([tables.events(findings)] if details else [])]
    published = {name: projects()[name].published for name in names}
    _output({"published": published, "findings": [asdict(one) for one in findings]}, shown, as_json, file)
    for name, text in published.items():
        _print_progress(f"{name}, published: {text}")
    for line in dict.fromkeys(f"{finding.question}: {finding.error}" for finding in findings if finding.error):
        _print_progress(line)


@app.command()
def overload(
    channels: Annotated[
        int, typer.Option(min=1, max=100_000, help="Channels: ten of eleven OPC UA, at most 5,000; the rest Modbus.")
    ] = 20_000,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="Values per second and channel.")] = 1.0,
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each overload.")] = 60.0,
    busy: Annotated[str, typer.Option(help="Numbers of CPU-bound processes. '' for none.")] = "1,2,4,8",
    load: Annotated[str, typer.Option(help="Pushed load as a multiple of the capacity. '' for none.")] = "2,4,10",
    database: Annotated[str, typer.Option(help="Fraction of time that the database runs. '' for none.")] = "0.1",
    window: Annotated[float, typer.Option(min=1, help="Seconds of CPU measurement after each overload.")] = 10.0,
    before: Annotated[float, typer.Option(min=1, help="Seconds of CPU measurement before each overload.")] = 60.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Seconds of warm-up.")] = 240.0,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Overload the appliance in different ways. Measure recovery time, losses and CPU cost."""
    from lab.bench.overload.measure import OverloadOptions, flooded_table, measure, overload_table

    processes = [int(number) for number in _numbers(busy)]
    options = OverloadOptions(
        channels, hz, seconds, processes, _numbers(load), _numbers(database), window, before, warm_up
    )
    with _folder() as folder:
        cases = run(measure(options, folder, _print_progress))
    figures = {"asked": asdict(options), "overload": [case.json() for case in cases]}
    pushed = [flooded_table(cases)] if any(case.gateway for case in cases) else []
    _output(figures, [overload_table(cases), *pushed], as_json, file)


@app.command()
def sustained(
    rate: Annotated[float, typer.Option(min=0, help="Samples/s to hold. 0: the highest rate of the ramp.")] = 0.0,
    hours: Annotated[float, typer.Option(min=0, help="Hours to hold the rate. 0: only the ramp.")] = 1.0,
    rates: Annotated[str, typer.Option(help="Rates of the ramp.")] = "20000,40000,60000,80000,100000,125000,150000",
    seconds: Annotated[float, typer.Option(min=1, help="Duration of each step of the ramp.")] = 60.0,
    warm_up: Annotated[float, typer.Option(min=0, help="Warm-up in seconds, for connections and caches.")] = 20.0,
    limit: Annotated[float, typer.Option(min=0.01, help="Maximum p99 of the lag in seconds.")] = 1.0,
    port: Annotated[int | None, typer.Option(help="First port, as for `up`.")] = None,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Find the highest rate that the appliance sustains. Measure lag, CPU, memory, storage and losses."""
    from lab.bench import tables
    from lab.bench.sustained import hold, ramp
    from lab.bench.sustained import plot as chart

    with _folder() as folder:
        steps = [] if rate else _numbers(rates)
        done = run(ramp(steps, seconds, warm_up, limit, folder, port, _print_progress))
        best = rate or max((step.rate for step in done if step.held), default=0.0)
        if hours and best:
            done.append(run(hold(best, hours * 3600, warm_up, limit, folder / "state-hold", port, _print_progress)))
    if plot is not None:
        chart(done, plot)
    figures = {"sustained": [step.figures() for step in done]}
    runs = [step.run for step in done]
    _output(figures, [tables.sustained(done), tables.process(runs)], as_json, file)


@app.command()
def day(
    channels: Annotated[int, typer.Option(min=4, help="Channels of the source.")] = 20_000,
    hz: Annotated[float, typer.Option(min=0.01, max=20.0, help="Values per channel and simulated second.")] = 1.0,
    hours: Annotated[float, typer.Option(min=0.01, max=48, help="Hours of simulated time.")] = 24.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Maximum duration of the run.")] = 60.0,
    first_hour: Annotated[int, typer.Option(min=0, max=23, help="Hour of the day (UTC) at which it starts.")] = 0,
    keep_free: Annotated[float, typer.Option(min=1, help="Stop with less free disk space than this (GiB).")] = 6.0,
    port: Annotated[int | None, typer.Option(help="First port, as for `up`.")] = None,
    plot: _Plot = None,
    as_json: _Json = False,
    file: _File = None,
) -> None:
    """Run a simulated day as fast as possible, with packing, rollups, sealing and retention."""
    from lab.bench.day import measure, tables

    options = measure.DayOptions(channels, hz, hours, minutes, first_hour, round(keep_free * 1024**3))
    with _folder() as folder:
        result = run(measure.measure(options, folder, port, _print_progress))
    if plot is not None:
        tables.plot(result, plot)
    _output(result.figures(), tables.tables(result), as_json, file)
    if result.checked is None or result.checked.wrong:
        raise typer.Exit(1)


def _numbers(text: str) -> list[float]:
    """The numbers in a text, separated by commas."""
    return [float(number) for number in text.split(",") if number]


def _chosen(option: str, text: str, legal: Sequence[str]) -> list[str]:
    """The names in a text, separated by commas. Raises OperationError."""
    names = [name for name in text.split(",") if name]
    if unknown := [name for name in names if name not in legal]:
        raise OperationError(f"{option}: found {', '.join(unknown)}; legal: {', '.join(legal)}")
    return names


def _print_progress(line: str) -> None:
    _console.print(f"  {line}", highlight=False)


@contextmanager
def _folder(kept: Path | None = None) -> Iterator[Path]:
    """A folder for the measurement: one that stays, or if none is named, one that does not, also after SIGTERM."""
    with terminable():
        if kept is not None:
            yield kept
            return
        with tempfile.TemporaryDirectory(prefix="plantlog-bench-", dir="/var/tmp") as name:
            yield Path(name)


@contextmanager
def _private_database() -> Iterator[BenchDatabase]:
    """A database server for the measurement alone."""
    from lab.bench import server

    with _folder() as folder, server.private(folder) as database:
        yield database


def _output(figures: dict[str, Any], tables_shown: list[Table], as_json: bool, file: Path | None) -> None:
    text = json.dumps({"machine": _machine(), **figures}, indent=2) + "\n"
    if file is not None:
        file.write_text(text)
    if as_json and file is None:
        typer.echo(text, nl=False)
    else:
        console = wide(Console(), _WIDE)
        for table in tables_shown:
            console.print(table)


def _machine() -> dict[str, Any]:
    import platform

    import psutil

    return {
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 1024**3, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
