"""One SVG plot per step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lab.bench.choose.matrix import CRITERIA, MatrixRow
from lab.bench.choose.results import Result


def plot(results: Sequence[Result], ranked: Sequence[MatrixRow], weights: Mapping[str, float], folder: Path) -> None:
    """All steps, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    names = "samples a batch", "clients"
    _curves(results, lambda r: r.by_size, names[0], "1. ingest against batch size").savefig(folder / "1-batch-size.svg")
    _curves(results, lambda r: r.by_clients, names[1], "2. ingest against clients").savefig(folder / "2-clients.svg")
    _sustained(results).savefig(folder / "3-sustained.svg")
    _queries(results).savefig(folder / "4-queries.svg")
    _bars(results, lambda r: r.bytes_per_sample, "5. bytes a sample, with metadata").savefig(folder / "5-bytes.svg")
    _matrix(ranked, weights).savefig(folder / "6-matrix.svg")


def _curves(results: Sequence[Result], of: Callable[[Result], dict[int, float]], axis: str, title: str) -> Figure:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, result in enumerate(results):
        cells = of(result)
        axes.plot(list(cells), list(cells.values()), marker="o", label=result.name, color=f"C{number}")
    axes.set(xscale="log", yscale="log", xlabel=axis, ylabel="samples/s", title=title)
    axes.set_xticks(sorted({key for r in results for key in of(r)}), minor=False)
    axes.minorticks_off()
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _sustained(results: Sequence[Result]) -> Figure:
    """Each rate that was tried: its p99, or a cross at the top where it did not keep up."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, result in enumerate(results):
        held = sorted((rate, p99) for rate, p99 in result.tried if p99 is not None)
        axes.plot([r for r, _ in held], [p for _, p in held], "o-", label=result.name, color=f"C{number}")
        lost = [rate for rate, p99 in result.tried if p99 is None]
        axes.plot(lost, [3.0] * len(lost), "x", color=f"C{number}")
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="samples/s", ylabel="p99, s (×: did not keep up)", title="3. sustained")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8)
    return figure


def _queries(results: Sequence[Result]) -> Figure:
    """p95 as bars, raw and by the minute."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    p95 = {"raw": [r.raw_p95 or 0 for r in results], "by the minute": [r.minute_p95 or 0 for r in results]}
    for place, (label, ms) in enumerate(p95.items()):
        at = [n + (place - 0.5) * 0.4 for n in range(len(results))]
        axes.bar_label(axes.bar(at, ms, 0.4, label=label), fmt="%.1f", fontsize=7)
    _names(axes, results)
    axes.set(yscale="log", ylabel="ms (p95)", title="4. queries of random channels while data come in")
    axes.legend(frameon=False)
    return figure


def _bars(results: Sequence[Result], of: Callable[[Result], float | None], title: str) -> Figure:
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    axes.bar_label(axes.bar(range(len(results)), [of(r) or 0 for r in results]), fmt="%.2f", fontsize=8)
    _names(axes, results)
    axes.set(yscale="log", title=title)
    return figure


def _names(axes: Axes, results: Sequence[Result]) -> None:
    axes.set_xticks(range(len(results)), [r.name for r in results], rotation=35, ha="right")


def _matrix(ranked: Sequence[MatrixRow], weights: Mapping[str, float]) -> Figure:
    """Plot what each criterion adds to the score, the best on top."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    left = [0.0] * len(ranked)
    for criterion in CRITERIA:
        added = [weights[criterion] * row.shares[criterion] for row in ranked]
        axes.barh([row.name for row in ranked], added, left=left, label=f"{criterion} × {weights[criterion]:g}")
        left = [a + b for a, b in zip(left, added, strict=True)]
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel="score", title="6. decision matrix")
    axes.legend(frameon=False, fontsize=8)
    return figure
