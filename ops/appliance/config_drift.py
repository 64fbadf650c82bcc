"""Whether plant.toml still matches the running configuration, and its problems."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from core.config.files import digest
from core.config.load import load
from core.config.processes import collector
from core.config.snapshot import Snapshot, in_force, latest_number, plant_in_force
from core.config.sources import Source
from core.errors import ConfigError, OperationError
from core.formatting import count
from core.paths import State

_MAX_PROBLEMS = 3  # problems
_MAX_FILES = 3  # files that are named
_NOT_STARTED: dict[str, Any] = dict.fromkeys(("file", "number", "since")) | {
    "differs": False,
    "changed": [],
    "problems": [],
}


class ConfigDrift:
    """Checks the configuration files repeatedly; parses them only after a change."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._snapshot: Snapshot | None = None
        self._file_states: tuple[str | bool | None, ...] = ()
        self._report: dict[str, Any] = {}

    @property
    def sources(self) -> list[tuple[Source, int, str]]:
        """Configured sources (without tags), with the number of tags and the collector, as of the last check."""
        now = self._snapshot
        sources = () if now is None else now.plant.sources
        return [(s, now.channels[s.name], collector(s.kind, now.process(s.name))) for s in sources if now is not None]

    def check(self) -> dict[str, Any]:
        """``file``, ``number`` and ``since`` (s since 1970) of what runs, None before the first ``up``; ``differs``;
        ``changed``; ``problems``.

        ``differs``: the next ``up`` would change something. ``changed``: the paths of the files that are not as they
        were applied. ``problems``: why it could not, a line each.
        """
        if latest_number(self._state.root) != (self._snapshot and self._snapshot.number):
            try:
                self._snapshot, self._report = in_force(self._state.root, tags_of=()), {}
            except OperationError as error:
                return {**_NOT_STARTED, "differs": True, "problems": [str(error)]}
        if self._snapshot is None:
            return _NOT_STARTED
        file_states = self._snapshot.file_states()
        if not self._report or file_states != self._file_states:
            self._file_states, self._report = file_states, _compare(self._snapshot, self._state)
        return self._report


def _compare(snapshot: Snapshot, state: State) -> dict[str, Any]:
    differs, problems = False, []
    if not snapshot.files_unchanged():
        try:
            differs = load(snapshot.file) != plant_in_force(state.root)
        except ConfigError as error:
            differs, problems = True, [str(problem) for problem in error.problems]
    return {
        "file": str(snapshot.file),
        "number": snapshot.number,
        "since": snapshot.since / 1e6,
        "differs": differs,
        "changed": [path for path, applied in snapshot.digests.items() if digest(Path(path)) != applied],
        "problems": problems,
    }


def messages(configuration: dict[str, Any]) -> list[str]:
    """Messages for people; none if nothing has to be done."""
    if not configuration["differs"]:
        return []
    if configuration["file"] is None:
        return list(configuration["problems"])
    since = datetime.fromtimestamp(configuration["since"], UTC)
    files = configuration["changed"] or [configuration["file"]]
    named = ", ".join(files[:_MAX_FILES]) + " …" * (len(files) > _MAX_FILES)
    differ = "differs" if len(files) == 1 else "differ"
    begins = f"{named} {differ} from the configuration running since {since:%Y-%m-%d %H:%M:%SZ}"
    problems = configuration["problems"]
    if not problems:
        return [f"{begins}: run `plantlog up` to apply it"]
    n = count(len(problems), "problem")
    more = [f"… run `plantlog config check {configuration['file']}` for all"] if len(problems) > _MAX_PROBLEMS else []
    return [f"{begins}, and `plantlog up` would reject it with {n}:", *problems[:_MAX_PROBLEMS], *more]
