"""``plantlog evidence seal``, ``verify`` and ``export``: the real commands against a real database."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from core.timestamps import begin
from tests.command import CommandResult, plantlog
from tests.database import Database
from tests.integration.history.sealed_plant import BEFORE, DAY, SealedPlant


async def run(plant: SealedPlant, *words: str) -> CommandResult:
    """A command on the plant's state folder."""
    return await plantlog(plant.state.root, *words)


async def test_seal_export_and_verify_commands(plant: SealedPlant, tmp_path: Path) -> None:
    sealed = await run(plant, "evidence", "seal", "--before", BEFORE.isoformat(), "--json")
    assert sealed.code == 0, sealed.err
    assert [(load["day"], load["samples"]) for load in json.loads(sealed.out)] == [
        ("2026-03-09", 480),
        ("2026-03-10", 480),
        ("2026-03-11", 480),
    ]
    key = await run(plant, "evidence", "seal", "--public-key")
    assert key.out.startswith("-----BEGIN PUBLIC KEY-----")
    pem = tmp_path / "key.pem"
    pem.write_text(key.out)
    verified = await run(plant, "evidence", "verify", "--key", str(pem))
    assert verified.code == 0, verified.out
    assert "3 seals; chain and signatures hold" in verified.out
    path = tmp_path / "day.parquet"
    exported = await run(plant, "evidence", "export", "2026-03-10", "--to", str(path), "--with-verifier")
    assert exported.code == 0, exported.err
    assert f"{path}: 480 rows, " in exported.out
    of_day = await run(plant, "evidence", "verify", str(path))
    assert of_day.code == 0
    assert re.findall(r": (\w+) of 2026-03-10, ([\d,]+) rows$", of_day.out, re.MULTILINE) == [
        ("samples", "480"), ("events", "0"), ("gaps", "0"),
    ]  # fmt: skip
    seals = json.loads(sealed.out)
    assert of_day.out.count(f" UTC, root {seals[1]['root']}\n".replace(" UTC", "Z")) == 3
    assert f"Z, root {seals[2]['root']}\n" in verified.out
    for what in ((), (str(path),)):
        for deposited, code in ((seals[0]["hash"], 0), ("0" * 63 + "1", 1)):
            done = await run(plant, "evidence", "verify", *what, "--deposited", deposited)
            assert (done.code, "no seal here has the deposited hash" in done.out) == (code, bool(code)), done.out
        assert "legal: the 64 hex" in (await run(plant, "evidence", "verify", *what, "--deposited", "0")).err
    path.with_suffix(".gaps.parquet").unlink()
    less = await run(plant, "evidence", "verify", str(path))
    assert (less.code, f"not verified: {path.with_suffix('.gaps.parquet')} is not there" in less.out) == (0, True)
    assert (await run(plant, "evidence", "verify", str(path), "--strict")).code == 1
    await plant.owner.execute("DELETE FROM plant.samples_raw WHERE time = $1", begin(DAY, 29))
    wrong = await run(plant, "evidence", "verify", "2026-03-10", "--json")
    assert wrong.code == 1
    [day] = json.loads(wrong.out)["days"]
    assert [(d["what"], d["hour"], d["kind"], d["sealed"], d["found"], d["explained"]) for d in day["differences"]] == [
        (name, 5, "missing", 120, 119, None) for name in ("unit/pressure", "unit/flow")
    ]
    other = await run(plant, "evidence", "export", "2026-03-10", "--to", str(tmp_path / "other.parquet"))
    assert other.code == 1
    assert "differ from the seal in 2 hours" in other.err
    broken = await run(plant, "evidence", "verify", str(tmp_path / "other.parquet"))
    assert broken.code == 1
    assert "unit/flow, hour 05: at least 1 missing, and others may have changed (120 sealed, 119 found)" in broken.out


async def test_late_data_are_explained_and_the_seal_amended(plant: SealedPlant) -> None:
    await run(plant, "evidence", "seal", "--before", BEFORE.isoformat())
    await plant.late("unit/flow", [(0, 0, 0)])
    explained = await run(plant, "evidence", "verify", "2026-03-09")
    assert explained.code == 0
    assert (
        "unit/flow, hour 00: 1 added (0 sealed, 1 found): late data: 1 sample, the rest is as sealed" in explained.out
    )
    assert (await run(plant, "evidence", "verify", "2026-03-09", "--strict")).code == 1
    amended = await run(plant, "evidence", "seal", "2026-03-09")
    assert "2026-03-09 revision 1, serial " in amended.out
    assert "+1 sample in 1 hour of 1 channel" in amended.out
    assert (await run(plant, "evidence", "verify", "2026-03-09", "--strict")).code == 0


async def test_open_day_is_not_sealed(plant: SealedPlant) -> None:
    today = datetime.now(UTC).date()
    refused = await run(plant, "evidence", "seal", today.isoformat())
    assert refused.code == 1
    when = f"{today + timedelta(days=1)} 01:00 UTC"
    assert f"{today} is not closed yet; it can be sealed after {when}" in refused.err
    exported = await run(plant, "evidence", "export", today.isoformat())
    assert f"{today} is not sealed: run `plantlog evidence seal {today}` after {when}" in exported.err
    nothing = await run(plant, "evidence", "seal", "2000-01-01")
    assert nothing.out == "nothing to seal: no data for 2000-01-01, or nothing new since its seal\n"
    yesterday = today - timedelta(days=1)
    since_midnight = (datetime.now(UTC) - begin(today)) // timedelta(seconds=1)
    await plant.owner.execute(
        "INSERT INTO plant.setting VALUES ('lateness', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
        str(since_midnight + 3600),
    )
    refused = await run(plant, "evidence", "seal", yesterday.isoformat())
    assert f"{yesterday} is not closed" in refused.err
    await plant.owner.execute("UPDATE plant.setting SET value = $1 WHERE key = 'lateness'", str(86400 * 3650))
    nothing = await run(plant, "evidence", "seal")
    assert re.fullmatch(r"nothing to seal: .*; \d{4}-\d\d-\d\d can be sealed after .* UTC\n", nothing.out)


async def test_verify_without_seals_says_when_the_first_day_is_sealed(database: Database, tmp_path: Path) -> None:
    async with SealedPlant(database, tmp_path / "state") as plant:
        await plant.channel("unit/flow")
        today = begin(datetime.now(UTC).date())
        late = (datetime.now(UTC) - today) // timedelta(seconds=1) * timedelta(seconds=1) + timedelta(hours=12)
        await plant.owner.execute(
            "INSERT INTO plant.setting VALUES ('lateness', $1) ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            str(int(late.total_seconds())),
        )  # yesterday is open
        first = f"{today - timedelta(days=1):%Y-%m-%d} can be sealed after {today + late:%Y-%m-%d %H:%M} UTC"
        assert (await run(plant, "evidence", "verify")).out == f"0 seals; {first}\n"
        assert (await run(plant, "evidence", "verify", "--channel", "unit/fl*")).code == 0
        unknown = await run(plant, "evidence", "verify", "--channel", "nosuch")
        assert (unknown.code, unknown.out) == (1, "")
        assert unknown.err == "plantlog: --channel: no channel matches nosuch (* matches any text)\n"


async def test_verify_without_seals_names_a_closed_day_that_has_data(plant: SealedPlant) -> None:
    verified = await run(plant, "evidence", "verify")
    assert verified.out == "0 seals; 2026-03-09 is closed: `plantlog evidence seal` seals it\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("seal", "yesterday"), "'yesterday' is not a day such as 2026-03-09"),
        (("export", "2026-13-01"), "'2026-13-01' is not a day such as 2026-03-09"),
        (("verify", "2026-13-01"), "'2026-13-01' is neither a day such as 2026-03-09 nor an existing file"),
        (("export", "2026-01-09"), "no data on 2026-01-09: nothing to export"),
        (("seal", "--before", "noon"), "--before: found 'noon'; legal: a time such as"),
        (("verify", "nothing.parquet"), "nothing.parquet: found no such file; legal: a Parquet file"),
        (("verify", "2026-03-09"), "2026-03-09 is not sealed"),
        (("verify", "--from", "2026-03-09"), "--from does not apply to days; legal: --channel, "),
        (("verify", "rollups", "--strict"), "--strict does not apply to rollups; legal: --from, --to"),
        (("verify", "rollups", "--to", "noon"), "--to: found 'noon'; legal: a time such as 2026-03-10T00:00:00Z"),
        (("verify", "day.parquet", "--limit", "0"), "--limit does not apply to a file; legal: --key"),
        (("verify", "--plant", "*", "--channel", "a"), "--channel does not apply to plants; legal: --deposited"),
        (("export", "2026-03-09"), "2026-03-09 is not sealed: run `plantlog evidence seal 2026-03-09`"),
        (("verify", "--key", "/nowhere.pem"), "/nowhere.pem: "),
    ],
)
async def test_invalid_evidence_commands_say_why(plant: SealedPlant, words: tuple[str, ...], message: str) -> None:
    done = await run(plant, "evidence", *words)
    assert done.code == 1
    assert done.err.startswith("plantlog: "), done.err
    assert message in done.err


async def test_delete_counts_by_channel_first(plant: SealedPlant) -> None:
    await plant.seal()
    span = ("--from", begin(DAY, 5).isoformat(), "--to", (begin(DAY, 5) + timedelta(seconds=5)).isoformat())
    words = ("evidence", "delete", "--channel", "unit/*", *span, "--why", "a test")
    counts = [f"5 samples of {name} (channel {plant.ids[name]})" for name in ("unit/pressure", "unit/flow")]
    counted = await run(plant, *words)
    assert counted.out.splitlines() == [*counts, "10 samples to be deleted; --yes deletes them"], counted.err
    deleted = await run(plant, *words, "--yes")
    assert deleted.out.splitlines() == [*counts, "10 samples deleted", "2026-03-09 revision 1, serial 4"], deleted.err
