"""The result of a chaos run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from core.formatting import table
from lab.chaos.schedule import Step
from lab.chaos.settling import RollupResult
from lab.chaos.soak import SoakResult
from simulator.compare_samples import Comparison

_COUNTS = ("published", "stored", "duplicated", "invented", "altered", "missing_recorded", "missing_silent")
_ERRORS_SHOWN = 20
_LABELS = {"missing_recorded": "missing, with a gap", "missing_silent": "missing, no gap"}
_MUST_BE_ZERO = ("duplicated", "invented", "altered", "missing_silent")


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """Outcome of a fault that was alone."""

    step: Step
    seconds: float  # from the end of the fault until all was as before
    missing: int  # samples, whether or not a gap says so
    gaps: int  # of the pair, that were recorded

    def __str__(self) -> str:
        return f"as before {self.seconds:.1f} s later; {self.missing:,} samples missing, {self.gaps} gaps"


@dataclass(frozen=True, slots=True)
class Report:
    """Counts of samples, and of what was done to them."""

    seed: int
    seconds: float
    server: str
    compared: Mapping[str, Comparison]  # opcua, modbus, push, text, all
    steps: Sequence[Step]
    gaps: Sequence[Mapping[str, Any]]  # reason, gaps, backfilled, open, seconds
    quarantined: int
    settled_seconds: float
    refused: Mapping[str, int]  # what the gateway was answered instead of 204
    left_out: Sequence[str] = field(default_factory=tuple)  # faults that this machine can't have, and why
    recovery_seconds: float = 0.0  # after that until polls were in time again and nothing waited
    not_recovered: Sequence[str] = field(default_factory=tuple)  # what was not as before then, in words
    rollups: RollupResult = field(default_factory=RollupResult)
    outcomes: Sequence[TrialOutcome] = ()  # of machines that failed one at a time
    soak: SoakResult | None = None

    @property
    def failures(self) -> list[str]:
        """Describe what must not be."""
        total = self.compared["all"]
        failures = [
            f"{getattr(total, name):,} samples {_LABELS.get(name, name)}"
            for name in _MUST_BE_ZERO
            if getattr(total, name)
        ]
        if self.quarantined:
            failures.append(f"{self.quarantined:,} rows in quarantine")
        if still := sum(gap["open"] for gap in self.gaps):
            failures.append(f"{still} gaps still open")
        failures += [f"{what} {self.recovery_seconds:.0f} s after all faults" for what in self.not_recovered]
        failures += self.rollups.failures
        failures += [
            f"{outcome.missing:,} samples missing after {outcome.step.fault.name}, which was alone"
            for outcome in self.outcomes
            if outcome.missing
        ]
        if self.soak is not None and self.soak.errors:
            failures.append(f"{len(self.soak.errors):,} errors in the logs that are about no fault")
        return failures

    @property
    def remarks(self) -> list[str]:
        """Remarks on what could not be done, with examples of failures."""
        errors = [] if self.soak is None else self.soak.errors[:_ERRORS_SHOWN]
        return [*self.left_out, *self.compared["all"].examples, *errors]

    def json(self) -> dict[str, Any]:
        """The counts first, then how they came to be."""
        total = self.compared["all"]
        return {
            **{name: getattr(total, name) for name in _COUNTS},
            "seed": self.seed,
            "seconds": self.seconds,
            "server": self.server,
            "faults": dict(self.fault_counts()),
            "gaps": [dict(gap) for gap in self.gaps],
            "quarantined": self.quarantined,
            "settled_seconds": round(self.settled_seconds, 1),
            "recovery_seconds": round(self.recovery_seconds, 1),
            "minutes_closed": asdict(self.rollups.closed),
            "minutes_closed_in_the_end": asdict(self.rollups.closed_after),
            "rollups_seconds": round(self.rollups.seconds, 1),
            "rollups_differ": [
                f"{difference.relation} {difference.channel} {difference.bucket} {difference.column}"
                for difference in self.rollups.differences[:20]
            ],
            "single": [
                {
                    "fault": str(outcome.step),
                    "seconds": round(outcome.seconds, 1),
                    "missing": outcome.missing,
                    "gaps": outcome.gaps,
                }
                for outcome in self.outcomes
            ],
            "soak": None if self.soak is None else asdict(self.soak),
            "gateway_refused": dict(self.refused),
            "left_out": list(self.left_out),
            "kinds": {name: asdict(part) for name, part in self.compared.items() if name != "all"},
            "examples": total.examples,
            "failures": self.failures,
        }

    def fault_counts(self) -> Counter[str]:
        """Counts of each fault."""
        return Counter(step.fault.name for step in self.steps)

    def tables(self) -> list[Table]:
        """The report in tables for people."""
        title = f"samples, {self.seconds:,.0f} s with {len(self.steps)} faults, seed {self.seed}"
        samples = table("", *(f">{kind}" for kind in self.compared), title=title, box=SIMPLE_HEAD)
        for name in _COUNTS:
            samples.add_row(_LABELS.get(name, name), *(f"{getattr(part, name):,}" for part in self.compared.values()))
        faults = table("what", ">times", title="faults", box=SIMPLE_HEAD)
        for name, times in sorted(self.fault_counts().items()):
            faults.add_row(name, str(times))
        gaps = table("reason", ">gaps", ">backfilled", ">open", ">seconds", title="gaps on record", box=SIMPLE_HEAD)
        for gap in self.gaps:
            gaps.add_row(*(f"{v:,.1f}" if isinstance(v, float) else str(v) for v in gap.values()))
        minutes = table("", ">minutes", ">of channels", title="minutes that the writer closed", box=SIMPLE_HEAD)
        for name, done in (("while things failed", self.rollups.closed), ("in the end", self.rollups.closed_after)):
            minutes.add_row(name, f"{done.minutes:,}", f"{done.rows:,}")
        columns = ("what", ">s until all was as before", ">samples missing", ">gaps")
        single = table(*columns, title="one machine or network at a time", box=SIMPLE_HEAD)
        for outcome in self.outcomes:
            single.add_row(str(outcome.step), f"{outcome.seconds:.1f}", f"{outcome.missing:,}", str(outcome.gaps))
        soak = [] if self.soak is None else [_soak_table(self.soak)]
        return [faults, gaps, *([single] if self.outcomes else []), samples, minutes, *soak]


def _soak_table(soak: SoakResult) -> Table:
    title = "processes: median, and slope by the age of the process"
    shown = table("process", ">memory, MiB", ">descriptors", title=title, box=SIMPLE_HEAD)
    for name, of_process in soak.trends.items():
        shown.add_row(name, str(of_process["memory"]), str(of_process["descriptors"]))
    return shown
