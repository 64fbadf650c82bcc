"""``plantlog status``: what every part says of itself, gathered, whichever of them answer."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import asyncpg

from ingest.batch import now_us
from ingest.config.model import Source
from ingest.errors import OperationError
from ingest.status import SourceStatus
from ops import exits, health
from ops.database import Database
from ops.deployment import Running
from ops.drift import Drift
from ops.paths import State
from ops.supervisor import STARTED, Supervisor
from schema.queries import load

_CONNECT_SECONDS = 3.0
_FIRST_LOOK_SECONDS = 1.0  # between the two looks that make a rate
_RUNS_SECONDS = 10.0  # a process without a health page that lives so long has come up
_RECENT_SECONDS = 60.0  # an end is news for so long
_REPEATED_SECONDS = 600.0  # several in a row are
_UNSUPERVISED = "no supervisor looks after it: run `plantlog up`"


class Watch:
    """Looks at an appliance again and again; rates are between this look and the one before."""

    def __init__(self, state: State) -> None:
        if not state.claimed:
            raise OperationError(f"{state.root} is not a plantlog state folder yet: run `plantlog up`")
        self._state = state
        self._before: tuple[float, dict[str, int]] | None = None
        self._drift = Drift(state)

    def first(self) -> dict[str, Any]:
        """A look with rates, which takes a second."""
        self.look()
        time.sleep(_FIRST_LOOK_SECONDS)
        return self.look()

    def look(self) -> dict[str, Any]:
        """What is to be seen now, as it is printed by ``--json``."""
        running = Running.load(self._state)
        said = {name: health.ask(name, running.health) for name in running.processes} if running else {}
        collectors = [report for report in said.values() if report and "sources" in report]
        sources = [source for report in collectors for source in report["sources"]]
        rates = self._rates({source["name"]: source["samples"] for source in sources})
        writer = said.get("writer")
        configuration = self._drift.look()
        heard = {source["name"] for source in sources}
        silent = [_silent(*one) for one in self._drift.sources if one[0].name not in heard]
        return {
            "plant": running.plant if running else None,
            "state": str(self._state.root),
            "configuration": configuration,
            "processes": self._processes(said, configuration["number"]),
            "sources": [_source(source, rates.get(source["name"])) for source in (*sources, *silent)],
            "spools": {report["spool"]["name"]: report["spool"] for report in collectors},
            "alarms": _alarms(collectors),
            "notifier": _notifier(said.get("notifier")),
            "writer": writer and {key: writer[key] for key in ("written", "lag_seconds", "backlog_rows", "database")},
            "certificates": (said.get("collector-opcua") or {}).get("certificates", []),  # those that end soon
            "jobs": (said.get("maintenance") or {}).get("jobs", []),
            "overload": (said.get("maintenance") or {}).get("overload"),  # None: nobody says
            "database": asyncio.run(_database(self._state)),
        }

    def _rates(self, samples: dict[str, int]) -> dict[str, float]:
        now = time.monotonic()
        before, self._before = self._before, (now, samples)
        if before is None:
            return {}
        elapsed = now - before[0]
        return {name: max(0, n - before[1][name]) / elapsed for name, n in samples.items() if name in before[1]}

    def _processes(self, said: Mapping[str, dict[str, Any] | None], number: int | None) -> list[dict[str, Any]]:
        supervisor = Supervisor(self._state)
        known: list[dict[str, Any]] = []
        with suppress(OperationError):  # no supervisor: what answers is still shown
            known = [asdict(process) for process in supervisor.processes()]
        unknown = [
            {"name": name, "state": state, "pid": None, "since": None, "reason": reason}
            for name, report in said.items()
            for state, reason in (("UNSUPERVISED", _UNSUPERVISED) if report else ("STOPPED", ""),)
            if name not in {process["name"] for process in known}
        ]
        ended = exits.read(self._state)
        found = []
        for process in (*known, *unknown):
            name = process["name"]
            one = process | _of_process(said.get(name)) | self._ended(process, said, ended.get(name))
            if not one["reason"] and one["state"] == "RUNNING" and name in said:
                one["reason"] = _why_not(said[name], number)
            found.append(one)
        return found

    def _ended(
        self, process: dict[str, Any], said: Mapping[str, dict[str, Any] | None], how: exits.Exits | None
    ) -> dict[str, Any]:
        """``exits``: how often in a row it ended by itself, how and when. One that does not come up is RESTARTING."""
        if how is None:
            return {"exits": None}
        name, state, reason = process["name"], process["state"], process["reason"]
        runs = state == "RUNNING" and time.time() - process["since"] > _RUNS_SECONDS
        if said[name] is None if name in said else not runs:
            state = "RESTARTING" if state in (*STARTED, "EXITED") else state
            reason = f"{how}; last words: {exits.last_words(self._state, name)}"
        elif time.time() - how.at < (_RECENT_SECONDS if how.count == 1 else _REPEATED_SECONDS):
            reason = f"ended {time.time() - how.at:.0f} s ago: {how}"
        return {"state": state, "reason": reason, "exits": asdict(how)}


def _alarms(collectors: list[dict[str, Any]]) -> dict[str, int]:
    """Active alarms by priority, ``unacknowledged`` and ``inhibited`` ones, of all collectors that answer."""
    total: Counter[str] = Counter()
    for report in collectors:
        total.update(report.get("alarms", {}))
    return dict(total)


def _notifier(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """What the notifier says; None: there is none, or it does not answer."""
    return report and {key: report[key] for key in ("database", "failing", "waiting", "delivered")}


def _of_process(report: dict[str, Any] | None) -> dict[str, Any]:
    """``ready`` (None: it has no health page, or does not answer) and ``samples`` handled since its start."""
    if report is None:
        return {"ready": None, "samples": None}
    samples = sum(s["samples"] for s in report["sources"]) if "sources" in report else report.get("written")
    return {"ready": report["ready"], "samples": samples}


def _why_not(report: dict[str, Any] | None, number: int | None) -> str:
    """Why a process that runs is not ready, or not what it should be."""
    if report is None:
        return "does not answer"
    if not report["ready"] and "database" in report:
        return f"database {report['database']}"
    if not report["ready"]:
        away = [one["name"] for one in report.get("sources", []) if one["state"] not in ("connected", "degraded")]
        return f"not connected: {', '.join(away)}"
    if number is not None and report.get("configuration", number) != number:
        return f"runs configuration {report['configuration']}, and {number} is in force: see its log"
    return ""


def _silent(source: Source, channels: int, process: str) -> dict[str, Any]:
    """A source whose collector says nothing."""
    status = SourceStatus(0, source.name, source.kind, source.address, channels)
    said = asdict(status) | dict.fromkeys(("source_id", "samples", "reconnects", "decode_errors", "missed"))
    return said | {"state": "unknown", "reason": f"{process} does not answer"}


def _source(source: dict[str, Any], rate: float | None) -> dict[str, Any]:
    newest = source["last_sample_at"]
    return source | {
        "samples_per_second": rate,
        "last_sample_age_seconds": (now_us() - newest) / 1e6 if newest else None,
    }


async def _database(state: State) -> dict[str, Any]:
    if not state.dsn_file("reader").exists():
        return {"reachable": False, "reason": "not made yet"}
    database = Database(state, None)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            connection = await asyncpg.connect(database.dsn("reader"))
            try:
                row = await connection.fetchrow(load("status")["database"])
                missing = [lack["said"] for lack in await connection.fetch(load("status")["missing"])]
            finally:
                connection.terminate()
    except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        reason = str(error) or type(error).__name__
        return {"reachable": False, "where": database.where, "reason": reason}
    return {"reachable": True, "where": database.where, "missing": missing, **dict(row or {})}
