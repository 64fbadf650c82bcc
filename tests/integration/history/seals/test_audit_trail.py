"""Actions of people reach the database once, and the seal of the day covers them."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from core.config.model import WriterOptions
from core.timestamps import begin, microseconds
from ingest.spool import audit
from ingest.spool.audit import Action, Person, record
from ingest.writer.writer import Writer
from tests.database import Database, rows
from tests.integration.history.sealed_plant import DAY, SealedPlant
from tests.spooling import drained
from tests.users import recorded_actions

_ANNA = Person("anna", "engineer", "root", "here")
_ACTIONS = "SELECT text, detail ->> 'outcome', source_id FROM plant.event WHERE type = 'user_action' ORDER BY time, id"


async def test_actions_while_the_database_is_away_are_written_once(database: Database, tmp_path: Path) -> None:
    texts = [f"anna: apply number={n}" for n in range(12)]
    actions = [Action("apply", {"number": str(n)}, "done") for n in range(12)]
    await asyncio.gather(*(asyncio.to_thread(record, tmp_path, _ANNA, action) for action in actions))
    assert sorted(str(event.text) for event in recorded_actions(tmp_path)) == sorted(texts)
    shutil.copytree(tmp_path / "spool", tmp_path / "again")
    await drained(Writer(tmp_path / "spool", database.ingest_dsn, WriterOptions()))
    expected = sorted((text, "done", None) for text in texts)
    assert sorted(await rows(database, _ACTIONS)) == expected
    assert recorded_actions(tmp_path) == []
    await drained(Writer(tmp_path / "again", database.ingest_dsn, WriterOptions()))
    assert sorted(await rows(database, _ACTIONS)) == expected
    await asyncio.to_thread(record, tmp_path, _ANNA, Action("down", {}, "begun"))
    await drained(Writer(tmp_path / "spool", database.ingest_dsn, WriterOptions()))
    assert (await rows(database, _ACTIONS))[-1] == ("anna: down: begun", "begun", None)


@pytest.mark.parametrize("change", ["UPDATE plant.event SET detail = '{}'", "DELETE FROM plant.event"])
async def test_changed_record_is_detected(plant: SealedPlant, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(audit, "now_us", lambda: microseconds(begin(DAY, 9)))
    await asyncio.to_thread(record, plant.state.root, _ANNA, Action("rename", {"old": "a", "new": "b"}, "done"))
    await drained(Writer(plant.state.spool, plant.database.ingest_dsn, WriterOptions()))
    sealed = await plant.seal()
    assert sealed[0].seal.events == 2
    assert (await plant.verify()).ok
    await plant.owner.execute(f"{change} WHERE type = 'user_action'")
    report = await plant.verify()
    assert [day.ok for day in report.days] == [False, True, True]
    [finding] = report.days[0].findings
    assert finding.difference.describe().startswith("events, hour 09:")
