"""``python -m tests.fuzz NAME --seconds N``: fuzz one target and print the figures; exit 1 where something failed."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tests.fuzz.run import HANG_SECONDS, Figures, run
from tests.fuzz.targets import NAMES, found_of

app = typer.Typer(add_completion=False)


@app.command()
def main(
    name: Annotated[str, typer.Argument(help=f"One of {', '.join(NAMES)}.")],
    seconds: Annotated[int, typer.Option(min=1, help="How long.")] = 60,
    seed: Annotated[int, typer.Option(min=1, help="Of the mutations: the same one tries the same.")] = 1,
    corpus: Annotated[
        Path | None, typer.Option(help="Keep the inputs that reach more there, and begin with them.")
    ] = None,
    artifacts: Annotated[
        Path | None, typer.Option(help="Where inputs that fail go; else tests/fuzz/found/NAME.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Figures as JSON.")] = False,
) -> None:
    """Fuzz one target."""
    if name not in NAMES:
        raise typer.BadParameter(f"{name}: one of {', '.join(NAMES)}")
    figures = run(name, seconds, seed, corpus, artifacts or found_of(name))
    if as_json:
        print(json.dumps(asdict(figures)))
    else:
        _show(figures)
    raise typer.Exit(0 if figures.clean else 1)


def _show(figures: Figures) -> None:
    table = Table(title=f"{figures.target}, {figures.seconds:g} s, seed {figures.seed}", show_header=False)
    for what, figure in (
        ("executions", f"{figures.executions}"),
        ("executions/s", f"{figures.executions_per_second:g}"),
        ("coverage", f"{figures.edges} edges, {figures.features} features"),
        ("corpus", f"{figures.corpus_inputs} inputs, {figures.corpus_bytes} bytes"),
        ("memory at 20 %, at the end", f"{figures.rss_at_20_percent} MiB, {figures.rss_at_end} MiB"),
        ("growth", f"{figures.rss_growth} MiB"),
        ("slowest input", f"{figures.slowest_seconds} s"),
        ("crashes", f"{figures.crashes}"),
        (f"hangs (over {HANG_SECONDS} s)", f"{figures.hangs}"),
    ):
        table.add_row(what, figure)
    console = Console()
    console.print(table)
    for file in figures.artifacts:
        console.print(file)
    if figures.last_words:
        print(figures.last_words)


app()
