"""README names nothing that does not exist: commands, options, files, modules. What can be run is, in tests/e2e."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from ops import __main__ as command_line
from ops.paths import CHECKOUT
from tests import readme

command_line._mount()  # what main() does
APP = command_line.app
ROOT: Any = typer.main.get_command(APP)
MADE = {CHECKOUT / "ops/prometheus/targets/native.json"}  # by a command that stands beside it
PASSED_ON = {"psql", "simulator", "test"}  # their arguments go to another program


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    for name, one in getattr(command, "commands", {}).items():
        yield from commands(one, (*path, name))


ALL = dict(commands(ROOT))


def resolved(words: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """The longest path of commands that the words begin with, and the words behind it."""
    length = max(n for n in range(len(words) + 1) if tuple(words[:n]) in ALL)
    return tuple(words[:length]), list(words[length:])


def unknown(words: Sequence[str]) -> list[str]:
    """What a command line of README says that plantlog does not know."""
    path, rest = resolved(words)
    if not path:
        return [f"no command {words[0]}"]
    if path[0] in PASSED_ON:
        return []
    said = [word.strip("[]…") for word in rest[: rest.index(">") if ">" in rest else None]]
    if hasattr(ALL[path], "commands"):
        return [f"{' '.join(path)} has no command {said[0]}"] if said and said[0][:1].isalpha() else []
    options = {name for option in ALL[path].params for name in (*option.opts, *option.secondary_opts)}
    if path == ("ask",):
        return []  # a question's own options; they are asked for real
    return [f"{' '.join(path)} has no option {word}" for word in said if word[:1] == "-" and word not in options]


def test_every_command_of_readme_is_one() -> None:
    lines = readme.plantlog()
    assert len(lines) > 30, "README is read wrongly"
    assert [found for words in lines for found in unknown(words)] == []


def test_what_the_table_says_of_commands_is_so() -> None:
    rows = readme.table()
    assert len(rows) > 15, "README is read wrongly"
    wrong = []
    for left, right in rows:
        for command in left:
            path, _ = resolved(command.split())
            assert path, f"no command {command}"
            for code in right:
                group = hasattr(ALL[path], "commands")
                if code.startswith("--") or (group and code.replace("-", "").split()[0].isalpha()):
                    wrong += unknown([*path, *code.split()])
    assert wrong == []


def test_commands_within_sentences_are_some() -> None:
    said = [words for code in readme.spans() if len(words := code.split()) > 1 and (words[0],) in ALL]
    assert len(said) > 4, "README is read wrongly"
    assert [found for words in said for found in unknown(words)] == []


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "plantlog")
def test_every_command_has_help(path: tuple[str, ...]) -> None:
    if path[:1] and path[0] in PASSED_ON:
        return
    run = CliRunner().invoke(APP, [*path, "--help"])
    assert run.exit_code == 0, run.output
    assert "Usage: " in run.output


def test_every_command_is_in_readme() -> None:
    named = {resolved(words)[0][0] for words in readme.plantlog()}
    named |= {command.split()[0] for left, _ in readme.table() for command in left}
    assert set(ROOT.commands) == named


def test_every_file_is_there() -> None:
    files = set(readme.files())
    assert len(files) > 15, "README is read wrongly"
    assert [str(file) for file in sorted(files - MADE) if not file.exists()] == []


def test_every_module_is_there() -> None:
    modules = [words[words.index("-m") + 1] for words in readme.lines() if words[0].endswith("python")]
    assert modules
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []
