"""Runs one target in a process of its own, watches its memory, and reads what libFuzzer says."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.fuzz.targets import target

HANG_SECONDS = 5  # one input that takes longer is a hang
_LOOK_SECONDS = 0.5
_WARM = 0.2  # of the time: by then everything is imported and the corpus has grown most
_LATE_SECONDS = 300.0  # a child that goes on this long after its time is killed; on a busy machine it starts late

_STATUS = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)/(\d+)([bKM]+)")
_STAT = re.compile(r"stat::(\w+):\s+(\d+)")
_SIZES = {"b": 1, "Kb": 1024, "Mb": 1024**2}


@dataclass(slots=True)
class Figures:
    """Result of one run. Memory is the process' resident set in MiB; libFuzzer's corpus is part of it."""

    target: str
    seconds: float
    seed: int
    executions: int = 0
    executions_per_second: float = 0.0
    edges: int = 0
    features: int = 0
    corpus_inputs: int = 0
    corpus_bytes: int = 0
    rss_at_20_percent: float = 0.0
    rss_at_end: float = 0.0
    rss_growth: float = 0.0
    slowest_seconds: int = 0
    crashes: int = 0
    hangs: int = 0
    artifacts: list[str] = field(default_factory=list)  # files with the inputs that failed
    last_words: str = ""  # of the child, where it failed: the last lines

    @property
    def clean(self) -> bool:
        """Return whether nothing failed and the child came to its end."""
        return not (self.crashes or self.hangs or self.last_words)


def run(name: str, seconds: int, seed: int, corpus: Path | None, artifacts: Path) -> Figures:
    """Fuzz ``name`` for ``seconds``; inputs that fail go to ``artifacts``, new ones that reach more to ``corpus``."""
    with tempfile.TemporaryDirectory(prefix="plantlog-fuzz-") as scratch:
        grown = corpus or Path(scratch) / "corpus"
        grown.mkdir(parents=True, exist_ok=True)
        artifacts.mkdir(parents=True, exist_ok=True)
        before = set(artifacts.iterdir())
        seeds = Path(scratch) / "seeds"
        seeds.mkdir()
        for file_name, content in target(name).seeds().items():
            (seeds / file_name).write_bytes(content)
        dictionary = Path(scratch) / "words"
        dictionary.write_text("".join(f"{_quoted(word)}\n" for word in target(name).words))
        options = [
            f"-max_total_time={seconds}",
            f"-timeout={HANG_SECONDS}",
            "-rss_limit_mb=0",  # it counts the peak of the process that starts the child, too
            f"-seed={seed}",
            f"-max_len={target(name).max_len}",
            f"-dict={dictionary}",
            f"-artifact_prefix={artifacts}/",
            "-print_final_stats=1",
            str(grown),
            str(seeds),
        ]
        figures = Figures(name, seconds, seed)
        output, memory, code = _watched([sys.executable, "-m", "tests.fuzz.child", name, *options], seconds)
        _read(figures, output)
        _remember(figures, memory)
        figures.artifacts = sorted(str(file) for file in set(artifacts.iterdir()) - before)
        for file in figures.artifacts:
            kind = Path(file).name.split("-")[0]
            figures.crashes += kind == "crash"
            figures.hangs += kind in ("timeout", "slow")
        if code != 0:
            figures.last_words = _last_words(output) or f"ended with {code}"
        return figures


def _quoted(word: bytes) -> str:
    """Text in the syntax of libFuzzer's dictionaries."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"'


def _last_words(output: str) -> str:
    """Output of the child about its end, without the progress before it."""
    lines = [line for line in output.splitlines() if not line.startswith(("#", "stat::", "INFO:"))]
    return "\n".join(lines[-40:])


def _watched(command: Sequence[str], seconds: int) -> tuple[str, list[tuple[float, float]], int]:
    """Output of the child, its memory as (s since start, MiB), and its exit code."""
    memory: list[tuple[float, float]] = []
    with tempfile.TemporaryFile("w+", errors="replace") as log_file:
        child = subprocess.Popen(command, stdout=log_file, stderr=subprocess.STDOUT)
        process, start, ended = psutil.Process(child.pid), time.monotonic(), threading.Event()
        looking = threading.Thread(target=_look, args=(process, start, memory, ended))
        looking.start()
        try:
            code = child.wait(seconds + _LATE_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait() or 1
        finally:
            ended.set()
            looking.join()
        log_file.seek(0)
        return log_file.read(), memory, code


def _look(process: psutil.Process, start: float, memory: list[tuple[float, float]], ended: threading.Event) -> None:
    while not ended.wait(_LOOK_SECONDS):
        try:
            memory.append((time.monotonic() - start, process.memory_info().rss / 1024**2))
        except psutil.Error:
            return


def _read(figures: Figures, output: str) -> None:
    for edges, features, inputs, size, unit in _STATUS.findall(output)[-1:]:
        figures.edges, figures.features, figures.corpus_inputs = int(edges), int(features), int(inputs)
        figures.corpus_bytes = int(size) * _SIZES[unit]
    stats = {name: int(value) for name, value in _STAT.findall(output)}
    figures.executions = stats.get("number_of_executed_units", 0)
    figures.executions_per_second = float(stats.get("average_exec_per_sec", 0))
    figures.slowest_seconds = stats.get("slowest_unit_time_sec", 0)


def _remember(figures: Figures, memory: Sequence[tuple[float, float]]) -> None:
    memory = [(at, size) for at, size in memory if size > 0]  # 0: it has ended, and nobody has asked how
    if not memory:
        return
    warm = [size for at, size in memory if at >= _WARM * memory[-1][0]]
    figures.rss_at_20_percent, figures.rss_at_end = round(warm[0], 1), round(warm[-1], 1)
    figures.rss_growth = round(warm[-1] - warm[0], 1)
