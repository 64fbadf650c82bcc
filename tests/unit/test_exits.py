"""How processes ended, as the supervisor's log has it, and what `status` and `up` make of it."""

from __future__ import annotations

import io
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ingest import processes
from ingest.config.load import load
from ingest.config.model import HealthOptions, ModbusSource
from ingest.errors import OperationError
from ingest.status import SourceStatus
from ops import exits, health, strays
from ops.deployment import Running
from ops.paths import EXAMPLE, State
from ops.ports import free_ports
from ops.status import Watch
from ops.status_table import bad_channels, render
from ops.steps import Step
from ops.supervisor import Program, Supervisor
from ops.waiting import Progress, until_ready, wait
from ops.words import count
from tests.configured import put_in_force
from tests.patience import PATIENCE

LOG = """\
2026-11-22 04:00:00,000 INFO supervisord started with pid 7
2026-11-22 04:00:01,000 INFO spawned: 'writer' with pid 8
2026-11-22 04:00:01,000 INFO spawned: 'collector-opcua' with pid 9
2026-11-22 04:00:02,100 INFO success: writer entered RUNNING state, process has stayed up for > than 1 seconds
2026-11-22 04:20:00,000 WARN exited: writer (terminated by SIGKILL; not expected)
2026-11-22 04:20:01,000 INFO spawned: 'writer' with pid 10
2026-11-22 04:20:03,000 WARN exited: writer (exit status 1; not expected)
2026-11-22 04:20:04,000 INFO spawned: 'writer' with pid 11
2026-11-22 04:20:06,000 WARN exited: writer (exit status 1; not expected)
2026-11-22 04:20:07,000 INFO stopped: collector-opcua (exit status 0)
a line that was cut
"""


def test_what_ended_in_a_row_is_counted() -> None:
    found = exits.parse(LOG.splitlines())
    assert set(found) == {"writer"}
    assert str(found["writer"]) == "exit 1, 3 times"
    assert time.localtime(found["writer"].at).tm_sec == 6


def test_a_process_that_was_told_to_stop_and_a_new_supervisor_begin_anew() -> None:
    assert exits.parse([*LOG.splitlines(), "2026-11-22 04:21:00,000 INFO stopped: writer (exit status 0)"]) == {}
    assert exits.parse([*LOG.splitlines(), "2026-11-22 04:21:00,000 INFO supervisord started with pid 12"]) == {}


def test_a_long_life_begins_anew() -> None:
    lines = [
        *LOG.splitlines(),
        "2026-11-22 04:20:08,000 INFO spawned: 'writer' with pid 13",
        "2026-11-22 04:40:08,000 WARN exited: writer (terminated by SIGSEGV (core dumped); not expected)",
    ]
    assert str(exits.parse(lines)["writer"]) == "SIGSEGV (core dumped)"


@pytest.fixture
def state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """A state folder with a short path, for the socket, of an appliance whose writer was started."""
    state = State(tmp_path_factory.mktemp("s"))
    state.claim()
    Running("demo", HealthOptions(port=free_ports(8)), ("writer",)).save(state)
    yield state
    strays.end(state, lambda line: None)


def python(text: str) -> Program:
    return Program("writer", [sys.executable, "-c", text])


def started(state: State, program: Program) -> Supervisor:
    supervisor = Supervisor(state)
    supervisor.start([program])
    supervisor.start_program(program.name)
    return supervisor


def test_status_says_that_a_process_restarts_and_why(state: State) -> None:
    started(state, python("import time; time.sleep(1.2); raise SystemExit('plant.toml:7: no such thing')"))
    watch = Watch(state)
    deadline = time.monotonic() + PATIENCE
    while True:
        (writer,) = watch.look()["processes"]
        if writer["exits"] is not None and writer["exits"]["count"] > 1:
            break
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert writer["state"] == "RESTARTING"
    assert writer["reason"] == f"exit 1, {writer['exits']['count']} times; last words: plant.toml:7: no such thing"


def test_up_does_not_wait_for_what_has_ended(state: State) -> None:
    supervisor = started(state, python("import time; time.sleep(1.2); raise SystemExit('plant.toml:7: no such thing')"))
    begin = time.monotonic()
    with pytest.raises(OperationError, match=r"writer ended \(exit 1\): see .*\nplant.toml:7: no such thing"):
        wait(lambda: False, Progress(supervisor, state, ["writer"]), lambda: "never")
    assert time.monotonic() - begin < 40


def test_what_works_is_waited_for_and_what_is_still_is_not(
    state: State, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ops.waiting._STILL_SECONDS", 4.0)
    monkeypatch.setattr("ops.waiting._WORK_SECONDS", 0.05)  # also a busy machine gives it that much
    flag = tmp_path / "enough"
    script = tmp_path / "busy.py"
    script.write_text(f"import pathlib, time\nwhile not pathlib.Path({str(flag)!r}).exists(): pass\ntime.sleep(600)\n")
    supervisor = started(state, Program("writer", [sys.executable, str(script)]))
    begin = time.monotonic()
    progress = Progress(supervisor, state, ["writer"])
    wait(lambda: time.monotonic() - begin > 10, progress, lambda: "it works")
    flag.touch()
    with pytest.raises(OperationError, match="no answer: nothing has moved for 4 s"):
        wait(lambda: False, progress, lambda: "no answer")


def test_a_device_that_is_away_holds_up_for_a_short_while_and_is_named(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ops.waiting._SOURCES_SECONDS", 2.0)
    monkeypatch.setattr("ops.waiting._TOLD_SECONDS", 0.5)
    source = ModbusSource(name="plc", kind="modbus", address="tcp://127.0.0.1:9", tags=())
    plant = load(EXAMPLE).model_copy(update={"sources": (source,), "health": HealthOptions(port=free_ports(8))})
    away = asdict(SourceStatus(1, "plc", "modbus", source.address, 1, "disconnected", "refused"))

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            number = self.connection.getsockname()[1]
            (name,) = (one for one in health.processes(plant) if processes.port(one, plant.health) == number)
            said = {"ready": False, "sources": [away]} if name == "collector-modbus" else {"ready": True}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"process": name, **said}).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    shown = Console(width=200, file=io.StringIO())
    progress = Progress(started(state, python("import time; time.sleep(600)")), state, ["writer"])
    with ExitStack() as pages:
        for name in health.processes(plant):
            page = pages.enter_context(HTTPServer(("127.0.0.1", processes.port(name, plant.health)), Page))
            threading.Thread(target=page.serve_forever, daemon=True).start()
            pages.callback(page.shutdown)
        begin = time.monotonic()
        until_ready(plant, progress, Step(shown, "wait"), simulated=False)
    assert time.monotonic() - begin < 40
    lines = shown.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert [line.strip(" ·") for line in lines] == [
        "waiting for source plc at tcp://127.0.0.1:9: disconnected refused",
        "source plc at tcp://127.0.0.1:9: disconnected refused",
    ]


def test_an_end_is_news_while_it_is_young_or_when_it_repeats(state: State) -> None:
    started(state, python("import time; time.sleep(600)"))
    running = {"name": "writer", "state": "RUNNING", "reason": "", "since": time.time() - 300}
    for count_, ago, told in ((1, 20, True), (1, 246, False), (3, 246, True), (3, 700, False)):
        how = exits.Exits("SIGKILL", count_, time.time() - ago)
        said = Watch(state)._ended(running, {"writer": {}}, how)
        assert bool(said["reason"]) == told, (count_, ago)


def test_a_process_that_is_not_ready_says_why_and_its_sources_are_shown(state: State, tmp_path: Path) -> None:
    (tmp_path / "tags.csv").write_text("name,address\na,holding:0\n")
    (tmp_path / "plant.toml").write_text(
        '[plant]\nname = "demo"\n[[source]]\nname = "plc"\nkind = "modbus"\naddress = "tcp://127.0.0.1:502"\n'
        'tags = "tags.csv"\n'
    )
    put_in_force(state.root, tmp_path / "plant.toml")
    first = free_ports(8)
    Running("demo", HealthOptions(port=first), ("writer", "collector-modbus")).save(state)
    started(state, python("import time; time.sleep(600)"))
    watch = Watch(state)
    (writer, collector), (source,) = watch.look()["processes"], watch.look()["sources"]
    assert (collector["name"], collector["state"]) == ("collector-modbus", "STOPPED")
    assert writer["name"] == "writer"
    assert (source["name"], source["channels"], source["state"]) == ("plc", 1, "unknown")
    assert source["reason"] == "collector-modbus does not answer"
    table = Console(width=200, file=io.StringIO())
    table.print(render(watch.look()))
    assert "collector-modbus does not answer" in table.file.getvalue()  # type: ignore[attr-defined]

    class Away(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            said = {"process": "writer", "ready": False, "database": "unreachable: no route", "written": 0}
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({**said, "lag_seconds": None, "backlog_rows": 0}).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", first + 2), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        deadline = time.monotonic() + PATIENCE
        while (one := watch.look()["processes"][0])["state"] != "RUNNING":
            assert time.monotonic() < deadline
        server.shutdown()
    assert (one["ready"], one["reason"]) == (False, "database unreachable: no route")


def test_an_overload_and_what_waits_for_it_are_said_first(state: State) -> None:
    started(state, python("import time; time.sleep(600)"))
    status = Watch(state).look()
    assert status["overload"] is None, "maintenance does not answer"
    figures = {"lag_seconds": 8.04, "pace_seconds": 2.4, "cpu_pressure": 1.0, "spool_bytes": 1}
    status["overload"] = {"since": 43_390.0, **figures}
    job = {"name": "rollups", "about": "", "state": "waiting", "outcome": "ok", "started_at": 1.0, "seconds": 1.0}
    job |= {"rows": 1, "bytes": None, "detail": "all made", "failures": 0, "next_at": 2.0}
    status["jobs"] = [job | {"waits": "waits: ingest is behind since 12:03:09 UTC"}]
    table = Console(width=160, file=io.StringIO())
    table.print(render(status))
    lines = table.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert (
        lines[1].strip()
        == "overloaded since 12:03:10 UTC, polls every 2.4 s, lag 8.0 s, CPU pressure 100 %; waiting: rollups"
    )
    (rollups,) = [line for line in lines if line.startswith("rollups")]
    assert "waits: ingest is behind since 12:03:09 UTC" in rollups
    assert "all made" not in rollups


def test_nothing_is_cut_and_bad_channels_are_listed(state: State) -> None:
    started(state, python("import time; time.sleep(600)"))
    status = Watch(state).look()
    bad = {f"north/boiler{n}/pressure": f"BadNodeIdUnknown {'x' * 150} end of {n}" for n in range(5)}
    source = asdict(SourceStatus(1, "plc", "opcua", "opc.tcp://h", 5, "degraded", bad_channels=bad))
    status["sources"] = [source | {"samples_per_second": 1.0, "last_sample_age_seconds": 1.0}]
    table = Console(width=120, file=io.StringIO())
    table.print(render(status))
    shown = "".join(table.file.getvalue().split())  # type: ignore[attr-defined]
    assert "endof2;and2channelsmore:status--channels" in shown, "three whole reasons, and where the others are"
    assert len(bad_channels(status).splitlines()) == 5
    assert bad_channels(status).splitlines()[4] == f"plc\tnorth/boiler4/pressure\t{bad['north/boiler4/pressure']}"
    status["sources"][0] |= {"state": "unknown", "reason": "collector-opcua does not answer", "bad_channels": {}}
    assert bad_channels(status) == "plc\tall channels\tunknown: collector-opcua does not answer"


@pytest.mark.parametrize(
    ("n", "noun", "said"),
    [
        (1, "source", "1 source"),
        (0, "row", "0 rows"),
        (20_000, "channel", "20,000 channels"),
        (2, "batch", "2 batches"),
    ],
)
def test_counts_in_words(n: int, noun: str, said: str) -> None:
    assert count(n, noun) == said
