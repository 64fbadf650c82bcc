"""Questions on a cluster: a scheduler and workers of Dask over TLS, and an archive in S3-compatible storage."""

from __future__ import annotations

import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from core.errors import OperationError
from core.installation import ALL
from core.paths import CHECKOUT, State
from dashboards.viewer.questions import Questions
from history.archive.location import Location
from history.questions.database_request import request_of
from history.questions.request import Request
from history.sql.sources import portion
from history.sql.sources.cluster import Cluster, _packed, build
from lab.bench import local_cluster
from lab.bench.local_cluster import LocalCluster
from schema.question_files import questions
from tests import repository_servers
from tests.config_in_force import activate
from tests.database import Database, prepared
from tests.integration.history.archive.test_s3 import NAME, options_of
from tests.integration.history.questions.answers import LIMITS, assert_same
from tests.integration.history.questions.recorded_plant import recorded_plant
from tests.integration.history.questions.recording import at
from tests.integration.history.questions.test_over_archive import OPTIONS, _record_next_day, ask
from tests.ports import free_port
from tests.repository_servers import Peer
from tests.throttling_store import throttling
from tests.waiting import PATIENCE, until_sync

pytestmark = [
    pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing()),
    pytest.mark.slow,
    pytest.mark.timeout(900),  # each of its processes imports for seconds where a machine is busy
]

ARCHIVE = """
[archive]
location = "{location}"
key_file = "{options.key_file}"
s3_endpoint = "{options.s3_endpoint}"
ca_file = "{options.ca_file}"
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    folder = tmp_path_factory.mktemp("store")
    with repository_servers.running(repository_servers.s3(folder / "server", folder / "files")) as peer:
        yield peer


@pytest.fixture(scope="module")
def here(server: str, template: str, store: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[State]:
    """State folder of a plant whose first day is only in the store. This machine computes its questions."""
    folder = tmp_path_factory.mktemp("plant")
    with prepared(server, template, "day_in_store", partial(_record, folder=folder, store=store)):
        yield State(folder / "state")


async def _record(database: Database, folder: Path, store: Peer) -> None:
    async with recorded_plant(database, folder) as (maintenance, recording):
        config = folder / "plant.toml"
        text = config.read_text().replace(f'[archive]\nlocation = "{folder / "archive"}"\n', "")
        config.write_text(text + ARCHIVE.format(location=NAME, options=store.options(Path("/dev/null"))))
        activate(folder / "state", config)
        await maintenance.owner.execute("UPDATE plant.installation SET archive_location = $1", NAME)
        assert (await maintenance.job()).outcome == "ok"
        assert await maintenance.drop() == ["chunk"]
        await _record_next_day(recording)


@pytest.fixture(scope="module")
def credentials(store: Peer) -> dict[str, str]:
    """Those of the workers."""
    return credentials_of(store)


def credentials_of(store: Peer) -> dict[str, str]:
    """Environment of a worker that can read a store."""
    s3 = options_of(store)
    return {
        "AWS_ACCESS_KEY_ID": s3.access_key,
        "AWS_SECRET_ACCESS_KEY": s3.secret_key,
        "AWS_CA_BUNDLE": s3.ca_file,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture(scope="module")
def cluster(credentials: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with local_cluster.running(tmp_path_factory.mktemp("cluster"), free_port(), 2, credentials) as running:
        yield running


@pytest.fixture(autouse=True)
def many_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portion, "_AT_A_TIME", 2000)


@pytest.fixture(scope="module")
def expected(here: State) -> list[dict[str, Any]]:
    """Rows of stuck_sensors as this machine computes them."""
    return ask(here, "stuck_sensors", {})[0]


def on(cluster: LocalCluster, here: State, folder: Path, endpoint: str | None = None) -> State:
    """State folder of the same plant, whose questions a cluster computes. ``endpoint``: another one of the store."""
    shutil.copytree(here.root, folder / "state")
    text = (here.root.parent / "plant.toml").read_text()
    if endpoint is not None:
        text = re.sub('s3_endpoint = ".*"', f's3_endpoint = "{endpoint}"', text)
    options = "".join(f'{name} = "{value}"\n' for name, value in options_in(cluster).items())
    (folder / "plant.toml").write_text(f"{text}[questions]\n{options}")
    shutil.copy(here.root.parent / "tags.csv", folder / "tags.csv")
    activate(folder / "state", folder / "plant.toml")
    return State(folder / "state")


def options_in(cluster: LocalCluster) -> dict[str, Any]:
    """The table [questions] as the configuration in force has it."""
    return cluster.options.model_dump(mode="json")


def tasks(cluster: LocalCluster) -> int:
    """Number of tasks that the scheduler has."""
    with cluster.client() as client:
        return int(client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))


def workers(cluster: LocalCluster) -> int:
    """Number of workers that the scheduler has."""
    with cluster.client() as client:
        return len(client.nthreads())


def process_number(_: int) -> int:
    return os.getpid()


def end(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lack(_: int) -> Any:
    return np.empty(1 << 50, np.uint8)


def fail(_: int) -> None:
    raise KeyError("seven")


def at_portion(monkeypatch: pytest.MonkeyPatch, act: Callable[[int], object]) -> None:
    """Call ``act`` with the number of each portion that is submitted, from 1 on, before that."""
    submit, numbers = Cluster.submit, count(1)

    def submitting(cluster: Cluster, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        if call is portion.compute:
            act(next(numbers))
        return submit(cluster, call, *arguments, **options)

    monkeypatch.setattr(Cluster, "submit", submitting)


def test_answers_are_the_same(
    here: State, cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, submitted = on(cluster, here, tmp_path), list[int]()
    at_portion(monkeypatch, submitted.append)
    monkeypatch.setattr(Request, "reads_large_archive", True)
    for name in ("stuck_sensors", "correlation", "first_mover", "aggregates"):
        submitted.clear()
        rows, notes = ask(there, name, OPTIONS.get(name, {}))
        assert len(submitted) > 1
        assert f"computed by [questions] cluster {cluster.address}: {len(submitted)} tasks" in notes
        assert_same(rows, ask(here, name, OPTIONS.get(name, {}))[0])
    until_sync(lambda: tasks(cluster) == 0)


async def test_viewer_asks_the_cluster(
    here: State,
    cluster: LocalCluster,
    expected: list[dict[str, Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    there, submitted = on(cluster, here, tmp_path), list[int]()
    at_portion(monkeypatch, submitted.append)
    arguments = {"since": at(3600).isoformat(), "until": at(4800).isoformat()}
    request = await request_of(there, questions()["stuck_sensors"], arguments, None, ALL)
    frame = await Questions(there.root, PATIENCE).answer(request, "FROM answer", ())
    assert submitted
    assert len(frame.columns[0]) == len(expected)


def test_tasks_go_to_all_workers(cluster: LocalCluster) -> None:
    executor = Cluster(options_in(cluster), PATIENCE)
    futures = [executor.submit(process_number, i) for i in range(20)]
    assert {future.result(PATIENCE) for future in futures} == {process.pid for process in cluster.workers}
    executor.shutdown()


def test_errors_of_tasks_name_the_worker(cluster: LocalCluster) -> None:
    """A question whose portion lacks memory then asks about fewer channels at a time."""
    name = rf"\(worker tls://\S+ of \[questions\] cluster {cluster.address}\)"
    with Cluster(options_in(cluster), PATIENCE) as executor:
        with pytest.raises(MemoryError, match=rf"Unable to allocate 1\.00 PiB .*{name}"):
            executor.submit(lack, 0).result(PATIENCE)
        with pytest.raises(RuntimeError, match=rf"KeyError: 'seven'\s+{name}"):
            executor.submit(fail, 0).result(PATIENCE)


def test_question_that_ends_while_it_connects_is_disconnected(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect, clients = Cluster._connect, list[Any]()

    def connect_too_late(executor: Cluster) -> Any:
        clients.append(connect(executor))
        executor.shutdown(wait=False, cancel_futures=True)  # as another thread does, which does not wait for this one
        return clients[0]

    monkeypatch.setattr(Cluster, "_connect", connect_too_late)
    with pytest.raises(OperationError, match="the question has ended"):
        Cluster(options_in(cluster), PATIENCE).submit(process_number, 0)
    assert [client.status for client in clients] == ["closed"]


def test_tasks_have_no_credentials(store: Peer) -> None:
    s3 = options_of(store)
    task = _packed(partial(print, Location.at(NAME, s3)))
    assert s3.endpoint.encode() in task
    for secret in (s3.access_key, s3.secret_key):
        assert secret.encode() not in task
        assert secret.encode() in pickle.dumps(Location.at(NAME, s3))


def test_worker_and_then_scheduler_that_end(
    here: State,
    expected: list[dict[str, Any]],
    credentials: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(portion, "_AT_A_TIME", 500)
    with local_cluster.running(tmp_path / "cluster", free_port(), 2, credentials) as cluster:
        there = on(cluster, here, tmp_path)
        scheduler, worker = cluster.scheduler, cluster.workers[0]
        assert scheduler is not None
        at_portion(monkeypatch, lambda n: worker.kill() if n == 3 else None)
        assert_same(ask(there, "stuck_sensors", {})[0], expected)
        assert worker.wait() == -signal.SIGKILL
        at_portion(monkeypatch, lambda n: scheduler.kill() if n == 3 else None)
        with pytest.raises(OperationError, match=rf"\[questions\] cluster {cluster.address}.*ask again"):
            ask(there, "stuck_sensors", {})
        assert scheduler.wait() == -signal.SIGKILL
        with pytest.raises(OperationError, match=rf"\[questions\] cluster {cluster.address} can't be reached"):
            ask(there, "stuck_sensors", {})


def test_scheduler_that_comes_back(tmp_path: Path) -> None:
    """A prompt asks many questions of the same executor."""
    port = free_port()
    with local_cluster.running(tmp_path / "cluster", port, 1) as cluster:
        executor = Cluster(options_in(cluster), PATIENCE)
        waiting = executor.submit(signal.pause)
        cluster.stop()
        with pytest.raises(
            OperationError, match=f"cluster {cluster.address}: the connection to the scheduler was lost"
        ):
            waiting.result(PATIENCE)
        cluster.schedule()
        cluster.work()
        assert executor.submit(process_number, 0).result(PATIENCE) == cluster.workers[0].pid
        executor.shutdown()


def test_task_that_ends_its_workers(tmp_path: Path) -> None:
    of_scheduler = {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "5s",
    }
    with (
        local_cluster.running(tmp_path / "cluster", free_port(), 1, of_scheduler=of_scheduler) as cluster,
        Cluster(options_in(cluster), PATIENCE) as executor,
    ):
        with pytest.raises(OperationError, match="1 worker ended while computing the same portion, perhaps"):
            executor.submit(end, 0).result(PATIENCE)
        assert cluster.workers[0].wait() == -signal.SIGKILL
        with pytest.raises(OperationError, match="waiting without any running workers: ask again"):
            executor.submit(process_number, 0).result(PATIENCE)


def test_worker_that_does_not_answer(
    here: State,
    expected: list[dict[str, Any]],
    credentials: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of_scheduler = {"DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "15s"}
    with local_cluster.running(tmp_path / "cluster", free_port(), 2, credentials, of_scheduler) as cluster:
        there = on(cluster, here, tmp_path)
        worker = cluster.workers[0]
        at_portion(monkeypatch, lambda n: worker.send_signal(signal.SIGSTOP) if n == 2 else None)
        assert_same(ask(there, "stuck_sensors", {})[0], expected)


def test_time_limit_and_ctrl_c_drop_the_tasks(here: State, cluster: LocalCluster, tmp_path: Path) -> None:
    there = on(cluster, here, tmp_path)
    with stopped(cluster):
        with pytest.raises(OperationError, match="took longer than 30 s"):
            ask(there, "stuck_sensors", {}, limits=replace(LIMITS, seconds=30))
        until_sync(lambda: tasks(cluster) == 0)
        code = (
            "import signal; import sys; from pathlib import Path\n"
            "from core.paths import State; from history.sql.sources import portion\n"
            "from tests.integration.history.questions.test_over_archive import ask\n"
            "signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever started the tests ignores\n"
            "portion._AT_A_TIME = 2000; ask(State(Path(sys.argv[1])), 'stuck_sensors', {})"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, there.root], cwd=CHECKOUT, stderr=subprocess.PIPE
        ) as command:
            until_sync(lambda: tasks(cluster) > 0, show=command.poll)
            command.send_signal(signal.SIGINT)
            _, text = command.communicate()
            assert b"KeyboardInterrupt" in text
        until_sync(lambda: tasks(cluster) == 0)


@contextmanager
def stopped(cluster: LocalCluster) -> Iterator[None]:
    """The workers do nothing in the block."""
    for worker in cluster.workers:
        worker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in cluster.workers:
            worker.send_signal(signal.SIGCONT)


def test_store_that_throttles_or_lacks_a_file(
    here: State, expected: list[dict[str, Any]], cluster: LocalCluster, store: Peer, tmp_path: Path
) -> None:
    certificate, key = (Path(store.command[store.command.index(option) + 1]) for option in ("--cert", "--key"))
    for times in (2, 1000):
        with throttling(store.port, certificate, key, "/samples/", times) as endpoint:
            there = on(cluster, here, tmp_path / str(times), endpoint)
            if times == 2:
                assert_same(ask(there, "stuck_sensors", {})[0], expected)
                continue
            of_worker = rf"\(worker tls://\S+ of \[questions\] cluster {cluster.address}\)"
            with pytest.raises(OperationError, match=rf"archive {NAME}: samples/.*503.*{of_worker}"):
                ask(there, "stuck_sensors", {})
    [file] = store.files.glob("plantlog/archive/samples/*/*/*.parquet")
    there = on(cluster, here, tmp_path)
    file.rename(file.with_suffix(".away"))
    try:
        with pytest.raises(
            OperationError, match=rf"archive {NAME}: samples/.* is missing, .*restore the file {of_worker}"
        ):
            ask(there, "stuck_sensors", {})
    finally:
        file.with_suffix(".away").rename(file)


def test_cluster_that_can_not_compute(
    here: State, expected: list[dict[str, Any]], credentials: dict[str, str], tmp_path: Path
) -> None:
    with local_cluster.running(tmp_path / "cluster", free_port(), 0, credentials) as cluster:
        there = on(cluster, here, tmp_path)
        name = rf"\[questions\] cluster {cluster.address}"

        def fails(text: str, state: State = there) -> None:
            with pytest.raises(OperationError, match=text):
                ask(state, "stuck_sensors", {})

        fails(f"{name} has no workers: start `dask worker")

        other = tmp_path / "checkout"
        for room in ("core", "history", "schema"):
            shutil.copytree(CHECKOUT / room, other / room, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(CHECKOUT / "pyproject.toml", other)
        kernel = Path("history", "sql", "kernels", "runs.py")
        with (other / kernel).open("a") as file:
            file.write("# another version\n")
        worker = cluster.work(other)
        shutil.copy(CHECKOUT / kernel, other / kernel)  # it is the code that counts with which a worker began
        fails(rf"another version of plantlog: found plantlog \S+, code \w+.*; legal: .*{build()} \(worker .*{name}")
        worker.kill()
        until_sync(lambda: workers(cluster) == 0)

        worker = cluster.work(other)
        for module in (other / "history").rglob("*.py"):
            module.write_text("an upgrade while the worker runs")
        assert_same(ask(there, "stuck_sensors", {})[0], expected)
        worker.kill()
        until_sync(lambda: workers(cluster) == 0)

        worker = cluster.work(environment={"AWS_SECRET_ACCESS_KEY": "another"})
        fails(rf"archive {NAME}: .*\(worker .*{name}")
        strangers = LocalCluster(tmp_path / "strangers", cluster.port)
        strangers.make_certificates()
        fails(f"{name} can't be reached", on(strangers, here, tmp_path / "strangers"))


def test_cluster_without_dask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(OperationError, match=r"cluster tls://a:1 needs distributed, .*-r requirements-analysis\.lock"):
        Cluster({"cluster": "tls://a:1"}, 1).submit(int)


def test_what_other_clients_of_dask_say_is_heard() -> None:
    log, record = logging.getLogger("distributed.client"), logging.makeLogRecord({})
    cluster = Cluster({"cluster": "no address"}, 1)
    with pytest.raises(OperationError, match="can't be reached"):
        cluster.submit(int)
    assert not log.filter(record)
    cluster.shutdown()
    assert log.filter(record)


def test_failed_connections_leave_nothing() -> None:
    """The viewer makes one for each question."""
    process, counts = psutil.Process(), set[tuple[int, int]]()
    for _ in range(4):
        with pytest.raises(OperationError, match="can't be reached"):
            Cluster({"cluster": "no address"}, 1).submit(int)
        counts.add((process.num_threads(), process.num_fds()))
    assert len(counts) == 1


def test_dask_is_not_imported_without_a_cluster(here: State) -> None:
    code = (
        "import sys; from pathlib import Path; from core.paths import State\n"
        "from tests.integration.history.questions.test_over_archive import ask\n"
        "ask(State(Path(sys.argv[1])), 'stuck_sensors', {}); sys.exit('distributed' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, here.root], cwd=CHECKOUT, check=True)
