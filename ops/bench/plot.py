"""The query benchmark as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from ops.bench.query import KINDS, LENGTHS, Asked

_TITLES = {"raw": "every sample", "minute": "averages by the minute", "chart": "a chart of 1,000 points"}
_COLOURS = {"rows": "#b45309", "packed": "#1d4ed8", "columnstore": "#047857"}


def plot(cells: Sequence[Asked], path: Path) -> None:
    """One panel a kind of question: interval against milliseconds, p50 as a line, up to p95 shaded. SVG, PNG or PDF."""
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
    figure.suptitle("One channel at 1 Hz, while 20,000 samples/s come in")
    figure.savefig(path)
