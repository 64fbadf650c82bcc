"""Costs of a question on clusters of several sizes: what each worker does, and what does not shrink with their number.

Scheduler, workers and the asking process are processes of this machine. Their CPU is known whatever else runs; their
time is not that of machines of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from core.config import snapshot
from core.config.model import Plant
from core.paths import State
from history.sql.sources.cluster import build
from lab.bench import local_cluster
from lab.bench.generated_archive import ArchivePlan, existing_plan, make, place_of, state_of
from lab.bench.local_cluster import LocalCluster
from lab.bench.question_costs import QuestionCost, Span, ask, spans
from lab.bench.server import private
from lab.bench.termination import run
from ops.ports import free_ports
from schema.question_files import questions

NAMES = ("setpoint_changes", "first_mover", "aggregates")
_MB = 1e6
ProgressCallback = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class WorkerCost:
    """Work of one worker for a question."""

    tasks: int
    cpu_seconds: float
    read_mb: float  # from the archive
    returned_mb: float


@dataclass(frozen=True, slots=True)
class ClusterCost:
    """One question on a cluster."""

    workers: list[WorkerCost]
    scheduler_cpu_seconds: float
    asking: QuestionCost  # of the process that asks: it plans, and takes the last step


def measure(
    folder: Path, plan: ArchivePlan, sizes: Sequence[int], names: Sequence[str], progress: ProgressCallback
) -> tuple[ArchivePlan, list[ClusterCost]]:
    """Ask the archive in a folder, which is generated if the folder is empty; what it has, and the costs.

    ``sizes``: numbers of workers.
    """
    kept = existing_plan(folder)
    place_of(folder).mkdir(parents=True, exist_ok=True)
    costs = []
    with private(folder) as database:
        if kept is None:
            run(make(database.owner_dsn, folder, plan, progress))
        plan, state = kept or plan, state_of(folder)
        for size in sizes:
            with local_cluster.running(folder / "cluster", free_ports(1), size) as cluster:
                options = Plant(name="bench", sources=(), questions=cluster.options)
                snapshot.save(state.root, folder / "plant.toml", {}, options)
                for name in names:
                    costs.append(_ask(state, cluster, name, spans(plan)["day"]))
                    progress(f"{name} was asked of {size} workers: {costs[-1].asking.seconds:.1f} s")
    return plan, costs


def _ask(state: State, cluster: LocalCluster, name: str, span: Span) -> ClusterCost:
    assert cluster.scheduler is not None
    scheduler = psutil.Process(cluster.scheduler.pid)
    with cluster.client() as client:
        client.run(build)  # reads the code once
        before, of_scheduler = _counters(client), sum(scheduler.cpu_times()[:2])
        cost = run(ask(state, questions()[name], span))
        scheduler_seconds = sum(scheduler.cpu_times()[:2]) - of_scheduler
        workers = [_difference(before[address], after) for address, after in sorted(_counters(client).items())]
    return ClusterCost(workers, scheduler_seconds, cost)


def _counters(client: object) -> dict[str, WorkerCost]:
    counters: dict[str, WorkerCost] = client.run(_of_worker)  # type: ignore[attr-defined]
    return counters


def _of_worker(dask_worker: object) -> WorkerCost:
    """Counters of the worker that runs this."""
    process, worker = psutil.Process(), dask_worker
    executed: int = worker.state.executed_count  # type: ignore[attr-defined]
    returned: int = worker.transfer_outgoing_bytes_total  # type: ignore[attr-defined]
    return WorkerCost(executed, sum(process.cpu_times()[:2]), process.io_counters().read_chars / _MB, returned / _MB)


def _difference(before: WorkerCost, after: WorkerCost) -> WorkerCost:
    return WorkerCost(
        after.tasks - before.tasks,
        after.cpu_seconds - before.cpu_seconds,
        after.read_mb - before.read_mb,
        after.returned_mb - before.returned_mb,
    )
