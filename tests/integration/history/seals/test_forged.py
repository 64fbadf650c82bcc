"""Whoever owns the database, and has no key, gets nothing altered explained or signed, whatever he forges beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import pytest

from core.timestamps import begin, microseconds
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant
from tests.sample_tables import HOUR_US, bits

AT = begin(DAY, 5) + timedelta(seconds=7)


async def forged_records(plant: SealedPlant, rows: Sequence[tuple[str, datetime]] = (("unit/flow", AT),)) -> None:
    """All records that could account for a difference: events, batches, and receipts, which have no signature."""
    number = plant.ids["unit/flow"]
    span = {"from": begin(DAY).isoformat(), "to": begin(DAY, 24).isoformat(), "why": "a wrong scale", "samples": 1}
    now = await plant.owner.fetchval("SELECT now()")
    await plant.event(now, "deleted", "a wrong scale", json.dumps({**span, "channels": [number]}))
    ids = f"{{[0,{number + 100})}}"
    for what in ("raw", "event"):
        detail = {**span, "channel_ids": ids, "what": what, "action": "rows"}
        await plant.event(now, "retention", what, json.dumps(detail))
        await plant.receipt("retention", json.dumps(detail).encode())
    for kind in ("samples", "events", "gaps"):
        await plant.batch(kind, 1000, begin(DAY), begin(DAY, 24))
    await plant.late_samples(rows)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE plant.samples_raw SET value = 9 WHERE channel_id = $1 AND time = $2",
        "UPDATE plant.samples_raw SET status = 1 WHERE channel_id = $1 AND time = $2",
        "UPDATE plant.samples_raw SET time = time + INTERVAL '1 ms' WHERE channel_id = $1 AND time = $2",
        "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time = $2",
        # One sample for another: the count is the same, and a row is new
        "WITH gone AS (DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time = $2::timestamptz - INTERVAL '1 s')"
        " INSERT INTO plant.samples_raw SELECT $2::timestamptz + INTERVAL '1 ms', 9, $1, 0",
        # ... and one more, as late data make it
        "WITH altered AS (UPDATE plant.samples_raw SET value = 9 WHERE channel_id = $1 AND time = $2)"
        " INSERT INTO plant.samples_raw SELECT $2::timestamptz + INTERVAL '1 ms', 9, $1, 0",
    ],
)
async def test_altered_sample_is_neither_explained_nor_signed(plant: SealedPlant, statement: str, packed: bool) -> None:
    await plant.seal()
    await plant.owner.execute(statement, plant.ids["unit/flow"], AT)
    await forged_records(plant, [("unit/flow", AT), ("unit/flow", AT + timedelta(milliseconds=1))])
    if packed:
        await plant.pack()
    for _ in range(2):
        report = await plant.verify(DAY)
        assert [
            (finding.difference.what, finding.difference.hour, finding.explained) for finding in report.days[0].findings
        ] == [("unit/flow", 5, "")]
        assert not report.ok
        assert [sealed_day for sealed_day in await plant.seal() if sealed_day.seal.day == DAY.isoformat()] == []


async def test_added_sample_without_a_receipt_is_not_explained(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.samples("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0)])
    await forged_records(plant, [])
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []


async def test_added_sample_with_a_forged_receipt_is_listed_for_ever(plant: SealedPlant) -> None:
    """An owner of the database can add samples. Sealed ones stay, provably."""
    await plant.seal()
    at = AT + timedelta(milliseconds=500)
    await plant.samples("unit/flow", [(microseconds(at) - microseconds(begin(DAY)), bits(1.0), 0)])
    await forged_records(plant, [("unit/flow", at)])
    await plant.seal()
    [day] = (await plant.verify(DAY)).days
    assert [amendment.describe() for amendment in day.amended] == ["revision 1: unit/flow, hour 05: 1 sample added"]


async def test_sample_altered_while_late_data_come_is_not_signed(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.late("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0), (6 * HOUR_US + 500_000, bits(1.0), 0)])
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 9 WHERE time = $1", AT)
    lines: list[str] = []
    [amended] = await plant.seal(progress=lines.append)
    assert lines[0] == "2026-03-09: 1 channel-hour unexplained: see `plantlog evidence verify 2026-03-09`"
    assert [channel["hour"] for channel in json.loads(amended.differs)["channels"]] == [6]
    assert [
        finding.describe() for finding in (await plant.verify(DAY)).days[0].findings if finding.difference.hour == 5
    ] == [
        "unit/pressure, hour 05: at least 1 changed (120 sealed, 120 found): NOT explained by any record",
        "unit/flow, hour 05: at least 1 added, and others may have changed (120 sealed, 121 found): "
        "NOT explained by any record; without late data: 1 sample, at least 1 changed",
    ]
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 0 WHERE time = $1 AND channel_id = $2", AT,
                              plant.ids["unit/flow"])  # fmt: skip
    [amended] = await plant.seal()  # its receipt waited
    assert [channel["hour"] for channel in json.loads(amended.differs)["channels"]] == [5]


async def test_sample_altered_after_an_amendment_is_not_signed(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.late("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0)])
    await plant.seal()
    late = begin(DAY, 5) + timedelta(milliseconds=500)
    await plant.owner.execute("UPDATE plant.samples_raw SET value = 9 WHERE time = $1", late)
    await forged_records(plant, [("unit/flow", late)])
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE plant.event SET text = 'valve closed' WHERE type = 'text'",
        "UPDATE plant.event SET time = time + INTERVAL '1 s' WHERE type = 'text'",
        "DELETE FROM plant.event WHERE type = 'text'",
        "WITH gone AS (DELETE FROM plant.event WHERE type = 'text' RETURNING *)"
        " INSERT INTO plant.event SELECT time, id + 1, type, source_id, channel_id, status, 'valve closed', detail"
        " FROM gone",
    ],
)
async def test_altered_event_is_neither_explained_nor_signed(plant: SealedPlant, statement: str) -> None:
    await plant.seal()
    rows = await plant.owner.fetch("SELECT time, id FROM plant.event WHERE type = 'text'")
    await plant.owner.execute(statement)
    rows += await plant.owner.fetch("SELECT time, id FROM plant.event WHERE type = 'text'")
    await forged_records(plant)
    for row in rows:
        await plant.owner.execute(
            "SELECT plant.receipt_of_events(ARRAY[$1::timestamptz], ARRAY[$2::bigint])", row["time"], row["id"]
        )
    if not statement.startswith("DELETE"):  # retention may drop events of an hour, but only with a signed receipt
        assert [finding.explained for finding in (await plant.verify(DAY)).days[0].findings] == [""]
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []


async def test_event_altered_while_a_late_one_comes_is_not_hidden_by_it(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.late_event(begin(DAY, 5), "text", "said late")
    await plant.owner.execute("UPDATE plant.event SET text = 'valve closed' WHERE text <> 'said late'")
    assert [finding.describe() for finding in (await plant.verify(DAY)).days[0].findings] == [
        "events, hour 05: at least 1 added, and others may have changed (1 sealed, 2 found): "
        "NOT explained by any record; without late data: 1 event, at least 1 changed"
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE plant.gap SET to_time = from_time",
        "UPDATE plant.gap SET to_time = to_time - INTERVAL '30 minutes'",
        "UPDATE plant.gap SET from_time = from_time + INTERVAL '30 minutes'",
        "UPDATE plant.gap SET backfilled_at = now()",
        "UPDATE plant.gap SET reason = 'stopped', revision = revision + 1",
        "DELETE FROM plant.gap",
        "WITH gone AS (DELETE FROM plant.gap RETURNING *)"
        " INSERT INTO plant.gap (source_id, from_time, to_time, reason) SELECT source_id, from_time, from_time, reason"
        " FROM gone",
        "INSERT INTO plant.gap (source_id, from_time, to_time, reason)"
        " SELECT source_id, to_time + INTERVAL '1 h', to_time + INTERVAL '2 h', reason FROM plant.gap",
    ],
)
async def test_altered_gap_is_neither_explained_nor_signed(plant: SealedPlant, statement: str) -> None:
    await plant.seal()
    await plant.owner.execute(statement)
    await forged_records(plant)
    assert [
        finding.explained for finding in (await plant.verify(DAY)).days[0].findings if finding.difference.what == "gaps"
    ] == [""]
    assert [sealed_day for sealed_day in await plant.seal() if "gaps" in json.loads(sealed_day.differs)] == []
    assert not (await plant.verify(DAY)).ok


async def test_gap_altered_beside_a_signed_report_is_not_signed(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.gap("UPDATE plant.gap SET to_time = to_time - INTERVAL '1 minute'")
    assert (await plant.verify(DAY)).ok
    await plant.owner.execute("UPDATE plant.gap SET to_time = from_time")
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []
    await plant.owner.execute("UPDATE plant.gap SET to_time = $1", begin(DAY, 8) - timedelta(minutes=1))
    assert len(await plant.seal()) == 1


async def test_altered_meaning_is_not_signed(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.owner.execute("UPDATE plant.channel_version SET unit = 'mbar' WHERE name = 'unit/flow'")
    await plant.late("unit/flow", [(5 * HOUR_US + 500_000, bits(1.0), 0)])
    await plant.late("unit/new", [(5 * HOUR_US + 500_000, bits(1.0), 0)])
    [amended] = await plant.seal()
    assert json.loads(amended.differs)["document"] == ["channel unit/new"]
    [day] = (await plant.verify(DAY)).days
    assert len(day.notes) == 1
    assert "was sealed with unit 'bar', now 'mbar'" in day.notes[0]
    assert not day.strictly_ok
    content = await plant.owner.fetchval(
        "SELECT d.content FROM plant.seal_document AS d JOIN plant.day_seal AS s ON s.document = d.digest"
        " WHERE s.day = $1 AND s.revision = 1", DAY)  # fmt: skip
    assert {channel["name"]: channel["unit"] for channel in json.loads(content)["channels"]} == dict.fromkeys(
        plant.ids, "bar"
    )


async def test_altered_configuration_is_not_as_sealed(database_plant: SealedPlant) -> None:
    plant = database_plant
    await plant.owner.execute(
        "INSERT INTO plant.config_revision (installation, revision, applied_at, account, host, command, added, moved,"
        " changed, retired, file, files) VALUES (1, 1, $1, 'eva', 'host', 'up', 0, 0, 0, 0, 'plant.toml', '{}')",
        begin(DAY, 3),
    )
    await plant.owner.execute("INSERT INTO plant.config_file VALUES ($1, $2)", sha256(b"x").hexdigest(), b"x")
    files = json.dumps({"plant.toml": sha256(b"x").hexdigest()})
    await plant.tamper("UPDATE plant.config_revision SET files = $1", files)
    await plant.seal()
    report = await plant.verify()
    assert report.ok
    assert all(day.strictly_ok for day in report.days)
    await plant.tamper(
        "INSERT INTO plant.config_revision (installation, revision, applied_at, account, host, command, added, moved,"
        " changed, retired, file, files) VALUES (1, 2, $1, 'eva', 'host', 'up', 0, 0, 0, 0, 'plant.toml', '{}')",
        begin(DAY, 4),
    )
    [day] = (await plant.verify(DAY)).days
    assert day.notes == ["configuration 2 of installation 1 was added after the seal"]
    await plant.tamper("DELETE FROM plant.config_revision WHERE revision = 2")
    await plant.tamper("ALTER TABLE plant.config_file DROP CONSTRAINT config_file_check")
    await plant.tamper("UPDATE plant.config_file SET content = 'y'")
    assert (await plant.verify()).chain == [
        "plant.config_file lacks plant.toml of revision 1 of installation 1, or has another content"
    ]
    await plant.tamper("UPDATE plant.config_file SET content = 'x'")
    for statement in ("UPDATE plant.config_revision SET account = 'otto'", "DELETE FROM plant.config_revision"):
        await plant.tamper(statement)
        report = await plant.verify(BEFORE.date() - timedelta(days=1))
        assert report.days[0].problems == ["2026-03-11: configuration 1 of installation 1 is not as sealed"]


async def test_signature_of_another_key_explains_nothing(plant: SealedPlant) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from core.sealing_key import receipt_statement

    await plant.seal()
    await plant.owner.execute("UPDATE plant.gap SET to_time = from_time")
    key = Ed25519PrivateKey.generate()
    for row in await plant.owner.fetch("SELECT id, content FROM plant.receipt WHERE kind = 'gap'"):
        signature: Any = key.sign(receipt_statement("gap", row["content"], row["id"]))
        await plant.owner.execute("UPDATE plant.receipt SET signature = $1 WHERE id = $2", signature, row["id"])
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []


async def _replay(plant: SealedPlant, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert receipts again as they were."""
    for row in rows:
        await plant.owner.execute(
            "INSERT INTO plant.receipt (id, day, kind, content, signer, signature) OVERRIDING SYSTEM VALUE"
            " VALUES ($1, $2, $3, $4, $5, $6)",
            *(row[name] for name in ("id", "day", "kind", "content", "signer", "signature")),
        )


_LATER = "UPDATE plant.gap SET to_time = to_time + INTERVAL '1 minute'"
_BACK = "UPDATE plant.gap SET to_time = to_time - INTERVAL '1 minute'"


async def test_signed_receipt_of_a_gap_counts_once(plant: SealedPlant) -> None:
    """A gap that was reported anew and then again as before: the first report, kept, would alter the gap."""
    await plant.seal()
    await plant.gap(_LATER)
    signed_rows = await plant.owner.fetch("SELECT * FROM plant.receipt WHERE kind = 'gap'")
    await plant.gap(_BACK)
    [amended] = await plant.seal()
    assert json.loads(amended.differs)["receipts"] == [signed_rows[0]["id"], signed_rows[0]["id"] + 1]
    report = await plant.verify(DAY)
    assert report.ok
    assert report.days[0].strictly_ok
    assert [amendment.describe() for amendment in report.days[0].amended] == [
        "revision 1: gaps were changed, and changed back"
    ]
    await plant.owner.execute(_LATER)
    await plant.owner.execute("DELETE FROM plant.receipt WHERE signature IS NULL")
    await _replay(plant, signed_rows)
    assert not (await plant.verify(DAY)).ok
    assert await plant.seal() == []
    await _replay(plant, [{**row, "id": row["id"] + 100} for row in signed_rows])
    assert not (await plant.verify(DAY)).ok, "it is signed with its number"
    assert await plant.seal() == []
    await plant.owner.execute(_BACK)
    assert (await plant.verify(DAY)).ok


async def test_altered_seal_is_not_amended(plant: SealedPlant) -> None:
    """Else the numbers of receipts that it used up could be taken out while the next one is signed."""
    await plant.seal()
    await plant.gap(_LATER)
    used = await plant.owner.fetch("SELECT * FROM plant.receipt WHERE kind = 'gap'")
    await plant.gap(_BACK)
    await plant.seal()
    await plant.late("unit/flow", [(29 * HOUR_US + 500_000, bits(1.0), 0)])
    await plant.seal()  # of the next day: the end of the chain, which the state folder knows
    differs = await plant.owner.fetchval("SELECT differs FROM plant.day_seal WHERE day = $1 AND revision = 1", DAY)
    statement = "UPDATE plant.day_seal SET differs = $1 WHERE day = $2 AND revision = 1"
    await plant.tamper(statement, json.dumps({"channels": []}), DAY)
    await plant.owner.execute(_LATER)
    await _replay(plant, used)
    lines: list[str] = []
    assert await plant.seal(progress=lines.append) == []
    assert lines == [
        "2026-03-09: not amended, because its seals were altered: see `plantlog evidence verify 2026-03-09`"
    ]
    await plant.tamper(statement, differs, DAY)
    assert not (await plant.verify(DAY)).ok
