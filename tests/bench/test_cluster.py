"""The benchmark of questions on a cluster: the workers share what one of them does alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.bench.cluster_costs import measure
from lab.bench.generated_archive import ArchivePlan

_PLAN = ArchivePlan(channels=36, few=36, days=1)


@pytest.mark.timeout(900)
def test_workers_share_the_portions(tmp_path: Path) -> None:
    _, costs = measure(tmp_path, _PLAN, [1, 2], ["setpoint_changes"], lambda line: None)
    assert [cost.asking.error for cost in costs] == ["", ""]
    alone, shared = costs
    assert alone.asking.rows == shared.asking.rows
    assert alone.asking.rows
    n = alone.workers[0].tasks
    assert n >= 3
    assert [worker.tasks < n for worker in shared.workers] == [True, True]
    assert sum(worker.tasks for worker in shared.workers) == n
    assert 0 < sum(worker.returned_mb for worker in shared.workers) < 0.1 * alone.workers[0].read_mb
