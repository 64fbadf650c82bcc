"""``plantlog status``: collects the status of all processes and of the database."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config.files import digest
from core.config.load import load as load_plant
from core.config.processes import collector, processes_of
from core.config.snapshot import Snapshot, in_force, latest_number, plant_in_force
from core.config.sources import Source
from core.database import FAILURES, connected
from core.errors import ConfigError, OperationError
from core.formatting import count, duration
from core.installation import chosen, installation_of, installations
from core.paths import State
from core.source_states import UP
from core.timestamps import iso, now_us
from ops import health
from ops.appliance.database import Database
from ops.appliance.service import stopped as find_stopped
from ops.appliance.supervisor import ACTIVE_STATES, ExitRecord, Supervisor, last_lines, read_exits
from ops.deployment import Running
from schema.queries import load

_CONNECT_SECONDS = 3.0
_STABLE_SECONDS = 10.0  # a process without a health page that lives so long has come up
_RECENT_SECONDS = 60.0  # an end is news for so long
_REPEATED_SECONDS = 600.0  # several in a row are
_NEWS_US = 86_400_000_000  # a rejected token is news for so long
_STOPPED = "it stopped with plantlog"
_UNSUPERVISED = "not supervised: run `plantlog up`"
_ELSEWHERE = "does not respond here: see its container"
_MAX_PROBLEMS = 3  # problems
_MAX_FILES = 3  # files that are named
_NOT_STARTED: dict[str, Any] = dict.fromkeys(("file", "number", "since")) | {
    "differs": False,
    "changed": [],
    "problems": [],
}


class StatusMonitor:
    """Collects status snapshots.

    ``installation``: whose outages and quarantine are counted, as for ``ask``; None: those of this state folder.
    """

    def __init__(self, state: State, installation: str | None = None) -> None:
        if not state.claimed:
            raise OperationError(f"{state.root} has no appliance yet: run `plantlog up`")
        self._state = state
        self._installation = installation
        self._drift = ConfigDrift(state)

    def snapshot(self) -> dict[str, Any]:
        """The current status, as printed by ``--json``."""
        started = Running.load(self._state)
        running = started or self._in_containers()
        reports: dict[str, dict[str, Any] | None] = {}
        if running is not None:
            state = self._state.root
            reports = {name: health.fetch(name, running.health, state) for name in running.processes}
        collectors = [report for report in reports.values() if report and "sources" in report]
        sources = [source for report in collectors for source in report["sources"]]
        writer = reports.get("writer")
        jobs = (reports.get("maintenance") or {}).get("jobs", [])
        configuration = self._drift.check()
        silent = "does not respond" if started else _ELSEWHERE
        processes = self._processes(reports, configuration["number"], by_up=started is not None)
        stopped = None if any(process["state"] != "STOPPED" for process in processes) else find_stopped(self._state)
        reported = {source["name"] for source in sources}
        unreported = [
            _unreported_source(source, channels, "" if stopped else f"{process} {silent}")
            for source, channels, process in self._drift.sources
            if source.name not in reported
        ]
        database: dict[str, Any] = (
            {"reachable": False, "reason": _STOPPED}
            if stopped and not self._state.has_external_database
            else asyncio.run(_database(self._state, self._installation, jobs))
        )
        runs: dict[str, dict[str, Any]] = database.pop("runs", {})
        return {
            "plant": running.plant if running else None,
            "state": str(self._state.root),
            "stopped": stopped,
            "configuration": configuration,
            "processes": processes,
            "sources": [_source(source) for source in (*sources, *unreported)],
            "spools": {report["spool"]["name"]: report["spool"] for report in collectors},
            "alarms": _alarms(collectors),
            "notifier": _notifier(reports.get("notifier")),
            "writer": writer and {key: writer[key] for key in ("written", "lag_seconds", "backlog_rows", "database")},
            "journal": (writer or {}).get("journal"),
            "redundancy": (writer or {}).get("redundancy"),
            # Those that end soon
            "certificates": [
                certificate for report in reports.values() if report for certificate in report.get("certificates", [])
            ],
            "jobs": [job | runs.get(job["name"], {}) for job in jobs],
            "overload": (reports.get("maintenance") or {}).get("overload"),  # None: nobody says
            "database": database,
        }

    def _in_containers(self) -> Running | None:
        """The processes of the configuration in force, which `up` has not started: containers have.

        Where they share a network, as in a pod, their health pages answer here.
        """
        with suppress(OperationError):  # of another version
            if not Supervisor(self._state).answers() and (current := in_force(self._state.root, ())) is not None:
                return Running(current.plant.name, current.plant.health, tuple(processes_of(current.plant)))
        return None

    def _processes(
        self, reports: Mapping[str, dict[str, Any] | None], number: int | None, *, by_up: bool
    ) -> list[dict[str, Any]]:
        answering = ("UNSUPERVISED", _UNSUPERVISED) if by_up else ("RUNNING", "")
        silent = ("STOPPED", "") if by_up else ("UNKNOWN", _ELSEWHERE)
        supervisor = Supervisor(self._state)
        supervised: list[dict[str, Any]] = []
        with suppress(OperationError):  # no supervisor: what answers is still shown
            supervised = [asdict(process) for process in supervisor.processes()]
        unknown = [
            {"name": name, "state": state, "pid": None, "since": None, "reason": reason}
            for name, report in reports.items()
            for state, reason in (answering if report else silent,)
            if name not in {process["name"] for process in supervised}
        ]
        exit_records = read_exits(self._state)
        entries = []
        for process in (*supervised, *unknown):
            name = process["name"]
            entry = (
                process
                | _process_figures(reports.get(name))
                | self._exit_figures(process, reports, exit_records.get(name))
            )
            if not entry["reason"] and entry["state"] == "RUNNING" and name in reports:
                entry["reason"] = _not_ready_reason(reports[name], number)
            entries.append(entry)
        return entries

    def _exit_figures(
        self,
        process: dict[str, Any],
        reports: Mapping[str, dict[str, Any] | None],
        exit_record: ExitRecord | None,
    ) -> dict[str, Any]:
        """``exits``: how often in a row it ended by itself, how and when. One that does not come up is RESTARTING."""
        if exit_record is None:
            return {"exits": None}
        name, state, reason = process["name"], process["state"], process["reason"]
        runs = state == "RUNNING" and time.time() - process["since"] > _STABLE_SECONDS
        if reports[name] is None if name in reports else not runs:
            state = "RESTARTING" if state in (*ACTIVE_STATES, "EXITED") else state
            last = last_lines(self._state, name)
            reason = f"{exit_record}; last log line: {last}" if last else str(exit_record)
        elif time.time() - exit_record.at < (_RECENT_SECONDS if exit_record.count == 1 else _REPEATED_SECONDS):
            reason = f"exited {duration(round(time.time() - exit_record.at))} ago: {exit_record}"
        return {"state": state, "reason": reason, "exits": asdict(exit_record)}


def _alarms(collectors: list[dict[str, Any]]) -> dict[str, int]:
    """Active alarms by priority, ``unacknowledged`` and ``inhibited`` ones, of all collectors that answer."""
    total: Counter[str] = Counter()
    for report in collectors:
        total.update(report.get("alarms", {}))
    return dict(total)


def _notifier(report: dict[str, Any] | None) -> dict[str, Any] | None:
    """Report of the notifier; None: there is none, or it does not answer."""
    return report and {key: report[key] for key in ("database", "failing", "waiting", "delivered")}


def _process_figures(report: dict[str, Any] | None) -> dict[str, Any]:
    """``ready`` (None: it has no health page, or does not answer) and ``samples`` handled since its start."""
    if report is None:
        return {"ready": None, "samples": None}
    samples = sum(s["samples"] for s in report["sources"]) if "sources" in report else report.get("written")
    return {"ready": report["ready"], "samples": samples}


def _not_ready_reason(report: dict[str, Any] | None, number: int | None) -> str:
    """Reason why a process that runs is not ready, or not what it should be."""
    if report is None:
        return "does not respond"
    if not report["ready"]:
        return _missing(report)
    if number is not None and report.get("configuration", number) != number:
        return f"runs configuration {report['configuration']}, but {number} is current: see its log"
    wrong = report.get("wrong_tokens", {"count": 0})
    if wrong["count"] and now_us() - wrong["last_at"] < _NEWS_US:
        last = f"last {iso(wrong['last_at'])[:19]}Z from {wrong['last_from']}"
        return f"{count(wrong['count'], 'request')} with a wrong token, {last}"
    return ""


def _missing(report: dict[str, Any]) -> str:
    """Describe what a process that is not ready waits for."""
    if report.get("failing") and report["database"] == "connected":
        return f"not reached: {', '.join(report['failing'])}"
    if "database" in report:
        return f"database {report['database']}"
    not_connected = [entry["name"] for entry in report.get("sources", []) if entry["state"] not in UP]
    return f"not connected: {', '.join(not_connected)}"


def _unreported_source(source: Source, channels: int, silence: str) -> dict[str, Any]:
    """A source whose collector does not respond; ``silence``: why not, or empty if nothing runs."""
    from ingest.status import SourceStatus  # noqa: PLC0415  (imports numpy, which no other status needs)

    status = SourceStatus(0, source.name, source.kind, source.address, channels)
    unknown = ("source_id", "samples", "samples_per_second", "reconnects", "decode_errors", "missed")
    reports = status.report() | dict.fromkeys(unknown)
    return reports | {"state": "unknown" if silence else "stopped", "reason": silence}


def _source(source: dict[str, Any]) -> dict[str, Any]:
    newest = source["last_sample_at"]
    return source | {"last_sample_age_seconds": (now_us() - newest) / 1e6 if newest else None}


async def _database(state: State, installation: str | None, jobs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """``jobs``: as maintenance reports them; ``runs``: newer ones by job, as of `plantlog admin maintenance run`."""
    if not state.dsn_file("reader").exists():
        return {"reachable": False, "reason": "not created yet"}
    database = Database(state, None)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            async with connected(state.dsn("reader"), "plantlog status", seconds=_CONNECT_SECONDS / 2) as connection:
                installation_here = installation_of(state.root)
                recorded_by = installation_here if installation is None else await chosen(connection, installation)
                row = await connection.fetchrow(load("status")["select_database"], recorded_by)
                others = [str(other) for other in await installations(connection) if other.id != installation_here]
                members = [
                    dict(row) for row in await connection.fetch(load("pair")["select_status"], installation_here)
                ]
                last = [job["name"] for job in jobs], [job["started_at"] for job in jobs]
                runs = [
                    dict(row)
                    for row in await connection.fetch(load("status")["select_newer_runs"], installation_here, *last)
                ]
                missing = [row["problem"] for row in await connection.fetch(load("status")["select_problems"])]
    except FAILURES as error:
        reason = str(error) or type(error).__name__
        return {"reachable": False, "where": database.where, "reason": reason}
    return {
        "reachable": True,
        "where": database.where,
        "missing": missing,
        "others": others,
        "installation": installation,
        "members": members,
        "runs": {run.pop("job"): run for run in runs},
    } | dict(row or {})


class ConfigDrift:
    """Checks the configuration files repeatedly; parses them only after a change."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._snapshot: Snapshot | None = None
        self._file_states: tuple[str | bool | None, ...] = ()
        self._report: dict[str, Any] = {}

    @property
    def sources(self) -> list[tuple[Source, int, str]]:
        """Configured sources (without tags), with the number of tags and the collector, as of the last check."""
        now = self._snapshot
        sources = () if now is None else now.plant.sources
        return [(s, now.channels[s.name], collector(s.kind, now.process(s.name))) for s in sources if now is not None]

    def check(self) -> dict[str, Any]:
        """``file``, ``number`` and ``since`` (s since 1970) of what runs, None before the first ``up``; ``differs``;
        ``changed``; ``problems``.

        ``differs``: the next ``up`` would change something. ``changed``: the paths of the files that are not as they
        were applied. ``problems``: why it could not, a line each.
        """
        if latest_number(self._state.root) != (self._snapshot and self._snapshot.number):
            try:
                self._snapshot, self._report = in_force(self._state.root, tags_of=()), {}
            except OperationError as error:
                return {**_NOT_STARTED, "differs": True, "problems": [str(error)]}
        if self._snapshot is None:
            return _NOT_STARTED
        file_states = self._snapshot.file_states()
        if not self._report or file_states != self._file_states:
            self._file_states, self._report = file_states, _compare(self._snapshot, self._state)
        return self._report


def _compare(snapshot: Snapshot, state: State) -> dict[str, Any]:
    differs, problems = False, []
    if not snapshot.files_unchanged():
        try:
            differs = load_plant(snapshot.file) != plant_in_force(state.root)
        except ConfigError as error:
            differs, problems = True, [str(problem) for problem in error.problems]
    return {
        "file": str(snapshot.file),
        "number": snapshot.number,
        "since": snapshot.since / 1e6,
        "differs": differs,
        "changed": [path for path, applied in snapshot.digests.items() if digest(Path(path)) != applied],
        "problems": problems,
    }


def drift_messages(configuration: dict[str, Any]) -> list[str]:
    """Messages for people; none if nothing has to be done."""
    if not configuration["differs"]:
        return []
    if configuration["file"] is None:
        return list(configuration["problems"])
    since = datetime.fromtimestamp(configuration["since"], UTC)
    files = configuration["changed"] or [configuration["file"]]
    named = ", ".join(files[:_MAX_FILES]) + " …" * (len(files) > _MAX_FILES)
    differ = "differs" if len(files) == 1 else "differ"
    begins = f"{named} {differ} from the configuration running since {since:%Y-%m-%d %H:%M:%SZ}"
    problems = configuration["problems"]
    if not problems:
        return [f"{begins}: run `plantlog up` to apply it"]
    n = count(len(problems), "problem")
    more = [f"… run `plantlog config check {configuration['file']}` for all"] if len(problems) > _MAX_PROBLEMS else []
    return [f"{begins}, and `plantlog up` would reject it with {n}:", *problems[:_MAX_PROBLEMS], *more]
