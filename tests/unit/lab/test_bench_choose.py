"""`plantlog bench choose`: the data, the comparison of answers, weights and ranks, and where contestants are."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from core.errors import ConfigError, OperationError
from lab.bench.choose.adapters.influxdb import InfluxDb
from lab.bench.choose.adapters.installed import folders_of
from lab.bench.choose.adapters.server_process import Lines, csv_columns
from lab.bench.choose.answers import AS_SENT, SCORED, compare, share
from lab.bench.choose.contestants import ALL, contestants
from lab.bench.choose.matrix import CRITERIA, WEIGHTS, normalise, rank, read_weights
from lab.bench.choose.plan import Plan, plan
from lab.bench.choose.results import combine
from lab.bench.choose.steps import Measurement, measure
from lab.bench.data import BAD, SECOND, START, Columns, History, Minutes, Plant, Raw, batches, joined
from lab.bench.termination import until_terminated

MINUTE = 60 * SECOND


def same(one: Columns, other: Columns) -> bool:
    pairs = ((one.channel, other.channel), (one.time, other.time), (one.status, other.status))
    return all(np.array_equal(a, b) for a, b in pairs) and one.value.tobytes() == other.value.tobytes()


def test_benchmark_stream_does_not_depend_on_batch_size() -> None:
    whole = Plant(12, START).samples(500)
    plant = Plant(12, START)
    assert same(whole, joined([plant.samples(n) for n in (1, 99, 400)]))
    stream = batches(Plant(12, START), 7)
    assert same(whole[:700], joined([next(stream) for _ in range(100)]))
    assert not same(whole, Plant(12, START, seed=6).samples(500))


def test_benchmark_series_resemble_those_of_plants() -> None:
    data = Plant(8, START).samples(5000)
    assert len(data) == 40_000
    assert np.array_equal(np.isnan(data.value), data.status == BAD)
    assert 0 < np.count_nonzero(data.status == BAD) < 400
    jittered = data.channel % 4 == 3
    assert np.count_nonzero(data.time[jittered] % 1000) > 9000  # below the millisecond
    assert not (data.time[~jittered] % SECOND).any()
    slow = data.value[data.channel == 4]
    assert len(np.unique(slow[~np.isnan(slow)])) < 50
    keys = np.unique(np.stack([data.channel, data.time]), axis=1)
    assert keys.shape[1] == len(data)
    with pytest.raises(ValueError, match="at least 4 channels"):
        Plant(3, START)


def test_expected_answers_equal_a_plain_computation() -> None:
    data = Plant(8, START).samples(300)
    history = History(data)
    first, last = START + MINUTE, START + 3 * MINUTE
    mine = [
        (t, v, s)
        for c, t, v, s in zip(data.channel, data.time, data.value, data.status, strict=True)
        if c == 3 and first <= t < last
    ]
    raw = history.raw(3, first, last)
    assert raw.time.tolist() == [t for t, _, _ in mine]
    assert raw.status.tolist() == [s for _, _, s in mine]
    minutes = history.by_minute(3, first, last)
    assert minutes.minute.tolist() == [first, first + MINUTE]
    expected = [v for t, v, s in mine if t < first + MINUTE and s != BAD]
    assert minutes.mean[0] == pytest.approx(sum(expected) / len(expected), rel=1e-14)


def pair(**changed: object) -> tuple[list[tuple[Raw, Raw]], list[tuple[Minutes, Minutes]]]:
    """A right answer, and what came; ``changed`` replaces columns of the latter."""
    history = History(Plant(4, START).samples(3600))
    raw, minutes = history.raw(3, START, START + 3600 * SECOND), history.by_minute(3, START, START + 3600 * SECOND)
    given = {"time": raw.time, "value": raw.value, "status": raw.status, **changed}
    came = Raw(given["time"], given["value"], given["status"])  # type: ignore[arg-type]
    return [(raw, came)], [(minutes, minutes)]


def test_complete_data_pass_the_comparison() -> None:
    answers = compare(*pair())
    assert set(answers.values()) == {AS_SENT}
    assert share({**answers, "extremes": AS_SENT, "a sample sent twice": AS_SENT}) == 1
    assert share(answers) == len(answers) / len(SCORED)


def test_rounded_lost_and_duplicated_samples_are_detected() -> None:
    raws, minutes = pair()
    right = raws[0][0]
    wrong = compare(*pair(time=right.time // 1000 * 1000))
    assert wrong.pop("times").startswith("off by up to 99")
    assert set(wrong.values()) == {AS_SENT}
    usable = right.value.copy()
    usable[10] = np.nextafter(usable[10], 1000)
    assert compare(*pair(value=usable))["values"].startswith("1 of ")
    assert compare(*pair(value=np.nan_to_num(right.value)))["NaN"].endswith("are others")
    assert compare(*pair(status=np.zeros_like(right.status)))["statuses"].endswith("of 3600 are others")
    fewer = {name: getattr(right, name)[5:] for name in ("time", "value", "status")}
    assert compare(*pair(**fewer))["samples"] == "5 of 3600 missing"
    twice = {name: np.repeat(getattr(right, name), 2) for name in ("time", "value", "status")}
    assert compare(*pair(**twice))["samples"] == "3600 too many"
    none = {name: getattr(right, name)[:0] for name in ("time", "value", "status")}
    assert set(compare(*pair(**none)).values()) == {"nothing came back"}
    means = minutes[0][0]
    off = Minutes(means.minute, means.mean * (1 + 1e-9))
    assert compare(raws, [(means, off)])["minute means"] == "off by up to 1e-09 of the mean"
    shifted = Minutes(means.minute + MINUTE, means.mean)
    assert "or other ones" in compare(raws, [(means, shifted)])["minute means"]


def test_line_protocol_of_columns() -> None:
    columns = Columns(
        np.array([1, 2], np.int32), np.array([7, 8]), np.array([0.1, np.nan]), np.array([0, BAD], np.uint32)
    )
    lines = Lines(["a", "b"], ["bar", "%"])
    assert lines.encode(columns) == (
        b"samples,channel=a,unit=bar value=0.1,status=0i 7\nsamples,channel=b,unit=% status=2147811328i 8\n"
    )
    assert lines.encode(columns, signed=True).endswith(b"status=-2147155968i 8\n")
    assert lines.encode(columns[1:]) == b"samples,channel=b,unit=% status=2147811328i 8\n"


def test_numbers_round_trip_through_line_protocol() -> None:
    random = np.random.default_rng(1)
    bits = random.integers(0, 2**63, 20_000, np.int64).view(np.float64)
    value = bits[np.isfinite(bits)]
    n = len(value)
    columns = Columns(np.ones(n, np.int32), np.arange(n), value, np.zeros(n, np.uint32))
    lines = Lines(["a"], ["bar"]).encode(columns).splitlines()
    read = np.array([float(line.split(b"value=")[1].split(b",")[0]) for line in lines])
    assert read.tobytes() == value.tobytes()
    import pyarrow as pa

    assert csv_columns(b"", {"time": pa.int64()})["time"].dtype == np.int64


@pytest.mark.parametrize(("better", "expected"), [("more", [0.5, 1.0, 0.0]), ("less", [1.0, 0.5, 0.0])])
def test_scores_are_relative_to_the_best(better: Literal["more", "less"], expected: list[float]) -> None:
    assert list(normalise({"a": 5.0, "b": 10.0, "c": None}, better).values()) == expected


def test_decision_matrix_is_weighted_and_ranked() -> None:
    figures: dict[str, dict[str, float | None]] = {
        "slow": dict.fromkeys(CRITERIA, 1.0),
        "fast": {**dict.fromkeys(CRITERIA, 1.0), "sustained": 4.0},
        "gone": dict.fromkeys(CRITERIA, None),
    }
    weights = read_weights(WEIGHTS)
    rows = rank(figures, weights)
    assert [row.name for row in rows] == ["fast", "slow", "gone"]
    assert [row.score for row in rows] == pytest.approx([1.0, 1 - 0.75 * weights["sustained"], 0.0])
    assert normalise({"a": None}, "more") == {"a": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "weights: found no such table"),
        ("[weights", "the file: found"),
        ("[weights]\nspeed = 1", "weights.speed: found no such criterion; legal: ingest_batch"),
        ("[weights]\nsustained = 1", "weights.answers: found nothing; legal: a number from 0 to 1"),
        ("[weights]\nsustained = -1", "weights.sustained: found -1; legal: a number from 0 to 1"),
        ("[weights]\nsustained = true", "weights.sustained: found True"),
        ("[weights]\nsustained = nan", "weights.sustained: found nan"),
        (
            "[weights]\n" + "\n".join(f"{name} = 0.2" for name in CRITERIA),
            "weights: found a sum of 1.2; legal: a sum of 1",
        ),
    ],
)
def test_wrong_weights_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "weights.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_weights(file)
    assert f"{file}: {message}" in str(error.value)


def test_missing_weights_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"weights\.toml: the file: .*No such file"):
        read_weights(tmp_path / "weights.toml")


def test_contestants_are_found_by_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLANTLOG_CHOOSE", raising=False)
    assert folders_of(None, tuple(ALL)) == {}
    file = tmp_path / "where.toml"
    file.write_text(f'[influxdb]\nfolder = "{tmp_path}"\n')
    assert folders_of(file, tuple(ALL)) == {"influxdb": tmp_path}
    monkeypatch.setenv("PLANTLOG_CHOOSE", str(file))
    assert folders_of(None, tuple(ALL)) == {"influxdb": tmp_path}
    file.write_text('[influx]\nfolder = "/"\n[questdb]\nfolder = "/nowhere"\n[duckdb]\n')
    with pytest.raises(ConfigError) as error:
        folders_of(None, tuple(ALL))
    assert "influx: found an unknown contestant; legal: plantlog-rows" in str(error.value)
    assert "questdb.folder: found '/nowhere'; legal: an existing folder" in str(error.value)
    assert "duckdb.folder: found None" in str(error.value)


def test_contestant_without_programs_is_skipped_with_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    names = ("influxdb", "victoriametrics", "questdb", "iotdb")
    (tmp_path / "where.toml").write_text("\n".join(f'[{name}]\nfolder = "{tmp_path}"' for name in names))
    found = contestants(tmp_path / "where.toml", ",".join(names))
    assert list(found) == list(names)
    assert all((contestant.available() or "").endswith("is not installed") for contestant in found.values())
    with pytest.raises(OperationError, match="--only: unknown contestants oracle; legal: plantlog-rows"):
        contestants(None, "oracle")


def test_benchmark_plan_fits_into_its_time() -> None:
    planned = plan(20, 10, 2, None)
    each = 8 * planned.cell_seconds + planned.hold_seconds + planned.query_seconds
    assert 20 < each < 45  # of 60: the history, start and end, and rates that do not hold come on top
    assert planned.interval == planned.history_seconds // 2 * SECOND
    assert plan(20, 10, 2, 1.5).hold_seconds == 5400


class Broken(InfluxDb):
    """It does not start, after some of it has."""

    stopped = False

    async def start(self, folder: Path) -> None:
        raise OSError("no such program")

    async def stop(self) -> None:
        await super().stop()
        self.stopped = True


async def test_contestant_that_does_not_start_is_ended_and_recorded() -> None:
    contestant = Broken(None)
    ((measured,),) = await measure([contestant], Plan(8, 120, 0.1, 0.1, 0.1, 500, 1), lambda line: None)
    assert measured.failed == "OSError: no such program"
    assert contestant.stopped
    figures = {measured.name: combine([measured]).figures()}
    assert rank(figures, read_weights(WEIGHTS))[0].score == 0


class Endless(Broken):
    """It starts for ever, and somebody ends the bench meanwhile."""

    async def start(self, folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.Event().wait()


async def test_sigterm_ends_the_running_contestant() -> None:
    contestant = Endless(None)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(OperationError, match="terminated before it was finished"):
            await until_terminated(measure([contestant], Plan(8, 120, 0.1, 0.1, 0.1, 500, 1), lambda line: None))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert contestant.stopped


def test_repeated_runs_become_one_row() -> None:
    first = Measurement("a", "s", by_size={1: 10.0}, sustained=5.0, sustained_p99=0.1, raw_ms=[1.0, 2.0])
    second = Measurement("a", "s", by_size={1: 20.0, 2: 7.0}, sustained=4.0, sustained_p99=0.3, raw_ms=[3.0])
    first.answers, second.answers = {"times": AS_SENT}, {"times": "off by up to 1 µs"}
    first.tried, second.failed = {6.0: float("inf"), 5.0: 0.1}, "OSError: gone"
    result = combine([first, second])
    assert result.by_size == {1: 15.0, 2: 7.0}
    assert (result.sustained, result.sustained_p99, result.queries, result.raw_p50) == (4.0, 0.3, 3, 2.0)
    assert result.answers == {"times": "off by up to 1 µs"}
    assert result.tried == [(6.0, None), (5.0, 0.1)]
    assert result.failed == "OSError: gone"
    assert combine([Measurement("b", "s")]).figures() == dict.fromkeys(CRITERIA, None)
