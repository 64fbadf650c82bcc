"""Questions about several plants whose archives lie under one location: no database is asked."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from core.errors import OperationError
from core.installation import ALL, installation_of
from core.paths import State
from history import notebook
from history.archive.location import Location
from history.archive_days.plants_file import plants_of
from history.questions.ask import TimeRange, answer
from history.questions.request import prepare_archived
from history.seals.keys import public_pem
from history.sql.session import opened
from history.sql.sources import portion
from history.sql.sources.execution import Limits
from history.sql.sources.plants import PlantArchives
from lab.bench import local_cluster
from schema.question_files import questions
from tests import repository_servers
from tests.command import CommandResult
from tests.command import run as plantlog
from tests.database import Database
from tests.integration.history.archive.test_s3 import NAME, options_of
from tests.integration.history.archive_maintenance import maintained
from tests.integration.history.archive_site import Site
from tests.integration.history.questions.answers import LIMITS, assert_same
from tests.integration.history.questions.company import DAY, Company
from tests.integration.history.questions.recording import Recording, at
from tests.integration.history.questions.test_cluster import ARCHIVE, at_portion, credentials_of
from tests.integration.history.questions.test_over_archive import OPTIONS
from tests.integration.history.sealed_plant import SealedPlant, public_key
from tests.ports import free_port

_ON_CLUSTER = (("stuck_sensors", "north"), ("stuck_sensors", "south"), ("stuck_sensors", "*"), ("correlation", "*"))
_COUNT = "SELECT count(DISTINCT name) AS n FROM samples_named"
_RANGE = TimeRange(at(3600).isoformat(), at(4800).isoformat())


def ask(company: Company, name: str, patterns: Sequence[str], channels: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Rows of a question about plants. The state folder has no database."""
    options = {key: f"north/{text}" if key == "target" else text for key, text in OPTIONS.get(name, {}).items()}
    plants = plants_of(company.file, patterns)
    table, _ = answer(
        State(company.file.parent / "none"), questions()[name], _RANGE, channels, options, ALL, LIMITS, plants=plants
    )
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def without_plant(value: Any, plant: str) -> Any:
    """A value of an answer with names as the plant's own database has them."""
    match value:
        case str():
            return value.replace(f"{plant}/", "")
        case dict():
            return {name: without_plant(part, plant) for name, part in value.items()}
        case list():
            return [without_plant(part, plant) for part in value]
    return value


def archived(name: str, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a question without that of a channel whose samples are in quarantine, of which an archive has nothing."""
    return [row for row in rows if name != "gaps_and_coverage" or row["channel"] != "boiler/silent"]


@pytest.mark.slow
@pytest.mark.parametrize("name", questions())
def test_answer_is_that_of_the_plant_with_its_database(company: Company, name: str) -> None:
    expected = answer(company.north, questions()[name], _RANGE, (), OPTIONS.get(name, {}), ALL, LIMITS)[0].to_pylist()
    assert expected
    found = without_plant(ask(company, name, ["north"]), "north")
    assert_same(found, archived(name, expected))
    options: dict[str, Any] = {
        **{"since": _RANGE.since, "until": _RANGE.until, "key": company.file.with_name("north.pem")},
        **{"installation": installation_of(company.north.root), **OPTIONS.get(name, {})},
    }
    assert_same(notebook.ask(company.archive, name, **options).to_pylist(), archived(name, expected))


@pytest.mark.slow
def test_several_plants_have_the_rows_of_each(company: Company) -> None:
    """Their channels have the same ids in their own databases."""
    rows = ask(company, "stuck_sensors", ["*"])
    for plant in ("north", "south"):
        own = [row for row in rows if row["channel"].startswith(f"{plant}/")]
        assert_same(own, ask(company, "stuck_sensors", [plant]))
        assert "boiler/stuck" in [row["channel"].removeprefix(f"{plant}/") for row in own]
    assert_same(ask(company, "stuck_sensors", [], ["south/*"]), ask(company, "stuck_sensors", ["south"]))


def rows_of(company: Company, query: str, *patterns: str) -> list[tuple[Any, ...]]:
    archives = PlantArchives(plants_of(company.file, patterns))
    with (
        opened(State(company.file.parent / "none"), LIMITS, archives=archives) as session,
        session.rows(query) as (_, rows),
    ):
        return list(rows)


@pytest.mark.slow
def test_tables_are_those_of_the_plants_databases(company: Company) -> None:
    def of_north(query: str) -> list[tuple[Any, ...]]:
        with opened(company.north, LIMITS) as session, session.rows(query) as (_, rows):
            return list(rows)

    for columns, table in (
        ("s.time, NAME, s.value, s.unit, s.quality", "samples_named s"),
        ("NAME, s.kind, s.unit, s.range_lo, s.range_hi", "channel s"),
        ("NAME, s.kind, s.address", "source s"),
        ("NAME, PREFIX || s.unit_path, s.quantity", "described_channel s"),
        ("s.time, s.type, s.text, s.detail", "event s WHERE s.time < '2026-03-12'"),
    ):
        own = columns.replace("NAME", "s.name").replace("PREFIX", "'north/'")
        stored = of_north(f"SELECT {own} FROM {table} ORDER BY ALL")
        moved = columns.replace("NAME", "substr(s.name, 7)").replace("PREFIX", "''")
        condition = "" if table.startswith("event") else "WHERE s.name LIKE 'north/%'"
        query = f"SELECT {moved} FROM {table} {condition} ORDER BY ALL"
        assert stored
        assert rows_of(company, query, "north") == stored
        if condition:
            assert rows_of(company, query) == stored, "of both plants"
    gaps = """
    SELECT coalesce(c.name, s.name) AS name, g.from_time, g.to_time, g.reason
    FROM gap AS g LEFT JOIN channel AS c ON c.id = g.channel_id JOIN source AS s ON s.id = g.source_id
    WHERE g.from_time < g.to_time ORDER BY ALL
    """
    assert [(f"north/{name}", *rest) for name, *rest in of_north(gaps)] == [
        row for row in rows_of(company, gaps) if row[0].startswith("north/") and row[2].hour
    ]
    counts = rows_of(
        company, "SELECT split_part(name, '/', 1) AS plant, count(*) FROM samples_named GROUP BY ALL ORDER BY 1"
    )
    assert [plant for plant, _ in counts] == ["north", "south"]
    assert counts[0][1] == counts[1][1] > 0


@pytest.mark.slow
def test_what_came_before_is_looked_for_in_the_files_of_its_plant(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    numbers = "SELECT id FROM channel WHERE name IN ('north/boiler/mode', 'north/boiler/moving') ORDER BY name"
    [(mode,), (moving,)] = rows_of(company, numbers)
    for table in ("events", "channels"):
        shutil.rmtree(changed.day(company.south, table))
    held = f"SELECT held_text({mode}, TIMESTAMPTZ '{{}}' + INTERVAL 31 DAY)"
    assert rows_of(changed, held.format(at(4500).isoformat())) == [("auto",)]
    assert rows_of(changed, held.format(at(4700).isoformat())) == [(None,)], "earlier than a month before"
    before = f"SELECT has_sample_before({moving}, TIMESTAMPTZ '{{}}')"
    assert rows_of(changed, before.format(at(86_400).isoformat())) == [(True,)]
    assert rows_of(changed, before.format(at(-86_400).isoformat())) == [(False,)]


async def test_channel_is_silent_only_since_it_was_configured(database: Database, tmp_path: Path) -> None:
    configured, end = 86_400 + 7200, 2 * 86_400
    (archive := tmp_path / "archive").mkdir()
    async with (
        SealedPlant(database, tmp_path / "state", "north") as sealed,
        Recording(database, tmp_path / "recording") as recording,
    ):
        await recording.samples("old", [0], [1])
        await sealed.seal(at(86_400))
        await recording.channel("new", interval=60.0, configured=configured)
        await recording.samples("new", seconds := np.arange(configured, end, 60.0), seconds)
        await sealed.seal()
        assert (await (await maintained(Site(sealed, archive), tmp_path)).job()).outcome == "ok"
        options: dict[str, Any] = {"channels": "new", "complete": True}
        expected = await recording.ask("gaps_and_coverage", at(0), at(end), **options)
        options |= {"since": at(0), "until": at(end), "key": public_key(sealed, tmp_path / "north.pem")}
        table = await asyncio.to_thread(notebook.ask, archive, "gaps_and_coverage", **options)
    assert expected[0]["covered_percent"] == 100
    assert_same(table.to_pylist(), expected)


@pytest.mark.slow
def test_command_needs_no_appliance(company: Company, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANTLOG_PLANTS", str(company.file))
    words = ("--from", at(3600).isoformat(), "--to", at(4800).isoformat(), "--plant", "*", "--json")
    result = plantlog(tmp_path, "ask", "stuck_sensors", *words)
    assert {"north/boiler/stuck", "south/boiler/stuck"} <= {row["channel"] for row in json.loads(result.out)}
    result = plantlog(tmp_path, "sql", _COUNT, "--plants", company.file, "--plant", "south", "--csv")
    assert int(result.out.split()[1]) > 10, result.err
    monkeypatch.delenv("PLANTLOG_PLANTS")
    result = plantlog(tmp_path, "sql", "SELECT 1", "--plant", "south")
    assert "--plant requires --plants FILE, or PLANTLOG_PLANTS in the environment" in result.err
    result = plantlog(tmp_path, "sql", "SELECT 1", "--plants", company.file, "--plant", "west")
    assert "--plant: no plant is west" in result.err
    assert "has north, south" in result.err


def test_notebook_asks_plants(company: Company) -> None:
    since, until = at(3600), at(4800)
    table = notebook.ask(company.file, "stuck_sensors", since=since, until=until, plant="south")
    assert "south/boiler/stuck" in table["channel"].to_pylist()
    for wrong, problem in (
        ({"plant": "west"}, "no plant is west"),
        ({"plant": 3}, "plant: found 3; legal: a name"),
        ({"key": "north.pem"}, "key: found 'north.pem'; legal: no value for a file of plants"),
        ({"channels": "north/none"}, r"no channel matches north/none \(.*; names begin with PLANT/\)"),
    ):
        with pytest.raises(notebook.ArchiveError, match=problem):
            notebook.ask(company.file, "stuck_sensors", since=since, until=until, **wrong)


def test_notebook_reads_plants_as_the_archive_of_each(company: Company) -> None:
    since, until = at(3600), at(3700)
    options = {"installation": str(installation_of(company.south.root))}
    functions: tuple[Any, ...] = (notebook.samples, notebook.gaps, partial(notebook.series, step="20s"))
    for read in functions:
        own = read(company.archive, "boiler/*", since, until, **options).to_pylist()
        plants = read(company.file, "south/boiler/*", since, until, plant="*").to_pylist()
        assert own
        ids = (sorted({row["channel_id"] for row in rows}) for rows in (plants, own))
        moved = dict(zip(*ids, strict=True))
        rows = [{**without_plant(row, "south"), "channel_id": moved[row["channel_id"]]} for row in plants]
        assert_same(rows, own)
    table = notebook.samples(company.file, "*/boiler/stuck", since, until)
    assert {*table["name"].to_pylist()} == {"north/boiler/stuck", "south/boiler/stuck"}
    table = notebook.samples(company.file, "*/boiler/stuck", since, until, plant="north")
    assert {*table["name"].to_pylist()} == {"north/boiler/stuck"}
    table = notebook.aggregates(company.file, "south/boiler/stuck", since, until, verify=True)
    assert table["channel"].to_pylist() == ["south/boiler/stuck"]
    options = {"start": "2026-03-07", "end": "2026-03-10"}
    for read in functions:
        table = read(company.file, "north/boiler/stuck", **options)
        assert b"stand for 2 days of the time that is read" in table.schema.metadata[b"notes"]
    wrong: tuple[tuple[Any, str], ...] = (
        ("none", "no channel matches none"),
        (3, "channels: found 3; legal: a name"),
    )
    for channels, problem in wrong:
        with pytest.raises(notebook.ArchiveError, match=problem):
            notebook.samples(company.file, channels, since, until)


def test_reading_of_plants_by_a_notebook_has_a_time_limit(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("history.notebook.several.LIMITS", Limits("2GB", 2, 0))
    with pytest.raises(notebook.ArchiveError, match="the query took longer than 0 s"):
        notebook.samples(company.file, "none")  # before it is known that there is no such channel
    monkeypatch.undo()
    assert notebook.samples(company.file, "north/boiler/stuck").num_rows


def test_notebook_asks_an_archive_by_the_key_of_its_plant(company: Company) -> None:
    options: dict[str, Any] = {"since": at(3600), "until": at(4800), "channels": "boiler/*"}
    with pytest.raises(notebook.ArchiveError, match="installation: found none given"):
        notebook.ask(company.archive, "stuck_sensors", **options)
    options["installation"] = str(installation_of(company.south.root))
    south = notebook.ask(str(company.archive), "stuck_sensors", key=company.file.with_name("south.pem"), **options)
    assert "boiler/stuck" in south["channel"].to_pylist()
    assert b"no key" not in south.schema.metadata[b"notes"]
    unproven = notebook.ask(company.archive, "stuck_sensors", **options)
    assert unproven.to_pylist() == south.to_pylist()
    assert b"seals are compared with no key" in unproven.schema.metadata[b"notes"]
    with pytest.raises(notebook.ArchiveError, match=f"{DAY}: WRONG KEY"):
        notebook.ask(company.archive, "stuck_sensors", key=company.file.with_name("north.pem"), **options)
    with pytest.raises(notebook.ArchiveError, match=r"no channel matches none \(\* matches any text\)"):
        notebook.ask(company.archive, "stuck_sensors", **{**options, "channels": ["none"]})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[repository_servers.Peer]:
    (tmp_path / "store").mkdir()
    peer = repository_servers.s3(tmp_path / "store" / "server", tmp_path / "store" / "files")
    with repository_servers.running(peer):
        yield peer


@pytest.mark.slow
@pytest.mark.timeout(900)  # each of its processes imports for seconds where a machine is busy
@pytest.mark.skipif(repository_servers.missing() != "", reason=repository_servers.missing())
def test_company_is_asked_on_a_cluster(
    company: Company, store: repository_servers.Peer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its plants are in S3-compatible storage, which the workers read with their own key."""
    monkeypatch.setattr(portion, "_AT_A_TIME", 2000)
    submitted = list[int]()
    at_portion(monkeypatch, submitted.append)
    location = Location.at(NAME, options_of(store))
    for path in filter(Path.is_file, company.archive.rglob("*")):
        location.write(str(path.relative_to(company.archive)), path.read_bytes())
    query = f"FROM runs_of(NULL, TIMESTAMPTZ '{_RANGE.since}', TIMESTAMPTZ '{_RANGE.until}', INTERVAL 5 MINUTE)"
    with local_cluster.running(tmp_path / "cluster", free_port(), 2, credentials_of(store)) as cluster:
        there = company.copied(tmp_path / "company")
        archive = ARCHIVE.format(location=NAME, options=store.options(Path("/dev/null")))
        options = cluster.options.model_dump(mode="json").items()
        text = there.file.read_text().replace(f'[archive]\nlocation = "{there.archive}"\n', archive)
        there.file.write_text("\n".join([text, "[questions]", *(f'{name} = "{value}"' for name, value in options)]))

        def sql(of: Company) -> CommandResult:
            return plantlog(tmp_path, "sql", f"SELECT * {query} ORDER BY ALL", "--plants", of.file, "--csv")

        for name, plant in _ON_CLUSTER:
            before = len(submitted)
            assert_same(ask(there, name, [plant]), rows := ask(company, name, [plant]))
            assert rows
            assert len(submitted) > before, (name, plant)
        before = len(submitted)
        table = notebook.ask(there.file, "stuck_sensors", since=at(3600), until=at(4800), plant="*")
        assert {"north/boiler/stuck", "south/boiler/stuck"} <= {*table["channel"].to_pylist()}
        assert len(submitted) > before
        before = len(submitted)
        assert (result := sql(there)).out == sql(company).out, result.err
        assert len(result.out.splitlines()) > 10
        assert len(submitted) > before

        for worker in cluster.workers:
            worker.kill()
        cluster.work(environment={"AWS_SECRET_ACCESS_KEY": "another"})
        of_worker = rf"\(worker tls://\S+ of \[questions\] cluster {cluster.address}\)"
        assert re.search(rf"archive {NAME}: .*{of_worker}", failure(there))
    assert f"[questions] cluster {cluster.address} can't be reached" in sql(there).err


def failure(company: Company) -> str:
    with pytest.raises(OperationError) as error:
        ask(company, "episodes", ["*"])
    return str(error.value)


def test_archive_of_another_plant_under_the_same_name_is_an_error(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    north, south = (str(installation_of(state.root)) for state in (company.north, company.south))
    text = changed.file.read_text()
    changed.file.write_text(text.replace(north, "?").replace(south, north).replace("?", south))
    assert f"plant north: {DAY}: WRONG KEY: signed by key " in failure(changed)
    changed.file.write_text(text.replace(south, north))
    assert f"plants.south.installation: found {north}, which north has; legal: one of its own" in failure(changed)
    other = "00000000-0000-4000-8000-000000000000"
    changed.file.write_text(text.replace(south, other))
    assert f"plant south: no day of installation {other} is archived there; legal: " in failure(changed)
    changed.file.write_text(text.replace("south.pem", "west.pem"))
    assert "plants.south.public_key: " in failure(changed)
    changed.file.write_text(text.replace("public_key", "key"))
    assert "plants.north.key: Extra inputs are not permitted" in failure(changed) or "public_key" in failure(changed)


def test_forged_day_is_an_error(company: Company, tmp_path: Path) -> None:
    """Whoever has no key can write what they like, but no seal."""
    changed = company.copied(tmp_path)
    path = changed.day(company.south, "manifests")
    content = json.loads(path.read_text())
    forged = json.loads(path.read_text())
    forged["proof"]["seals"][0]["root"] = forged["root"] = "0" * 64
    path.write_text(json.dumps(forged))
    assert f"plant south: {DAY}: seal 1 ({DAY}, revision 0): the signature does not match key" in failure(changed)
    foreign = Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    (tmp_path / "south.pem").write_text(public_pem(foreign))
    path.write_text(json.dumps(content))
    assert "plant south: " in (text := failure(changed))
    assert "WRONG KEY" in text


def test_older_manifest_is_read_by_the_seal_beside_it(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    path = changed.day(company.south, "manifests")
    content = json.loads(path.read_text())
    del content["proof"]
    path.write_text(json.dumps(content))
    assert rows_of(changed, "SELECT name, kind FROM source ORDER BY id", "south") == [
        ("south/north", "modbus"),
        ("south/plc", "modbus"),
    ]


def test_days_that_are_not_archived_are_gaps(company: Company, tmp_path: Path) -> None:
    changed = company.copied(tmp_path)
    [manifest] = changed.archive.glob(f"manifests/installation={installation_of(company.north.root)}/2026-03-10.json")
    manifest.unlink()
    plants = plants_of(changed.file, ["north"])
    archives = PlantArchives(plants, at(0), at(4 * 86_400))
    assert list(archives.notes()) == [
        "plant north: gaps with the reason not_archived stand for 3 days of the time that is read: the archive has "
        "2 days from 2026-03-09 to 2026-03-11"
    ]
    assert "stand for 2 days" in next(archives.notes(at(2 * 86_400)))
    table = archives.gaps.filter(pc.field("reason") == "not_archived")
    assert [(row["from_time"].day, row["to_time"].day) for row in table.to_pylist()] == [
        *[(10, 11)] * 2,
        *[(12, 14)] * 2,
    ], "of each source"


@pytest.mark.parametrize(
    ("options", "since", "until", "days"),
    [
        ({}, 2, 9, "7 days"),  # it asks the same of the week before
        ({"reference": "2026-03-12T10:00Z..2026-03-12T11:00Z"}, 12, 13, "1 day"),
    ],
)
def test_days_that_are_compared_and_not_archived_are_gaps(
    company: Company, options: dict[str, str], since: int, until: int, days: str
) -> None:
    arguments = {"since": at(3600).isoformat(), "until": at(4800).isoformat(), **options}
    plants = plants_of(company.file, ["north"])
    request, archives = asyncio.run(prepare_archived(plants, questions()["first_mover"], arguments, None, LIMITS))
    gaps = archives.gaps.filter(pc.field("reason") == "not_archived").to_pylist()
    assert any(gap["from_time"].day <= since and gap["to_time"].day == until for gap in gaps)
    [note] = archives.notes(request.within[0])
    assert f"stand for {days} of the time that is read" in note


def test_reading_ends_when_time_is_up(company: Company) -> None:
    limits, plants = Limits("2GB", 2, 60), plants_of(company.file)
    archives = PlantArchives(plants, limits=limits)
    limits.stop.set_result(None)
    for read in (lambda: archives.channels, lambda: PlantArchives(plants, limits=limits)):
        with pytest.raises(OperationError, match="the query took longer than 60 s"):
            read()
