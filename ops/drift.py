"""Whether plant.toml still says what runs, and what is wrong with it now."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ingest.config.load import load
from ingest.config.model import Source
from ingest.config.snapshot import Snapshot, in_force, newest, plant_in_force
from ingest.errors import ConfigError, OperationError
from ingest.processes import collector
from ops.paths import State
from ops.words import count

_SHOWN = 3  # problems
_NOTHING: dict[str, Any] = {"file": None, "number": None, "since": None, "differs": False, "problems": []}


class Drift:
    """Looks at the files again and again; parses them only where something was changed since the look before."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._snapshot: Snapshot | None = None
        self._seen: tuple[str | bool | None, ...] = ()
        self._said: dict[str, Any] = {}

    @property
    def sources(self) -> list[tuple[Source, int, str]]:
        """Those that are to be read, as of the last look, each without its tags, how many it has, and who reads it."""
        now = self._snapshot
        sources = () if now is None else now.plant.sources
        return [(s, now.channels[s.name], collector(s.kind, now.process(s.name))) for s in sources if now is not None]

    def look(self) -> dict[str, Any]:
        """``file``, ``number`` and ``since`` (s since 1970) of what runs, None before the first ``up``; ``differs``;
        ``problems``.

        ``differs``: the next ``up`` would change something. ``problems``: why it could not, a line each.
        """
        if newest(self._state.root) != (self._snapshot and self._snapshot.number):
            try:
                self._snapshot, self._said = in_force(self._state.root, tags_of=()), {}
            except OperationError as error:
                return {**_NOTHING, "differs": True, "problems": [str(error)]}
        if self._snapshot is None:
            return _NOTHING
        seen = self._snapshot.looks()
        if not self._said or seen != self._seen:
            self._seen, self._said = seen, _judged(self._snapshot, self._state)
        return self._said


def _judged(snapshot: Snapshot, state: State) -> dict[str, Any]:
    differs, problems = False, []
    if not snapshot.untouched():
        try:
            differs = load(snapshot.file) != plant_in_force(state.root)
        except ConfigError as error:
            differs, problems = True, [str(problem) for problem in error.problems]
    return {
        "file": str(snapshot.file),
        "number": snapshot.number,
        "since": snapshot.since / 1e6,
        "differs": differs,
        "problems": problems,
    }


def words(configuration: dict[str, Any]) -> list[str]:
    """What a person is told of it; nothing where nothing has to be done."""
    if not configuration["differs"]:
        return []
    if configuration["file"] is None:
        return list(configuration["problems"])
    since = datetime.fromtimestamp(configuration["since"], UTC)
    begins = f"{configuration['file']} differs from what runs since {since:%Y-%m-%d %H:%M:%SZ}"
    problems = configuration["problems"]
    if not problems:
        return [f"{begins}: run `plantlog up` to apply it"]
    n = count(len(problems), "problem")
    more = [f"… `plantlog check {configuration['file']}` lists all"] if len(problems) > _SHOWN else []
    return [f"{begins}, and has {n}, so `plantlog up` would refuse it:", *problems[:_SHOWN], *more]
