"""Results of ``plantlog evidence verify``, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any

from core.formatting import count
from history.standalone import Amendment, HourDifference, Seal, sealing


@dataclass(frozen=True, slots=True)
class Finding:
    """A difference, and what evidence explains it."""

    difference: HourDifference
    explained: str = ""  # empty: nothing does
    rest_is_sealed: bool = False  # the rows that were not added are proven to be the sealed ones
    rest: str = ""  # what records of late data leave unexplained

    def describe(self) -> str:
        """The difference in a line for people."""
        explained = self.explained or f"NOT explained by any record{self.rest}"
        return f"{self.difference.describe(self.rest_is_sealed)}: {explained}"


@dataclass(slots=True)
class DayReport:
    """Results of one day."""

    day: date
    revision: int
    samples: int  # that were read
    problems: list[str] = field(default_factory=list)  # of the digests that are kept
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    amended: list[Amendment] = field(default_factory=list)  # what later seals of the day have otherwise
    unsealed: list[str] = field(default_factory=list)  # samples of the day that no installation has sealed
    seal: Seal | None = None  # its newest one

    @property
    def ok(self) -> bool:
        """Return whether nothing is unexplained."""
        return not self.unexplained

    @property
    def strictly_ok(self) -> bool:
        """Return whether all is as sealed first, or proven to have come later."""
        return self.ok and not (self.findings or self.notes or self.unsealed) and all(a.proven for a in self.amended)

    @property
    def unexplained(self) -> list[str]:
        """Differences that nothing explains."""
        return self.problems + [
            f"{self.day}: {finding.describe()}" for finding in self.findings if not finding.explained
        ]


@dataclass(slots=True)
class Report:
    """Results of all days."""

    installation: str  # whose seals; empty where the database has only one
    seals: int
    anchored: bool  # a key was there to hold on to
    chain: list[str] = field(default_factory=list)  # problems
    days: list[DayReport] = field(default_factory=list)
    not_verified: list[str] = field(default_factory=list)  # other installations, where none was chosen
    wrong_key: str = ""  # why nobody can say who made the seals, in words
    next_seal: str = ""  # where there are no seals: of which day the first one will be, and when

    @property
    def ok(self) -> bool:
        """Return whether nothing is unexplained."""
        return not self.unexplained

    @property
    def unexplained(self) -> list[str]:
        """Differences that nothing explains."""
        wrong = [self.wrong_key] if self.wrong_key else []
        return wrong + self.chain + [problem for day in self.days for problem in day.unexplained]

    def as_json(self) -> dict[str, Any]:
        """The report for programs."""
        days = []
        for day in self.days:
            findings = [
                {
                    **asdict(finding.difference),
                    "kind": finding.difference.kind,
                    "rest_is_sealed": finding.rest_is_sealed,
                    "explained": finding.explained or None,
                }
                for finding in day.findings
            ]
            days.append({
                "day": day.day.isoformat(), "ok": day.ok, "revision": day.revision, "samples": day.samples,
                "problems": day.problems, "differences": findings, "notes": day.notes,
                "amended": [asdict(amendment) for amendment in day.amended], "unsealed": day.unsealed,
                "seal": day.seal and day.seal.as_dict(),
            })  # fmt: skip
        return {
            "ok": self.ok, "installation": self.installation or None, "seals": self.seals, "anchored": self.anchored,
            "wrong_key": self.wrong_key or None, "chain": self.chain, "days": days, "not_verified": self.not_verified,
        }  # fmt: skip


def format_report(report: Report, limit: int) -> list[str]:
    """The report for people; ``limit``: findings to list of each day (0: all)."""
    prefix = f"{report.installation}: " if report.installation else ""
    holds = "; chain and signatures hold" if report.seals and not (report.chain or report.wrong_key) else ""
    next_seal = f"; {report.next_seal}" if report.next_seal else ""
    lines = [f"{prefix}{count(report.seals, 'seal')}{holds}{next_seal}"]
    lines += [f"  {problem}" for problem in (report.wrong_key, *report.chain) if problem]
    as_sealed = "as these seals say" if report.wrong_key else "as sealed"
    if not report.anchored and report.seals:
        lines.append(
            "  signatures were checked with the keys in the database alone: give --key, a public key kept elsewhere"
        )
    for day in report.days:
        verdict = as_sealed if day.ok and not day.findings else "differs, explained" if day.ok else "NOT as sealed"
        lines.append(f"{day.day} (revision {day.revision}): {verdict}; {count(day.samples, 'sample')} read")
        lines += [f"  {sealing(day.seal)}"] if day.seal else []
        lines += [f"  {problem}" for problem in day.problems]
        listed = sorted(day.findings, key=lambda finding: bool(finding.explained))
        lines += [f"  {line}" for line in limited([finding.describe() for finding in listed], limit)]
        lines += [f"  {line}" for line in amendment_lines(day.amended, limit)]
        lines += [f"  note: {note}" for note in day.notes]
        lines += [f"  NOT sealed by anyone: samples of {installation}" for installation in day.unsealed]
    if report.not_verified:
        lines.append(f"not verified: {', '.join(report.not_verified)}; --installation all verifies every chain")
    return lines


def amendment_lines(amended: Sequence[Amendment], limit: int) -> list[str]:
    """Amendments of a day's seals for people; ``limit``: how many (0: all), first those without proof."""
    ordered = sorted(amended, key=lambda amendment: amendment.proven) if limit else amended
    return limited([f"amended: {amendment.describe()}" for amendment in ordered], limit, "more amendments")


def limited(lines: Sequence[str], limit: int, more: str = "more") -> list[str]:
    """The first lines, and a line on how many are left out; ``limit``: 0: all."""
    left_out = len(lines) - limit if limit else 0
    rest = [f"{left_out:,} {more} (--limit 0 lists all)"] if left_out > 0 else []
    return [*lines[: limit or None], *rest]
