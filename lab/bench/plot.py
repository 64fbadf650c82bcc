"""Plots of benchmark results: SVG, PNG or PDF."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lab.bench.end_to_end import ProcessUse
from lab.bench.query import KINDS, LENGTHS, QueryTiming
from lab.bench.storage import SERIES, StorageForm
from lab.bench.sustained import RateResult

_TITLES = {"raw": "all samples", "minute": "minute averages", "chart": "chart of 1,000 points"}
_COLOURS = {"rows": "#b45309", "packed": "#1d4ed8", "columnstore": "#047857"}


def plot_queries(cells: Sequence[QueryTiming], path: Path) -> None:
    """One panel a kind of question: interval against milliseconds, p50 as a line, up to p95 shaded."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    panels = figure.subplots(1, len(KINDS), sharey=True)
    for axes, kind in zip(panels, KINDS, strict=True):
        for form in dict.fromkeys(cell.form for cell in cells):
            shown = [cell for cell in cells if cell.form == form and cell.kind == kind]
            at = [list(LENGTHS).index(cell.length) for cell in shown]
            p50, p95 = [cell.p50 for cell in shown], [cell.p95 for cell in shown]
            axes.plot(at, p50, marker="o", label=form, color=_COLOURS[form])
            axes.fill_between(at, p50, p95, alpha=0.2, color=_COLOURS[form], linewidth=0)
        axes.set_xticks(range(len(LENGTHS)), list(LENGTHS), rotation=30)
        axes.set_title(_TITLES[kind], fontsize=11)
        axes.set_yscale("log")
        axes.grid(visible=True, alpha=0.3)
    panels[0].set_ylabel("ms (p50, shaded to p95)")
    panels[0].legend(frameon=False)
    figure.suptitle("One channel at 1 Hz, while 20,000 samples/s are written")
    figure.savefig(path)


def plot_sustained(steps: Sequence[RateResult], path: Path) -> None:
    """Lag, CPU by process, memory and bytes a sample over the rate that was stored."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    (lag, cpu), (memory, size) = figure.subplots(2, 2, sharex=True)
    shown = sorted(steps, key=lambda step: step.run.rows_per_second)
    rates = [step.run.rows_per_second for step in shown]
    lag.plot(rates, [step.run.oldest_p50 for step in shown], marker="o", label="p50")
    lag.plot(rates, [step.run.oldest_p99 for step in shown], marker="o", label="p99")
    lag.axhline(shown[0].limit if shown else 1.0, color="grey", linestyle="--", linewidth=1)
    names = sorted({name for step in shown for name in step.run.processes})
    used = [[_usage(step, name) for step in shown] for name in names]
    cpu.stackplot(rates, [[use.cpu_seconds / step.run.seconds for use, step in zip(row, shown, strict=True)]
                          for row in used], labels=names)  # fmt: skip
    for name, row in zip(names, used, strict=True):
        memory.plot(rates, [use.rss_mib[-1] if use.rss_mib else 0.0 for use in row], marker="o", label=name)
    size.plot(rates, [step.bytes_per_sample for step in shown], marker="o")
    for axes, title in ((lag, "lag, s"), (cpu, "CPU, cores"), (memory, "memory, MiB"), (size, "bytes per sample")):
        axes.set_title(title, fontsize=11)
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, alpha=0.3)
        if axes is not size:
            axes.legend(frameon=False, fontsize=8)
    for axes in (memory, size):
        axes.set_xlabel("samples/s stored")
    figure.savefig(path)


def _usage(step: RateResult, name: str) -> ProcessUse:
    return step.run.processes.get(name) or ProcessUse()


def plot_storage(cells: Sequence[StorageForm], path: Path) -> None:
    """Bytes a sample and the time of a day by the minute: a group of bars a series, a bar a form."""
    figure = Figure(figsize=(11, 4), layout="constrained")
    size, day = figure.subplots(1, 2)
    forms = list(dict.fromkeys(cell.form for cell in cells))
    width = 0.8 / len(forms)
    for number, form in enumerate(forms):
        shown = {cell.series: cell for cell in cells if cell.form == form}
        at = [place + (number - (len(forms) - 1) / 2) * width for place in range(len(SERIES))]
        bars = size.bar(at, [shown[s].bytes_per_sample for s in SERIES], width, label=form, color=_COLOURS[form])
        size.bar_label(bars, fmt="%.2f", fontsize=8)
        p50 = [shown[s].day_p50 for s in SERIES]
        day.bar(
            at,
            p50,
            width,
            color=_COLOURS[form],
            yerr=[[0.0] * len(p50), [shown[s].day_p95 - shown[s].day_p50 for s in SERIES]],
        )
    for axes, title in ((size, "bytes per sample with indexes"), (day, "ms, one day of minute averages (p50 to p95)")):
        axes.set_xticks(range(len(SERIES)), SERIES)
        axes.set_title(title, fontsize=11)
        axes.grid(visible=True, axis="y", alpha=0.3)
    size.set_yscale("log")
    figure.legend(*size.get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=len(forms))
    figure.savefig(path)
