"""Digests of seals, without a database: two implementations agree, and Parquet keeps every bit."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from core.paths import CHECKOUT
from core.samples import Samples
from core.timestamps import begin, microseconds
from history import standalone
from history.archive.manifest import Proof
from history.archive.parquet_writers import ENCODINGS, SAMPLES, SampleFile, best_encoding
from history.archive_days.verify import problems_of_chain
from history.reading.hours import hour_digests
from history.seals.receipts import encode_mask
from history.seals.report import DayReport, Finding, Report, format_report
from history.seals.seal_store import chain_problems
from history.standalone import (
    AmendedRows,
    Amendment,
    ChannelDigests,
    HourDifference,
    HourDigests,
    Key,
    NamesInFile,
    Revision,
    Seal,
    UnverifiableError,
    amendments,
    canonical_bytes,
    deposited_problem,
    gaps_digest,
    misnamed,
    row_bytes,
    sample_hours,
    seal_problems,
    tagged_hash,
    trusted_keys,
    wrong_key,
)

DAY = date(2026, 3, 9)
_SPECIAL = (0x7FF8000000000000, 0x7FF8000000000ABC, 0xFFF8DEADBEEF0001, 0x7FF0000000000001, 1 << 63, 0, 1)
_bits = st.one_of(st.sampled_from(_SPECIAL), st.integers(0, 2**64 - 1))
_sample = st.tuples(st.integers(0, 86_400_000_000 - 1), _bits, st.integers(0, 2**32 - 1))
_samples = st.lists(_sample, min_size=1, max_size=60, unique_by=lambda one: one[0]).map(sorted)


def series(samples: list[tuple[int, int, int]], channel: int = 7) -> Samples:
    """Samples as columns; times from the day's first moment."""
    time, bits, status = zip(*samples, strict=True)
    first = microseconds(begin(DAY))
    value = np.array(bits, np.uint64).view(np.float64)
    channels = np.full(len(value), channel, np.int32)
    return Samples(channels, np.array(time, np.int64) + first, value, np.array(status, np.uint32))


@given(samples=_samples)
def test_canonical_encoding_equals_the_specification_byte_by_byte(samples: list[tuple[int, int, int]]) -> None:
    """Against a third, plain implementation."""
    first = microseconds(begin(DAY))
    expected = {}
    for hour in sorted({time // 3_600_000_000 for time, _, _ in samples}):
        rows = [row for row in samples if row[0] // 3_600_000_000 == hour]
        canonical = b"".join(
            (time + first).to_bytes(8, "big") + value.to_bytes(8, "big") + status.to_bytes(4, "big")
            for time, value, status in rows
        )
        expected[hour] = (len(rows), tagged_hash("hour", canonical))
    one = series(samples)
    assert hour_digests(one, DAY) == expected
    columns = (one.time.astype("<i8"), one.bits.astype("<u8"), one.status.astype("<u4"))
    assert canonical_bytes(*(column.tobytes() for column in columns)) == b"".join(
        (time + first).to_bytes(8, "big") + value.to_bytes(8, "big") + status.to_bytes(4, "big")
        for time, value, status in samples
    )


@given(channels=st.lists(_samples, min_size=1, max_size=4), encoding=st.sampled_from(sorted(ENCODINGS)))
def test_parquet_round_trips_to_the_bit(channels: list[list[tuple[int, int, int]]], encoding: str) -> None:
    """pyarrow's dictionaries too: NaNs with other payloads, and -0, stay what they are."""
    sink = pa.BufferOutputStream()
    file = SampleFile(sink, encoding)
    for number, samples in enumerate(channels):
        file.write(series(samples, number), f"unit/{number}", "bar")
    file.close({})
    read = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert read.schema_arrow.names == SAMPLES.names
    values = read.read()["value"].to_numpy().view(np.uint64).tolist()
    assert values == [value for samples in channels for _, value, _ in samples]
    called: NamesInFile = {}
    found: dict[int, dict[int, tuple[int, bytes]]] = {}
    for channel, hour, n, digest in sample_hours(read, DAY.isoformat(), called, {}, {}):
        found.setdefault(channel, {})[hour] = (n, digest)
    assert found == {number: hour_digests(series(samples), DAY) for number, samples in enumerate(channels)}
    assert set(called) == {(number, f"unit/{number}", "bar", 0) for number in range(len(channels))}


@pytest.mark.parametrize("second", ["unit/b", "unit/a"])
def test_name_between_two_equal_ones_is_compared(second: str) -> None:
    """Names of rows are those of their time, also where a channel has the same one at both ends of the day."""
    first = microseconds(begin(DAY))
    sink = pa.BufferOutputStream()
    file = SampleFile(sink, "dictionary")
    for name, since in (("unit/a", 0), (second, 1200), ("unit/a", 2400)):
        file.write(series([(since * 1_000_000 + k, k, 0) for k in range(5)], 7), name, "bar")
    file.close({})
    labels = {
        7: [(0, "unit/a", "bar"), (first + 1200 * 10**6, "unit/b", "bar"), (first + 2400 * 10**6, "unit/a", "bar")]
    }
    names: NamesInFile = {}
    read = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert [row[:3] for row in sample_hours(read, DAY.isoformat(), names, {}, labels)] == [(7, 0, 15)]
    assert list(misnamed(names, labels)) == (
        []
        if second == "unit/b"
        else ["channel 7 is called unit/a in bar in rows of the file, and unit/b in bar in the seal"]
    )


def test_parquet_dictionary_keeps_different_nans() -> None:
    """More than a dictionary's hash could keep apart by luck."""
    payloads = [(i, 0x7FF8000000000000 + i, 0) for i in range(20_000)]
    sink = pa.BufferOutputStream()
    file = SampleFile(sink, "dictionary")
    file.write(series(payloads), "x", "")
    file.close()
    values = pq.read_table(pa.BufferReader(sink.getvalue()))["value"].to_numpy().view(np.uint64)
    assert values.tolist() == [value for _, value, _ in payloads]


def test_parquet_encoding_depends_on_the_samples() -> None:
    random = np.random.default_rng(1)
    seconds = np.arange(3600) * 1_000_000 + microseconds(begin(DAY))
    channel, good = np.ones(3600, np.int32), np.zeros(3600, np.uint32)
    noise = Samples(channel, seconds, random.normal(50, 10, 3600), good)
    steps = Samples(channel, seconds, np.rint(random.normal(5000, 25, 3600)) / 100, good)
    assert best_encoding([noise]) == "byte_stream_split"
    assert best_encoding([steps]) == "dictionary"
    assert best_encoding([]) in ENCODINGS


@given(n=st.lists(st.integers(0, 3), min_size=24, max_size=24))
def test_hour_digests_round_trip(n: list[int]) -> None:
    found = {hour: (count, tagged_hash("hour", bytes([hour]))) for hour, count in enumerate(n) if count}
    hours = HourDigests.of_hours(found)
    assert HourDigests.unpacked(list(hours.n), b"".join(hours.digests)) == hours
    assert hours.by_hour() == found
    others = {hours.digest(tag, number) for tag in ("channel", "events") for number in (0, 1)}
    assert len(others) == 4


@pytest.mark.parametrize(("n", "joined"), [([1] * 23, bytes(23 * 32)), ([1] * 24, bytes(32)), ([0] * 24, b"x")])
def test_invalid_hour_digests_are_refused(n: list[int], joined: bytes) -> None:
    with pytest.raises(UnverifiableError):
        HourDigests.unpacked(n, joined)


def test_canonical_encoding_of_fields_is_unambiguous() -> None:
    """A text's end is not the next one's beginning, and nothing is not an empty text."""
    assert row_bytes("ab", "c", widths="ss") != row_bytes("a", "bc", widths="ss")
    assert row_bytes("", None, widths="ss") != row_bytes(None, "", widths="ss")


class _Signing:
    """A private key."""

    def __init__(self) -> None:
        self._private = Ed25519PrivateKey.generate()
        self.public = self._private.public_key().public_bytes_raw().hex()

    def sign(self, statement: bytes) -> str:
        """In hex."""
        return self._private.sign(statement).hex()

    def seal(self, serial: int, previous: str, **other: str) -> Seal:
        """A signed one."""
        fingerprint = Key(self.public, 0).fingerprint
        unsigned = Seal(serial, f"2026-03-{serial:02}", 0, "first", "00", previous, 1, 2, 3, 4, 5, 6, "", fingerprint)
        values = {name: getattr(unsigned, name) for name in Seal.__slots__} | other
        unsigned = Seal(**values)
        return Seal(**(values | {"signature": self.sign(unsigned.statement())}))


def test_seals_form_a_chain() -> None:
    key = _Signing()
    chain = [key.seal(1, "0" * 64)]
    for serial in range(2, 5):
        chain.append(key.seal(serial, chain[-1].hash()))
    keys = [Key(key.public, 0)]
    assert chain_problems(chain, None) == []
    assert list(seal_problems(chain, keys, [key.public])) == []
    assert chain_problems(chain[1:], None) == [
        "the chain is cut before seal 2 (2026-03-02, revision 0): seal 1 is missing"
    ]
    assert chain_problems([chain[0], chain[3]], None) == [
        "the chain is cut before seal 4 (2026-03-04, revision 0): seals 2 to 3 are missing"
    ]
    other = [*chain[:2], key.seal(3, chain[0].hash()), chain[3]]
    assert [problem.partition(":")[0] for problem in chain_problems(other, None)] == [
        "the chain is broken at seal 3 (2026-03-03, revision 0)",
        "the chain is broken at seal 4 (2026-03-04, revision 0)",
    ]


def test_chain_of_archived_days_has_all_their_seals() -> None:
    """An old day that was imported is sealed behind newer ones."""
    key = _Signing()
    chain = [key.seal(1, "0" * 64)]
    for serial, day in ((2, "2026-03-02"), (3, "2026-03-03"), (4, "2020-01-01"), (5, "2026-03-04")):
        chain.append(key.seal(serial, chain[-1].hash(), day=day))

    def problems(*seals: Seal) -> list[str]:
        return problems_of_chain([Proof((seal,), (Key(key.public, 0),), ()) for seal in seals], [key.public])

    third, fifth = "seal 3 (2026-03-03, revision 0)", "seal 5 (2026-03-04, revision 0)"
    assert problems(*reversed(chain)) == problems(*chain[1:]) == []
    assert problems(chain[0], *chain[2:]) == [f"the chain is cut before {third}: seal 2 is missing"]
    assert problems(*chain[:3], chain[4]) == [f"the chain is cut before {fifth}: seal 4 is missing"]
    other = key.seal(2, chain[0].hash(), root="11")
    assert problems(chain[0], other, *chain[2:]) == [
        f"the chain is broken at {third}: it does not follow seal 2 as it is"
    ]
    other = key.seal(5, chain[3].hash(), day="2026-03-05")
    assert problems(*chain, other) == [
        "the chain forks at seal 5 (2026-03-05, revision 0): seal 5 of 2026-03-04 has the same number"
    ]


def test_a_report_lists_what_nothing_explains() -> None:
    added, changed = HourDifference("boiler/level", 7, 3, 10, 12), HourDifference("events", None, 4, 1, 1)
    day = DayReport(DAY, 0, 12, ["digests were altered"], [Finding(added, "late data"), Finding(changed, "")])
    report = Report("", 1, True, ["the chain is cut"], [day])
    assert report.unexplained == [
        *("the chain is cut", "digests were altered"),
        "2026-03-09: events, hour 04: at least 1 changed (1 sealed, 1 found): NOT explained by any record",
    ]
    assert not report.ok
    assert Report("", 1, True, [], [DayReport(DAY, 0, 12, [], [Finding(added, "late data")])]).ok


def test_wrong_key_is_no_difference_of_rows() -> None:
    key, other = _Signing(), _Signing()
    chain = [key.seal(1, "0" * 64)]
    chain.append(key.seal(2, chain[0].hash()))
    keys = [Key(key.public, 0)]
    assert [wrong_key(chain, keys, anchors) for anchors in (None, [key.public], [other.public, key.public])] == [""] * 3
    wrong = wrong_key(chain, keys, [other.public])
    assert wrong.startswith(
        f"WRONG KEY: signed by key {keys[0].fingerprint[:16]}; key {Key(other.public, 0).fingerprint[:16]}"
    )
    day = DayReport(DAY, 0, 12, seal=chain[1])
    report = Report("", 2, True, wrong_key=wrong, days=[day])
    assert format_report(report, 0) == [
        "2 seals", f"  {wrong}", "2026-03-09 (revision 0): as these seals say; 12 samples read",
        f"  sealed at 1970-01-01T00:00:00Z, root {chain[1].root}",
    ]  # fmt: skip
    assert not report.ok
    assert report.as_json()["wrong_key"] == wrong


def test_deposited_hash_is_that_of_a_seal_or_of_the_one_before() -> None:
    key = _Signing()
    chain = [key.seal(1, "0" * 64)]
    chain += [key.seal(2, chain[0].hash())]
    chain += [key.seal(3, chain[1].hash())]
    assert deposited_problem(chain, chain[0].hash().upper()) == ""
    assert deposited_problem(chain[2:], chain[1].hash()) == ""
    assert "no seal here has the deposited hash" in deposited_problem(chain[2:], chain[0].hash())
    for text in ("", "abc", "g" * 64, "0" * 65):
        with pytest.raises(UnverifiableError, match="legal: the 64 hexadecimal digits"):
            deposited_problem(chain, text)


def test_unsigned_key_rotation_is_refused() -> None:
    """A succession needs both signatures."""
    old, new = _Signing(), _Signing()
    first = Key(old.public, 1)
    claim = Key(new.public, 2, first.fingerprint)
    honest = Key(new.public, 2, first.fingerprint, new.sign(claim.statement()), old.sign(claim.statement()))
    forged = Key(new.public, 2, first.fingerprint, new.sign(claim.statement()), new.sign(claim.statement()))
    assert trusted_keys([first, honest], [old.public]) == {first.fingerprint, honest.fingerprint}
    assert trusted_keys([first, honest], [new.public]) == {first.fingerprint, honest.fingerprint}
    assert trusted_keys([first, forged], [old.public]) == {first.fingerprint}


def test_verifier_needs_only_pyarrow_and_cryptography() -> None:
    """It imports nothing but the standard library, pyarrow and cryptography."""
    tree = ast.parse((CHECKOUT / "history" / "standalone.py").read_text())
    names = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    others = {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert others == {"pyarrow", "cryptography"}


def test_verifier_without_its_libraries_says_what_to_install() -> None:
    command = [sys.executable, "-I", "-S", standalone.__file__, "day.parquet"]  # -S: only the standard library
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2, "1 is a file that is not as sealed"
    assert run.stderr == "No module named 'pyarrow': run python3 -m pip install pyarrow cryptography\n"


def _day(rows: Sequence[bytes], before: Sequence[bytes], added: Sequence[bool]) -> tuple[list[Amendment], list[str]]:
    """Amendments of a day's second revision, for an hour with rows, and an equal hour of events and gaps."""
    hours, events = (
        [HourDigests.of_hours({5: (len(some), tagged_hash(tag, *some))} if some else {}) for some in (before, rows)]
        for tag in ("hour", "event hour")
    )
    digests = [ChannelDigests(1, i, one, one.digest("channel", 1)) for i, one in enumerate(hours)]
    events = [
        HourDigests.of_hours({5: (len(some), tagged_hash("event hour", *some))} if some else {})
        for some in (before, rows)
    ]
    former = [(1, None, i, i + 10, "stopped", "", False) for i, _ in enumerate(before)]
    gaps = [(1, None, i, i + 20, "stopped", "", False) for i, _ in enumerate(before)]
    parts = [Revision(b"", one, gaps_digest(some)) for one, some in zip(events, (former, gaps), strict=True)]
    hour = {"hour": 5, "before": len(before), "after": len(rows), "added": encode_mask(added)}
    rows_of_gaps = [{"gap": list(row[:3]), "was": list(row)} for row in former]
    differs = {"channels": [{"id": 1, "name": "x", **hour}], "events": [hour],
               "gaps": {"before": len(former), "after": len(gaps), "rows": rows_of_gaps}}  # fmt: skip
    content = AmendedRows({(1, 5): b"".join(rows)}, {5: list(rows)}, list(gaps))
    return amendments(["", json.dumps(differs)], parts, digests, content)


def test_amendment_is_proven_by_the_rows_before() -> None:
    before = [bytes([i]) * 20 for i in range(20)]
    rows = [*before[:7], b"x" * 20, *before[7:], b"y" * 20]
    added = [row not in before for row in rows]
    found, problems = _day(rows, before, added)
    assert problems == []
    assert all(amendment.proven for amendment in found)
    assert [one.what for one in found[:2]] == ["x, hour 05: 2 samples added", "events, hour 05: 2 events added"]
    altered = [b"z" * 20, *rows[1:]]
    for some, mask in (
        (altered, added),
        (rows, [not one for one in added]),
        (rows, [False] * 22),
        (rows[1:], added[1:]),
    ):
        _, problems = _day(some, before, mask)
        assert [problem.rpartition(": without")[0] for problem in problems] == [
            "revision 1: x, hour 05",
            "revision 1: events, hour 05",
        ]


def test_altered_gap_has_no_proof() -> None:
    former, now = (1, None, 0, 10, "stopped", "", False), (1, None, 0, 20, "stopped", "", False)
    none = HourDigests((0,) * 24, ())
    parts = [Revision(b"", none, gaps_digest([row])) for row in (former, now)]
    for was in (list(now), None):
        changes = {"before": 1, "after": 1, "rows": [{"gap": list(former[:3]), "was": was}]}
        differs = ["", json.dumps({"channels": [], "gaps": changes})]
        _, [problem] = amendments(differs, parts, [], AmendedRows(gaps=[now]))
        assert problem.startswith("revision 1: gaps: without what is said")


def test_amendment_of_an_earlier_version_is_not_proven() -> None:
    hours = HourDigests.of_hours({5: (2, tagged_hash("hour", b"a" * 40))})
    digests = [ChannelDigests(1, revision, hours, hours.digest("channel", 1)) for revision in range(2)]
    parts = [Revision(b"", HourDigests((0,) * 24, ()), b"")] * 2
    changes = {"channels": [{"id": 1, "name": "x", "hour": 5, "before": 1, "after": 2}]}
    found, problems = amendments(["", json.dumps(changes)], parts, digests, AmendedRows({(1, 5): b"a" * 40}))
    assert (problems, [(amendment.what, amendment.proven) for amendment in found]) == (
        [],
        [("x, hour 05: at least 1 added, and others may have changed, by a version that kept no proof", False)],
    )
    assert amendments(["", "{"], parts, digests, AmendedRows())[1]
