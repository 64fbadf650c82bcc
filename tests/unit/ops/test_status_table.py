"""The lines of ``plantlog status``, each from its part of the status."""

from __future__ import annotations

import io
import re
import time
from typing import Any

import pytest
from rich.console import Console

from ingest.status import SourceStatus
from ops.appliance.status_table import bad_channels, render

HOUR_AGO = time.time() - 3600
EMPTY: dict[str, Any] = {
    "plant": "north",
    "state": "/var/lib/plantlog",
    "stopped": None,
    "configuration": {"differs": False},
    "processes": [],
    "sources": [],
    "spools": {},
    "alarms": {},
    "notifier": None,
    "writer": None,
    "journal": None,
    "redundancy": None,
    "certificates": [],
    "jobs": [],
    "overload": None,
    "database": {"reachable": False, "reason": "not created yet"},
}
DATABASE: dict[str, Any] = {
    "reachable": True,
    "where": "127.0.0.1:5432/plantlog",
    "server": "10.0.0.1:5432",
    "standbys": 1,
    "postgresql_version": "17.4",
    "timescaledb_version": "2.19.0",
    "edition": "apache",
    "bytes": 3 * 2**30,
    "chunks": 12,
    "missing": [],
    "members": [],
    "others": [],
    "installation": "",
    "restored": None,
    "quarantined": 1,
    "outages_open": 2,
    "outages_today": 1234,
}
PROCESS = {"name": "writer", "state": "RUNNING", "ready": True, "pid": 7, "since": HOUR_AGO, "samples": 12_345}
JOB = {"name": "rollups", "state": "waiting", "outcome": "ok", "started_at": HOUR_AGO - 2.25, "seconds": 2.25}
JOB |= {"rows": 1_500, "detail": "all made", "waits": "", "next_at": HOUR_AGO + 7_260}
MEMBER = {"member": "a", "place": "host-a:/srv", "backlog_rows": 3, "away": False, "age": 1.0, "writes": True}


def lines(width: int = 250, **parts: Any) -> list[str]:
    """Lines of a status with these parts, one space between two columns."""
    console = Console(width=width, file=io.StringIO())
    console.print(render(EMPTY | parts))
    return [" ".join(line.split()) for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]


def line(first: str, **parts: Any) -> str:
    """The rest of the line that begins with ``first``."""
    (text,) = (text for text in lines(**parts) if text.startswith(f"{first} "))
    return text.removeprefix(f"{first} ")


def timeless(text: str) -> str:
    """Text whose durations, which go on, are SPAN."""
    return re.sub(r"(?<![\d.])\d+ (?:d|h|min|s)\b(?: \d+ (?:h|min|s)\b)?", "SPAN", text)


def database(first: str = "database", **parts: Any) -> str:
    """The rest of a line of the database."""
    return line(first, database=DATABASE | parts)


def test_head_names_plant_and_state_folder() -> None:
    assert lines()[0] == "plant north /var/lib/plantlog"
    assert lines(plant=None)[0] == "not started yet /var/lib/plantlog"


def test_head_says_that_plantlog_was_stopped_and_that_files_differ() -> None:
    stopped = {"since": 0.0, "start": "plantlog up"}
    configuration = {"differs": True, "file": "plant.toml", "since": 0.0, "changed": ["tags.csv"], "problems": []}
    assert lines(stopped=stopped, configuration=configuration)[1:3] == [
        "plantlog does not run: it was stopped at 1970-01-01T00:00:00Z. `plantlog up` starts it",
        "tags.csv differs from the configuration running since 1970-01-01 00:00:00Z: run `plantlog up` to apply it",
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "running yes 7 SPAN 12,345"),
        ({"state": "STARTING", "ready": False, "samples": None}, "starting no 7 SPAN"),
        ({"state": "FATAL", "ready": None, "pid": None, "samples": None, "reason": "exit [1]"}, "fatal exit [1]"),
    ],
)
def test_process(parts: dict[str, Any], expected: str) -> None:
    assert timeless(line("writer", processes=[PROCESS | {"reason": ""} | parts])) == expected


def source(**parts: Any) -> dict[str, Any]:
    """A source as `plantlog status --json` has it."""
    report = SourceStatus(1, "plc", "opcua", "opc.tcp://h", 1200, "connected").report()
    return report | {"samples": 5, "samples_per_second": 1000.25, "last_sample_age_seconds": 0.5} | parts


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "connected 1,200 0 1,000.2 0.5 s 0"),
        (
            {"reconnects": 2, "remarks": {"repeated": "values are lost"}},
            "connected 1,200 0 1,000.2 0.5 s 2 values are lost",
        ),
        (
            {"state": "connecting", "reason": "refused", "open_gaps": 1},
            "connecting 1,200 0 open 1,000.2 0.5 s 0 refused",
        ),
        ({"state": "standby", "open_gaps": 1, "last_sample_age_seconds": None}, "standby 1,200 0 1,000.2 none yet 0"),
        ({"bad_channels": {"a": "BadNodeIdUnknown"}}, "connected 1,200 1 1,000.2 0.5 s 0 a: BadNodeIdUnknown"),
        ({"state": "unknown", "samples": None, "samples_per_second": None, "reconnects": None}, "unknown 1,200 0"),
    ],
)
def test_source(parts: dict[str, Any], expected: str) -> None:
    assert line("plc", sources=[source(**parts)]) == expected


def test_bad_channels_are_whole_and_listed() -> None:
    bad = {f"north/boiler{n}/pressure": f"BadNodeIdUnknown {'x' * 150} end of {n}" for n in range(5)}
    status = {"sources": [source(state="degraded", bad_channels=bad)]}
    shown = "".join(lines(width=120, **status)).replace(" ", "")
    assert "endof2;and2channelsmore:status--channels" in shown, "three whole reasons, and where the others are"
    assert len(bad_channels(status).splitlines()) == 5
    assert bad_channels(status).splitlines()[4] == f"plc\tnorth/boiler4/pressure\t{bad['north/boiler4/pressure']}"
    status["sources"][0] |= {"state": "unknown", "reason": "collector-opcua does not respond", "bad_channels": {}}
    assert bad_channels(status) == "plc\tall channels\tunknown: collector-opcua does not respond"
    assert bad_channels({"sources": [source()]}) == "all channels are readable"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, "ok SPAN ago 2.2 s 1,500 in SPAN all made"),
        ({"state": "running"}, "running SPAN ago 2.2 s 1,500 all made"),
        ({"waits": "waits: ingest is behind"}, "waiting SPAN ago 2.2 s 1,500 waits: ingest is behind"),
        ({"outcome": "skipped", "rows": None, "detail": "no archive"}, "skipped SPAN ago in SPAN no archive"),
        (dict.fromkeys(("outcome", "started_at", "seconds", "rows")) | {"detail": ""}, "waiting in SPAN"),
    ],
)
def test_job(parts: dict[str, Any], expected: str) -> None:
    assert timeless(line("rollups", jobs=[JOB | parts])) == expected


def test_overload_is_in_the_head_with_the_jobs_that_wait() -> None:
    overload = {"since": 43_390.0, "lag_seconds": 8.04, "pace_seconds": 2.4, "cpu_pressure": 1.0, "spool_bytes": 1}
    assert lines(overload=overload, jobs=[JOB | {"waits": "waits: ingest is behind"}])[1] == (
        "overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 100 %; waiting: rollups"
    )


def test_spool() -> None:
    spool = {"rows": 1, "bytes": 512, "max_bytes": 5 * 2**40}
    assert line("spool opcua", spools={"opcua": spool}) == "1 row waiting, 512 B of 5.0 TiB"


@pytest.mark.parametrize(
    ("alarms", "expected"),
    [
        ({"unacknowledged": 3}, "none active; 3 unacknowledged, 0 shelved or out of service"),
        (
            {"low": 1, "high": 1200, "inhibited": 2},
            "active: 1,200 high, 1 low; 0 unacknowledged, 2 shelved or out of service",
        ),
    ],
)
def test_alarms(alarms: dict[str, int], expected: str) -> None:
    assert line("alarms", alarms=alarms) == expected


def test_notifier() -> None:
    notifier = {"delivered": 1, "waiting": {"mail": 2, "hook": 3}, "failing": {}}
    assert line("notifier", notifier=notifier) == "1 message delivered, 5 waiting"
    failing = notifier | {"failing": {"mail": "refused [5.7.1]"}}
    assert line("notifier", notifier=failing) == "1 message delivered, 5 waiting; mail: refused [5.7.1]"


def test_certificate() -> None:
    assert line("certificate", certificates=["plc.der expires in 3 days"]) == "plc.der expires in 3 days"


def test_writer() -> None:
    writer = {"written": 2_000, "lag_seconds": 0.25, "backlog_rows": 3}
    assert line("writer", writer=writer) == "2,000 samples written, lag 0.250 s, 3 rows waiting"
    assert line("writer", writer=writer | {"lag_seconds": None}).split(", ")[1] == "nothing written yet"
    assert line("writer", writer=writer, redundancy={"role": "active"}).split(", ")[1] == "lag 0.250 s"
    assert line("writer", writer=writer, redundancy={"role": "standby"}).split(", ")[1] == "the other member writes"


def test_journal() -> None:
    empty = {"bytes": 0, "begin": None, "problem": None, "waiting_rows": 0}
    begin = {"begin": int(HOUR_AGO * 1e6)}

    def journal(**parts: Any) -> str:
        return line("journal", journal=empty | parts)

    assert timeless(journal(bytes=3 * 2**20, **begin)) == "3.0 MiB, reaches back SPAN"
    assert journal(bytes=1, waiting_rows=12_000, **begin).endswith("; 12,000 rows to be written again")
    assert journal(problem="No space left") == "what is committed now is not kept: No space left"
    assert not [text for text in lines(journal=empty) if text.startswith("journal")]


def test_database_that_cannot_be_reached() -> None:
    assert line("database") == "unreachable: not created yet"


def test_database() -> None:
    versions = "PostgreSQL 17.4, TimescaleDB 2.19.0 (apache)"
    assert database() == f"127.0.0.1:5432/plantlog: {versions}, 3.0 GiB, 12 chunks"
    assert database(first="recorded") == "2 outages open, 1,234 since midnight (UTC); 1 row in quarantine"
    assert database(first="recorded (north)", installation="north").startswith("2 outages open")


def test_database_of_several_servers_names_the_primary() -> None:
    assert "primary 10.0.0.1:5432, 1 standby" in lines(database=DATABASE | {"where": "a:5432,b:5432/plantlog"})


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"missing": ["max_locks_per_transaction is 64"]}, "max_locks_per_transaction is 64"),
        ({"others": ["plant south"]}, "shared with plant south"),
        ({"restored": "2026-01-01: lost"}, "restored 2026-01-01: lost"),
    ],
)
def test_line_below_the_database(parts: dict[str, Any], expected: str) -> None:
    assert expected in lines(database=DATABASE | parts)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({"held": 3725.5}, "writes for 1 h 2 min, 3 rows waiting"),
        ({"writes": False}, "stands by, 3 rows waiting"),
        ({"away": True, "age": 61.0}, "away for 1 min 1 s, with 3 rows waiting"),
    ],
)
def test_member_of_a_pair(parts: dict[str, Any], expected: str) -> None:
    assert database(first="member a", members=[MEMBER | parts]) == f"host-a:/srv: {expected}"
