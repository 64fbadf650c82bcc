"""Times at which the writer takes the next group, by a clock that the test sets."""

from __future__ import annotations

import pytest

from ingest.writer.writer import GroupPace


class Writing:
    """Batches of ``rows`` samples that come every ``every`` seconds, written as the pace says."""

    def __init__(self, rows: int, every: float, age: float = 0.0, write: float = 0.005) -> None:
        self.now = 1000.0
        self.pace = GroupPace(1.0, lambda: self.now)
        self._come = (rows, every, age, write)

    def run(self, seconds: float) -> tuple[float, float]:
        """Groups a second, and how long the oldest sample waited from its source time to the table."""
        rows, every, age, write = self._come
        end, arrives, groups, longest = self.now + seconds, self.now, 0, 0.0
        while self.now < end:
            first = arrives
            self.now = max(self.now, arrives)
            self.now += self.pace.wait()
            batches = 0
            while arrives <= self.now:
                arrives, batches = arrives + every, batches + 1
            self.pace.group_taken(rows * batches, more=False)
            self.now += write
            self.pace.group_written(write, age)
            groups, longest = groups + 1, max(longest, self.now - first + age)
        return groups / seconds, longest


def test_few_samples_are_written_at_once() -> None:
    groups, longest = Writing(rows=1, every=0.1).run(60)
    assert groups == pytest.approx(10, rel=0.02)
    assert longest < 0.05


def test_single_batch_is_written_without_waiting() -> None:
    writing = Writing(rows=20_000, every=10.0)
    writing.run(60)
    assert writing.pace.interval() > 0.3
    writing.now += 10.0
    assert writing.pace.wait() == 0.0


def test_many_samples_are_written_in_few_groups_in_time() -> None:
    groups, longest = Writing(rows=18, every=1 / 15).run(60)  # 270 samples a second
    assert groups < 5
    assert longest < 0.4


@pytest.mark.parametrize(("age", "write"), [(0.0, 0.06), (0.5, 0.06), (0.5, 0.15), (0.0, 0.3), (0.3, 0.2)])
def test_gathering_leaves_time_for_old_batches_and_for_writing(age: float, write: float) -> None:
    groups, longest = Writing(rows=1000, every=0.05, age=age, write=write).run(60)
    assert longest <= 0.9
    assert groups <= max(6.0, 1 / write)


def test_source_clock_years_behind_does_not_end_gathering() -> None:
    groups, _ = Writing(rows=1000, every=0.05, age=1e8).run(60)
    assert groups < 4


def test_rest_after_a_full_group_is_taken_at_once() -> None:
    writing = Writing(rows=1000, every=0.05)
    writing.run(10)
    writing.pace.group_taken(400_000, more=True)
    assert writing.pace.wait() == 0.0
    writing.pace.group_taken(400_000, more=False)
    assert writing.pace.wait() > 0.5


def test_slow_writes_are_forgotten_over_time() -> None:
    writing = Writing(rows=1000, every=0.05)
    writing.run(60)
    quick = writing.pace.interval()
    writing.pace.group_written(30.0, 0.0)
    assert writing.pace.interval() == 0.0
    writing.run(60)
    assert writing.pace.interval() == pytest.approx(quick, abs=0.1)
