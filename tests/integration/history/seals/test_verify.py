"""Whatever is tampered with is named: day, channel, hour; seal, signature, chain."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from unittest.mock import patch

import pytest

from core.errors import DatabaseError, OperationError
from core.timestamps import begin
from history.reading.reader import connect
from history.seals.keys import key_path, rotate
from history.seals.report import Report, format_report
from ops.maintenance.packing import pack_days
from schema import queries
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant, minute, public_key

SECOND = "2026-03-10"


def findings(report: Report) -> list[str]:
    """All findings, in words."""
    return [f"{day.day} {finding.describe()}" for day in report.days for finding in day.findings]


UNEXPLAINED = "NOT explained by any record"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE plant.samples_raw SET value = value + 1e-14 WHERE channel_id = $1 AND time = $2",
            "at least 1 changed (120 sealed, 120 found)",
        ),
        (
            "UPDATE plant.samples_raw SET status = status | 1024 WHERE channel_id = $1 AND time = $2",
            "at least 1 changed (120 sealed, 120 found)",
        ),
        (
            "UPDATE plant.samples_raw SET time = time + INTERVAL '1 microsecond' WHERE channel_id = $1 AND time = $2",
            "at least 1 changed (120 sealed, 120 found)",
        ),
        (
            "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time = $2",
            "at least 1 missing, and others may have changed (120 sealed, 119 found)",
        ),
        (
            "INSERT INTO plant.samples_raw VALUES ($2::timestamptz + INTERVAL '1 ms', 40, $1, 0)",
            "at least 1 added, and others may have changed (120 sealed, 121 found)",
        ),
        (
            "WITH altered AS (UPDATE plant.samples_raw SET value = 9 WHERE channel_id = $1 AND time = $2)"
            " INSERT INTO plant.samples_raw VALUES ($2::timestamptz + INTERVAL '1 ms', 40, $1, 0)",
            "at least 1 added, and others may have changed (120 sealed, 121 found)",
        ),
    ],
)
async def test_tampered_sample_is_detected(plant: SealedPlant, statement: str, message: str, packed: bool) -> None:
    await plant.seal()
    await plant.owner.execute(statement, plant.ids["unit/pressure"], begin(DAY, 30) + timedelta(seconds=7))
    if packed:
        await plant.pack()
    report = await plant.verify()
    assert findings(report) == [f"{SECOND} unit/pressure, hour 06: {message}: {UNEXPLAINED}"]
    assert not report.ok
    assert [day.ok for day in report.days] == [True, False, True]
    assert not (await plant.verify(DAY + timedelta(days=1), ["unit/*"])).ok
    other = await plant.verify(DAY + timedelta(days=1), ["unit/flow"])
    assert other.ok
    assert other.days[0].samples == 240
    assert await plant.seal() == []


async def test_flipped_bit_of_a_packed_hour_is_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await pack_days(plant.owner, BEFORE)
    await plant.owner.execute(
        "UPDATE plant.samples_packed SET base = base + 1 WHERE channel_id = $1 AND hour = $2",
        plant.ids["unit/flow"],
        begin(DAY, 5),
    )
    assert findings(await plant.verify()) == [
        f"2026-03-09 unit/flow, hour 05: at least 1 changed (120 sealed, 120 found): {UNEXPLAINED}"
    ]


async def test_swapped_days_are_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.owner.execute(
        "WITH gone AS (DELETE FROM plant.samples_raw WHERE time < $1 RETURNING *)"
        " INSERT INTO plant.samples_raw SELECT time + CASE WHEN time < $2 THEN INTERVAL '1 day 1 us'"
        " ELSE INTERVAL '-1 day' END, value, channel_id, status FROM gone",
        begin(DAY, 48),
        begin(DAY, 24),
    )
    changed = f"at least 1 changed (120 sealed, 120 found): {UNEXPLAINED}"
    assert f"{SECOND} unit/flow, hour 05: {changed}" in findings(await plant.verify())


async def test_swapped_values_of_two_days_are_detected(plant: SealedPlant) -> None:
    await plant.owner.execute("UPDATE plant.samples_raw SET value = value + 1 WHERE time >= $1", begin(DAY, 24))
    await plant.seal()
    await plant.owner.execute(
        "UPDATE plant.samples_raw AS a SET value = b.value FROM plant.samples_raw AS b"
        " WHERE a.channel_id = b.channel_id AND b.time = a.time + CASE WHEN a.time < $2 THEN INTERVAL '1 day'"
        " ELSE INTERVAL '-1 day' END AND a.time < $1 AND b.time < $1",
        begin(DAY, 48),
        begin(DAY, 24),
    )
    report = await plant.verify()
    assert [day.ok for day in report.days] == [False, False, True]
    assert len(findings(report)) == 8


async def test_tampered_events_and_gaps_are_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.owner.execute("UPDATE plant.event SET text = 'valve closed' WHERE type = 'text'")
    await plant.owner.execute("DELETE FROM plant.gap")
    assert findings(await plant.verify()) == [
        f"2026-03-09 events, hour 05: at least 1 changed (1 sealed, 1 found): {UNEXPLAINED}",
        f"2026-03-09 gaps: 1 missing (1 sealed, 0 found): {UNEXPLAINED}",
    ]


async def test_retention_with_a_signed_receipt_explains_missing_samples(plant: SealedPlant) -> None:
    await plant.seal()
    number = plant.ids["unit/flow"]
    await plant.owner.execute(
        "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time < $2", number, begin(DAY, 24)
    )
    detail = {"from": begin(DAY).isoformat(), "to": begin(DAY, 24).isoformat(), "why": "age", "what": "raw",
              "channel_ids": f"{{[{number},{number + 1})}}"}  # fmt: skip
    await plant.event(await plant.owner.fetchval("SELECT now()"), "retention", "", json.dumps(detail))
    assert not (await plant.verify(DAY)).ok  # whoever can write to the database can add such an event
    await plant.retention(detail)
    report = await plant.verify()
    assert report.ok
    assert not report.days[0].strictly_ok
    assert len(findings(report)) == 2
    assert all("retention recorded at" in finding and "(age)" in finding for finding in findings(report))
    assert await plant.seal() == []
    await plant.owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 1, $2, 0)", begin(DAY, 5), number)
    assert not (await plant.verify(DAY)).ok


async def test_retention_before_receipts_is_explained_by_its_sealed_event(plant: SealedPlant) -> None:
    """Retention as an earlier version sealed and recorded it."""
    number = plant.ids["unit/flow"]
    detail = {"from": begin(DAY).isoformat(), "to": begin(DAY, 24).isoformat(), "why": "age", "what": "raw",
              "channel_ids": f"{{[{number},{number + 1})}}"}  # fmt: skip
    await plant.event(begin(DAY, 50), "retention", "", json.dumps(detail))
    await plant.seal()
    await plant.owner.execute(
        "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time < $2", number, begin(DAY, 24)
    )
    assert not (await plant.verify(DAY)).ok  # these seals say that receipts are signed
    await plant.tamper("DELETE FROM plant.seal_digest")
    await plant.tamper("DELETE FROM plant.day_seal")
    await plant.samples("unit/flow", minute(0, [float(i % 7) for i in range(120)], 5))
    with_marker = queries.load("evidence")["build_document"]
    unmarked = with_marker.replace("'configurations', r.listed", "'former', r.listed")
    with patch("history.seals.seal_writer.load", lambda name: {**queries.load(name), "build_document": unmarked}):
        await plant.seal(accept_chain=True)
    await plant.owner.execute(
        "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time < $2", number, begin(DAY, 24)
    )
    assert (await plant.verify(DAY)).ok
    await plant.owner.execute("UPDATE plant.event SET text = 'altered' WHERE type = 'retention'")
    assert not (await plant.verify(DAY)).ok


async def test_removed_seal_is_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper("DELETE FROM plant.day_seal WHERE serial = 2")
    assert (await plant.verify()).chain == [
        "the chain is cut before seal 3 (2026-03-11, revision 0): seal 2 is missing",
    ]


async def test_removed_last_seal_is_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper("DELETE FROM plant.day_seal WHERE serial = 3")
    cut = "the chain ends with seal 2, but this state folder knows seal 3: seals were removed"
    assert (await plant.verify()).chain == [cut]
    with pytest.raises(DatabaseError, match=cut):
        await plant.seal()
    with pytest.raises(DatabaseError, match="has digests of 2026-03-11 without a seal"):
        await plant.seal(accept_chain=True)


async def test_restored_database_continues_on_request(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper("DELETE FROM plant.day_seal WHERE serial = 3")
    await plant.tamper("DELETE FROM plant.seal_digest WHERE day = $1", DAY + timedelta(days=2))
    done = await plant.seal(accept_chain=True)
    assert [sealed_day.seal.serial for sealed_day in done] == [3]
    assert (await plant.verify()).ok


async def test_forged_signature_is_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper(
        "UPDATE plant.day_seal SET signature = set_byte(signature, 5, get_byte(signature, 5) # 1) WHERE serial = 2"
    )
    key = await plant.owner.fetchval("SELECT encode(fingerprint, 'hex') FROM plant.seal_key")
    assert (await plant.verify()).chain == [
        f"seal 2 (2026-03-10, revision 0): the signature does not match key {key[:16]} and the content of the seal"
    ]


@pytest.mark.parametrize(
    "change", ["samples = samples + 1", "sealed_at = sealed_at + INTERVAL '1 us'", "differs = 'x'", "gaps = 7"]
)
async def test_changed_seal_field_is_detected(plant: SealedPlant, change: str) -> None:
    await plant.seal()
    await plant.tamper(f"UPDATE plant.day_seal SET {change} WHERE serial = 2")
    chain = (await plant.verify()).chain
    assert chain[0] == ("the chain is broken at seal 3 (2026-03-11, revision 0): it does not follow seal 2 as it is")
    assert chain[1].startswith("seal 2 (2026-03-10, revision 0): the signature does not match key ")


async def test_seals_of_swapped_days_are_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper("UPDATE plant.day_seal SET day = '2026-04-01' WHERE serial = 1")
    await plant.tamper("UPDATE plant.day_seal SET day = '2026-03-09' WHERE serial = 2")
    chain = (await plant.verify()).chain
    assert any(fault.startswith("seal 1 (2026-04-01, revision 0): the signature does not match") for fault in chain)
    assert any(fault.startswith("seal 2 (2026-03-09, revision 0): the signature does not match") for fault in chain)


async def test_digests_altered_with_the_samples_are_detected(plant: SealedPlant) -> None:
    """Whoever alters samples and digests alike does not have the root."""
    await plant.seal()
    await plant.tamper(
        "UPDATE plant.seal_digest SET digests = set_byte(digests, 0, get_byte(digests, 0) # 1)"
        " WHERE day = $1 AND channel_id = $2",
        DAY,
        plant.ids["unit/flow"],
    )
    report = await plant.verify(DAY)
    assert report.days[0].problems == ["2026-03-09: the digests kept for revision 0 do not make up its signed root"]
    assert report.days[0].notes == [
        "what is stored makes up the signed root all the same: only the digests were altered"
    ]
    assert findings(report) == [
        f"2026-03-09 unit/flow, hour 05: at least 1 changed (120 sealed, 120 found): {UNEXPLAINED}"
    ]


async def test_inconsistent_digests_are_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.tamper("UPDATE plant.seal_digest SET digests = substr(digests, 1, 40) WHERE day = $1", DAY)
    problems = (await plant.verify(DAY)).days[0].problems
    assert problems[0].endswith("counts and digests of 24 hours do not fit together")


async def test_changed_channel_names_are_detected(plant: SealedPlant) -> None:
    await plant.seal()
    await plant.owner.execute("UPDATE plant.channel SET name = 'unit/other' WHERE name = 'unit/flow'")
    assert (await plant.verify(DAY)).days[0].notes == []  # on that day it was called so
    await plant.owner.execute("UPDATE plant.channel_version SET name = 'unit/other' WHERE name = 'unit/flow'")
    report = await plant.verify(DAY)
    assert report.ok  # the seal was perhaps made before meanings were kept by time
    number = plant.ids["unit/flow"]
    assert report.days[0].notes == [f"channel {number} (unit/flow) was sealed with name 'unit/flow', now 'unit/other'"]
    await plant.owner.execute(
        "WITH first AS (UPDATE plant.channel_version SET valid_to = $1"
        " WHERE name = 'unit/other' AND valid_from < $1 RETURNING *)"
        " INSERT INTO plant.channel_version (channel_id, valid_from, valid_to, name, source_id, address, kind, unit,"
        " deadband, description, attributes, retention, version) SELECT channel_id, $1, $2, name, source_id, address,"
        " kind, unit, deadband, description, attributes, retention, 99 FROM first",
        begin(DAY, 12),
        begin(DAY, 24),
    )
    assert (await plant.verify(DAY)).days[0].notes == [
        f"channel {number} (unit/flow) was sealed with 1 definition, now 2; name 'unit/flow', now 'unit/other'"
    ]
    await plant.tamper("UPDATE plant.seal_document SET content = replace(content, 'unit/flow', 'unit/flux')")
    assert (await plant.verify(DAY)).days[0].problems == [
        "2026-03-09: the document with the names of its channels was altered"
    ]


async def test_keys_follow_each_other(plant: SealedPlant, tmp_path: Path) -> None:
    """Whoever has one of the keys can trust all of them."""
    await plant.seal(BEFORE - timedelta(days=2))
    pems = [public_key(plant, tmp_path / "first.pem")]
    connection = await connect(plant.database.owner_dsn, "test")
    await rotate(connection, plant.state)
    await plant.seal(BEFORE - timedelta(days=1))
    await rotate(connection, plant.state)
    connection.terminate()
    pems.append(public_key(plant, tmp_path / "third.pem"))
    await plant.seal()
    assert len({row["key"] for row in await plant.owner.fetch("SELECT key FROM plant.day_seal")}) == 3
    for pem in (None, *pems):
        assert (await plant.verify(key=pem)).ok
    await plant.tamper(
        "UPDATE plant.seal_key SET former_signature = own_signature"
        " WHERE made_at = (SELECT max(made_at) FROM plant.seal_key)"
    )
    [problem] = (await plant.verify(key=pems[0])).chain
    assert problem.startswith("seal 3 (2026-03-11, revision 0): signed by key ")
    assert problem.endswith("which no trusted key vouches for")
    assert (await plant.verify(key=pems[1])).ok  # it vouches for the chain behind it


async def test_foreign_key_is_not_trusted(plant: SealedPlant, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from history.seals.keys import public_pem

    await plant.seal()
    foreign = tmp_path / "foreign.pem"
    foreign.write_text(public_pem(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()))
    report = await plant.verify(key=foreign)
    assert report.wrong_key.startswith("WRONG KEY: signed by key ")
    assert (report.ok, report.chain, [day.ok for day in report.days]) == (False, [], [True] * 3)
    foreign.write_text("nothing")
    with pytest.raises(OperationError, match="not a public key in PEM format"):
        await plant.verify(key=foreign)


async def test_seals_of_another_key_are_found_without_secrets_too(plant: SealedPlant, tmp_path: Path) -> None:
    await plant.seal()
    pem = public_key(plant, tmp_path / "key.pem")
    key_path(plant.state).unlink()
    report = await plant.verify()
    assert report.ok
    assert not report.anchored
    assert "give --key" in "\n".join(format_report(report, 40))
    assert (await plant.verify(key=pem)).anchored


async def test_unsealed_day_is_reported(plant: SealedPlant) -> None:
    with pytest.raises(OperationError, match="2026-03-09 is not sealed"):
        await plant.verify(DAY)
    await plant.seal()
    with pytest.raises(OperationError, match="--channel: no channel matches unit/x"):
        await plant.verify(DAY, ["unit/x"])
