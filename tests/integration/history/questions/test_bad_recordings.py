"""Recordings of which little can be said: each question that compares says what, and shows no row that is no answer.

The answers are the same from database and archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.installation import ALL
from core.paths import State
from history.questions.ask import TimeRange, answer
from schema.question_files import REFERENCE, questions
from tests.database import Database, prepared
from tests.integration.history.archive_maintenance import maintained
from tests.integration.history.archive_site import Site
from tests.integration.history.questions.answers import LIMITS
from tests.integration.history.questions.recording import Recording, at
from tests.integration.history.sealed_plant import SealedPlant

_SECONDS = np.arange(0.0, 4800.0)
_SINCE = 3600.0  # s
_RANGE = TimeRange(at(_SINCE).isoformat(), at(4800).isoformat())
_COMPARING = [one.name for one in questions().values() if any(known.type == REFERENCE for known in one.parameters)]


async def _record(plant: Recording) -> None:
    """Two channels each."""
    random = np.random.default_rng(1)
    within = _SECONDS % 60 < 5
    for name in ("a", "b"):
        noise = random.normal(50, 1, len(_SECONDS))
        await plant.samples(f"two/{name}", _SECONDS, noise)
        await plant.samples(f"constant/{name}", _SECONDS, np.full(len(_SECONDS), 7.0))
        await plant.samples(f"young/{name}", _SECONDS[3590:], noise[3590:])
        kept = within | (_SECONDS >= _SINCE)
        await plant.samples(f"gaps/{name}", _SECONDS[kept], noise[kept])
        for begin in range(5, 3600, 60):
            await plant.gap(f"gaps/{name}", begin - 0.5, begin + 54.5)
        fault = (name == "a") & (_SECONDS >= 2500) & (_SECONDS < 2700)
        await plant.samples(f"faulty/{name}", _SECONDS, noise + 20 * fault)


async def _prepare(database: Database, folder: Path, archived: bool) -> None:
    (folder / "archive").mkdir()
    async with (
        SealedPlant(database, folder / "state", "north") as sealed,
        Recording(database, folder / "recording") as recording,
    ):
        await _record(recording)
        await sealed.seal()
        maintenance = await maintained(Site(sealed, folder / "archive"), folder)
        if archived:
            assert (await maintenance.job()).outcome == "ok"
            assert await maintenance.drop() == ["chunk"]


@pytest.fixture(scope="module")
def plants(server: str, template: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[State]]:
    """The same plant in the database and in the archive."""
    stored, archived = (tmp_path_factory.mktemp(name) for name in ("stored", "archived"))
    with (
        prepared(server, template, "stored_bad", partial(_prepare, folder=stored, archived=False)),
        prepared(server, template, "archived_bad", partial(_prepare, folder=archived, archived=True)),
    ):
        yield [State(stored / "state"), State(archived / "state")]


def asked(state: State, name: str, unit: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of an answer, and lines about it."""
    table, notes = answer(state, questions()[name], _RANGE, [f"{unit}/*"], {}, ALL, LIMITS)
    return table.to_pylist(), notes.splitlines()


_NO_RULE = "2 channels not judged, neither level of a tank, nor one of twins, nor of kind counter: {0}/a, {0}/b"
_SHORT = "2 channels not judged, too few samples in the reference: {0}/a, {0}/b"
_UNLIKE = "1 channel judged though a part of their reference is unlike the rest: choose another one: faulty/a"
_LINES: dict[str, dict[str | None, str]] = {  # of each unit, by question: what is said; None: of all other questions
    "two": {
        "implausible": _NO_RULE.format("two"),
        "broken_relation": "2 channels not judged, move with no other of their unit, "
        "nor with sisters, beyond chance in the reference: two/a, two/b",
        None: "2 channels judged",
    },
    "constant": {
        "implausible": _NO_RULE.format("constant"),
        "broken_relation": "2 channels not judged, constant in the reference: constant/a, constant/b",
        "departure": "2 channels not judged, constant in the reference: constant/a, constant/b",
        "episodes": "2 channels not judged, constant in the reference: constant/a, constant/b",
        "stuck_sensors": "2 channels not judged, fewer than 40 changes in the reference, or values held but for ramps: "
        "constant/a, constant/b",
        None: "2 channels judged",
    },
    "young": {
        "implausible": _NO_RULE.format("young"),
        "change_points": "2 channels judged by the interval alone, too few samples in the reference: young/a, young/b",
        "stuck_sensors": "2 channels judged though most of their reference has no samples: young/a, young/b",
        "oscillation": "2 channels judged",
        None: _SHORT.format("young"),
    },
    "gaps": {
        "implausible": _NO_RULE.format("gaps"),
        "change_points": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "episodes": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "first_mover": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "timeline": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "what_changed": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "excursions": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "stuck_sensors": "2 channels judged though most of their reference has no samples: gaps/a, gaps/b",
        "oscillation": "2 channels judged",
        None: _SHORT.format("gaps"),
    },
    "faulty": {
        "implausible": _NO_RULE.format("faulty"),
        "change_points": "2 channels judged",
        "broken_relation": "2 channels not judged, move with no other of their unit, "
        "nor with sisters, beyond chance in the reference: faulty/a, faulty/b",
        "departure": "2 channels judged though a part of their reference is unlike the rest, and was left out "
        "(unlike: 2026-03-09T10:40:00Z to 2026-03-09T10:44:00Z): faulty/a, faulty/b",
        "compare": _UNLIKE,
        "episodes": _UNLIKE,
        "what_changed": _UNLIKE,
        "stuck_sensors": "2 channels judged",
        "oscillation": "2 channels judged",
        None: "1 channel judged without large changes in their reference, which may be faults or usual: faulty/a",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("unit", _LINES)
def test_what_can_not_be_judged_is_said_and_no_row_is_shown(plants: list[State], unit: str) -> None:
    for name in _COMPARING:
        stored, archived = (asked(state, name, unit) for state in plants)
        assert stored == archived, name
        rows, lines = stored
        # A difference from a faulty run is one.
        assert not rows or (unit, name) == ("faulty", "compare"), (name, rows)
        assert _LINES[unit].get(name, _LINES[unit][None]) in lines, (name, lines)
