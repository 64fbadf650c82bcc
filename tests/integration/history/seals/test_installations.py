"""Each installation of a database seals what is its own, in a chain with keys of its own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from core.errors import OperationError
from core.timestamps import begin
from history.exports.export import export
from history.seals.keys import key_path, load_signer, signer
from history.seals.report import Report, format_report
from history.seals.seal_store import seals
from history.seals.verify import verify
from history.standalone import open_file, verify_file
from ops.registration.installation import installation_id
from schema.queries import load
from tests.command import plantlog
from tests.database import Database
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant, minute, public_key
from tests.sample_tables import HOUR_US, bits

SECOND = DAY + timedelta(days=1)
_GAP = "INSERT INTO plant.gap (source_id, from_time, to_time, reason) VALUES ($1, $2, $3, 'disconnected')"


async def fill(plant: SealedPlant, day: int) -> None:
    """A day of two channels with an event and a gap."""
    for name in ("pressure", "flow"):
        await plant.samples(f"{plant.name}/{name}", minute(day, [40.0 + i / 100 for i in range(60)]))
    await plant.event(begin(DAY, 24 * day + 5), "text", f"opened by {plant.name}")
    await plant.owner.execute(_GAP, plant.source, begin(DAY, 24 * day + 7), begin(DAY, 24 * day + 8))


@pytest.fixture
async def north(database: Database, tmp_path: Path) -> AsyncIterator[SealedPlant]:
    """The first installation, with a sealed day that it was alone in."""
    async with SealedPlant(database, tmp_path / "north", "north") as made:
        await fill(made, 0)
        await made.seal(BEFORE - timedelta(days=2))
        yield made


@pytest.fixture
async def south(database: Database, tmp_path: Path, north: SealedPlant) -> AsyncIterator[SealedPlant]:
    """The second one. Both have samples on the day after."""
    async with SealedPlant(database, tmp_path / "south", "south") as made:
        await fill(north, 1)
        await fill(made, 1)
        yield made


async def verified(plant: SealedPlant, installation: str | None = "all", key: Path | None = None) -> list[Report]:
    return await verify(plant.database.reader_dsn, plant.state, key, None, [], installation)


async def test_each_installation_seals_its_own(north: SealedPlant, south: SealedPlant) -> None:
    """With its own key, whether or not the other one runs."""
    [theirs] = [sealed_day.seal for sealed_day in await south.seal(BEFORE - timedelta(days=1))]
    assert (theirs.day, theirs.serial, theirs.installation) == (SECOND.isoformat(), 1, 2)
    assert (theirs.samples, theirs.channels, theirs.events, theirs.gaps) == (120, 2, 1, 1)
    nobodys = "INSERT INTO plant.event (time, id, type, text) VALUES ($1, 900, 'overload', '')"
    await north.owner.execute(nobodys, begin(SECOND, 3))
    await north.owner.execute("INSERT INTO plant.samples_raw VALUES ($1, 1, 999, 0)", begin(SECOND, 1))
    [ours] = [sealed_day.seal for sealed_day in await north.seal(BEFORE - timedelta(days=1))]
    assert (ours.day, ours.serial, ours.installation) == (SECOND.isoformat(), 2, 1)
    assert (ours.samples, ours.channels, ours.events, ours.gaps) == (121, 3, 2, 1)
    first = (await seals(north.owner, 1))[0]
    assert (first.installation, ours.previous, theirs.previous) == (0, first.hash(), "0" * 64)
    assert "installation" not in first.statement().decode()
    assert ours.statement().endswith(b"\ninstallation: 1\n")
    keys = [load_signer(plant.state) for plant in (north, south)]
    assert [seal.key for seal in (ours, theirs)] == [key.fingerprint for key in keys if key is not None]
    assert ours.key != theirs.key
    documents = await north.owner.fetch(
        "SELECT d.content FROM plant.day_seal AS s JOIN plant.seal_document AS d ON d.digest = s.document"
        " WHERE s.day = $1 ORDER BY s.installation",
        SECOND,
    )
    found = [json.loads(row["content"]) for row in documents]
    assert [document["installation"] for document in found] == [
        {"number": 1, "plant": "north"},
        {"number": 2, "plant": "south"},
    ]
    assert [{channel["name"] for channel in document["channels"]} for document in found] == [
        {"north/pressure", "north/flow"},
        {"south/pressure", "south/flow"},
    ]
    reports = await verified(south)
    assert all(report.ok and not day.findings and not day.unsealed for report in reports for day in report.days)
    assert [(len(report.days), report.anchored) for report in reports] == [(2, False), (1, True)]
    output = format_report(reports[1], 0)
    assert output[0] == f"installation {installation_id(south.state)} of plant south: 1 seal; chain and signatures hold"


async def test_samples_of_an_unsealed_installation_are_reported(north: SealedPlant, south: SealedPlant) -> None:
    await north.seal(BEFORE - timedelta(days=1))
    [report] = await verified(north, None)
    assert report.ok
    label = f"installation {installation_id(south.state)} of plant south"
    assert [day.unsealed for day in report.days] == [[], [f"2 channels of {label}"]]
    assert f"  NOT sealed by anyone: samples of 2 channels of {label}" in format_report(report, 0)
    assert format_report(report, 0)[-1] == f"not verified: {label}; --installation all verifies every chain"
    assert not any(one.not_verified for one in await verified(north))
    strict = await plantlog(north.state.root, "evidence", "verify", "--installation", "all", "--strict", "--json")
    assert strict.code == 1, strict.err
    first, second = json.loads(strict.out)
    assert (len(first["days"]), second["days"], second["installation"]) == (2, [], label)
    await south.seal(BEFORE - timedelta(days=1))
    assert (await plantlog(north.state.root, "evidence", "verify", "--installation", "all", "--strict")).code == 0


async def test_late_data_amend_the_seal_that_covers_them(north: SealedPlant, south: SealedPlant) -> None:
    """A day that the first installation sealed for all is amended by it, also with the samples of others."""
    for plant in (north, south):
        await plant.seal(BEFORE - timedelta(days=1))
    await south.late("south/flow", [(3 * HOUR_US, bits(1.0), 0), (27 * HOUR_US, bits(1.0), 0)])
    amended = [
        (sealed_day.seal.day, sealed_day.seal.installation, sealed_day.seal.revision)
        for sealed_day in await south.seal(BEFORE)
    ]
    assert amended[0] == (SECOND.isoformat(), 2, 1)
    [report] = await verified(north, None)
    assert [(f.difference.channel_id, f.difference.hour, bool(f.explained)) for f in report.days[0].findings] == [
        (south.ids["south/flow"], 3, True)
    ]
    assert not report.days[1].findings
    amended = [
        (sealed_day.seal.day, sealed_day.seal.installation, sealed_day.seal.revision)
        for sealed_day in await north.seal(BEFORE)
    ]
    assert amended[0] == (DAY.isoformat(), 0, 1)
    assert not [row for row in amended if row[0] == SECOND.isoformat()]
    assert all(report.ok and not day.findings for report in await verified(north) for day in report.days)


async def test_a_change_is_found_in_the_chain_that_covers_it(north: SealedPlant, south: SealedPlant) -> None:
    for plant in (north, south):
        await plant.seal(BEFORE - timedelta(days=1))
    await north.owner.execute(
        "UPDATE plant.samples_raw SET value = 7 WHERE channel_id = $1 AND time = $2",
        south.ids["south/flow"],
        begin(SECOND, 5),
    )
    assert [report.ok for report in await verified(north)] == [True, False]
    [report] = await verified(north, "south")
    assert [finding.difference.what for day in report.days for finding in day.findings] == ["south/flow"]


async def test_a_channel_moved_to_another_installation_is_missed_by_none(
    north: SealedPlant, south: SealedPlant
) -> None:
    """Its sealed samples are still compared; later ones are in the seals of the other, or reported as unsealed."""
    for plant in (north, south):
        await plant.seal(BEFORE - timedelta(days=1))
    await north.owner.execute(
        "UPDATE plant.source SET installation_id = $1 WHERE id = $2", installation_id(south.state), north.source
    )
    await north.owner.execute(
        "DELETE FROM plant.samples_raw WHERE channel_id = $1 AND time >= $2", north.ids["north/flow"], begin(SECOND)
    )
    [report] = await verified(north, None)
    assert not report.ok
    assert ("north/flow", "missing") in {(f.difference.what, f.difference.kind) for f in report.days[1].findings}


async def test_export_of_an_installation(north: SealedPlant, south: SealedPlant, tmp_path: Path) -> None:
    for plant in (north, south):
        await plant.seal(BEFORE - timedelta(days=1))
    reader = north.database.reader_dsn
    pem = public_key(south, tmp_path / "south.pem")
    for plant, number in ((north, 1), (south, 2)):
        path = tmp_path / f"{plant.name}.parquet"
        done = await export(reader, plant.state, SECOND, path, [], False)
        assert ([rows for _, rows in done.files], done.differs) == ([120, 1, 1], 0)
        file, bundle = open_file(str(path))
        file.close()
        assert [seal.installation for seal in bundle.seals] == [number]
        assert json.loads(bundle.encode())["specification"] == 2
        for table, _ in done.files:
            assert verify_file(str(table), None).ok
    checked = await plantlog(north.state.root, "evidence", "verify", str(tmp_path / "south.parquet"), "--key", str(pem))
    assert "contains only installation 2 (plant south) of the database" in checked.out
    assert checked.code == 0
    unknown = await plantlog(north.state.root, "evidence", "verify", str(tmp_path / "south.parquet"))
    assert "every row is as these seals say\nWRONG KEY: signed by key " in unknown.out
    assert (unknown.code, "NOT as sealed" in unknown.out) == (1, False)
    whole = tmp_path / "whole.parquet"
    await export(reader, south.state, DAY, whole, [], False)
    file, bundle = open_file(str(whole))
    file.close()
    assert (json.loads(bundle.encode())["specification"], "installation" in bundle.seals[0].as_dict()) == (1, False)
    other = await plantlog(
        south.state.root,
        "evidence",
        "export",
        f"{SECOND}",
        "--installation",
        "north",
        "--to",
        str(tmp_path / "other.parquet"),
    )
    assert other.code == 0, other.err


async def test_keys_belong_to_their_installation(north: SealedPlant, south: SealedPlant, tmp_path: Path) -> None:
    """One that was taken over continues its chain with a new key."""
    await north.seal(BEFORE - timedelta(days=1))
    await south.seal(BEFORE - timedelta(days=1))
    pem = public_key(north, tmp_path / "north.pem")
    ours, theirs = await verified(north, key=pem)
    assert (ours.ok, theirs.ok) == (True, False)
    assert theirs.wrong_key.startswith("WRONG KEY: ")
    assert theirs.chain == []
    heir = SealedPlant(south.database, tmp_path / "heir")
    with pytest.raises(OperationError, match="is not registered in this database"):
        await heir.seal()
    await south.owner.execute(
        load("installation")["take_over"], installation_id(south.state), installation_id(heir.state), "heir"
    )
    with pytest.raises(OperationError, match=r"seal.key is missing; seals are signed by .*--new-key"):
        await heir.seal()
    await signer(south.owner, heir.state, new=True)
    assert [sealed_day.seal.installation for sealed_day in await heir.seal()] == [2]
    assert all(report.ok for report in await verified(heir))
    key_path(north.state).unlink()
    with pytest.raises(OperationError, match=r"seal.key is missing"):
        await north.seal()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("verify", "--installation", "west"), "--installation: no installation is west; registered: installation"),
        (("export", f"{SECOND}", "--installation", "all"), "--installation: found all; legal: one installation"),
        (("verify", f"{SECOND}"), "of plant south; it is by installation"),
    ],
)
async def test_wrong_installations_say_why(
    north: SealedPlant, south: SealedPlant, words: tuple[str, ...], message: str
) -> None:
    await north.seal(BEFORE - timedelta(days=1))
    done = await plantlog(south.state.root, "evidence", *words)
    assert done.code == 1
    assert message in done.err
