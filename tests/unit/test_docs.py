"""The documentation names nothing that does not exist. What can be run is, in tests/e2e/test_demo.py."""

from __future__ import annotations

import csv
import importlib.util
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
from rich.text import Text
from typer.testing import CliRunner

from core.batch import EVENT_TYPES, GAP_REASONS
from core.config.load import load
from core.paths import CHECKOUT, EXAMPLE
from ops.cli import app as command_line
from ops.maintenance.jobs import jobs
from schema.question_files import questions
from tests import docs

APP = command_line.application()
ROOT: Any = typer.main.get_command(APP)
_CODE_FILE = re.compile(r"(?<![\w./{}-])(?:[\w-]+/)+[\w-]+\.(?:py|sql)\b")
MADE = {CHECKOUT / "ops/prometheus/targets/native.json"}  # by a command that stands beside it
PASSED_ON = {"psql", "lab simulator", "test"}  # their arguments go to another program
SQL = CHECKOUT / "docs" / "sql.md"
QUESTIONS = CHECKOUT / "docs" / "questions.md"
WRITER_ALONE = {"version_read"}  # events that become something else


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
    """Words of a command line that plantlog does not know."""
    path, rest = resolved(words)
    if not path:
        known = {"--help", *(name for option in ROOT.params for name in option.opts)}
        return [f"no command or option {word}" for word in rest[:1] if word not in known]
    if " ".join(path) in PASSED_ON:
        return []
    output = [word.strip("[]…") for word in rest]
    if hasattr(ALL[path], "commands"):
        return [f"{' '.join(path)} has no command {output[0]}"] if output and output[0][:1].isalpha() else []
    options = {name for option in ALL[path].params for name in (*option.opts, *option.secondary_opts)}
    if path == ("ask",):
        return []  # a question's own options; they are asked for real
    return [f"{' '.join(path)} has no option {word}" for word in output if word[:1] == "-" and word not in options]


def test_every_code_block_has_a_tested_language() -> None:
    assert [str(block) for block in docs.blocks() if block.language not in docs.LANGUAGES] == []


def test_every_script_block_has_commands() -> None:
    scripts = docs.blocks("sh", "sh continues", "sh fails", "sh no_run")
    assert len(scripts) > 20, "the documentation is read wrongly"
    assert [str(block) for block in scripts if not [*docs.simple_commands(block.text)]] == []


def test_every_documented_command_exists() -> None:
    lines = docs.plantlog()
    assert len(lines) > 30, "the documentation is read wrongly"
    assert [found for words in lines for found in unknown(words)] == []


def test_command_tables_are_correct() -> None:
    rows = docs.command_rows()
    assert len(rows) > 15, "the documentation is read wrongly"
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


def test_inline_commands_are_found() -> None:
    output = [words for code in docs.spans() if len(words := code.split()) > 1 and (words[0],) in ALL]
    assert output, "the documentation is read wrongly"
    assert [found for words in output for found in unknown(words)] == []


def test_every_command_has_help() -> None:
    assert [path for path in ALL if not ALL[path].help] == []
    for path in ((), ("up",), ("admin", "spool")):  # each takes 50 ms
        run = CliRunner().invoke(APP, [*path, "--help"])
        assert run.exit_code == 0, run.output
        assert "Usage: " in run.output


def test_a_stranger_sees_few_commands() -> None:
    assert len(ROOT.commands) <= 15
    assert list(ROOT.list_commands(None)) == list(command_line.COMMANDS)


@pytest.mark.parametrize(("former", "now"), command_line.FORMER.items(), ids=command_line.FORMER)
def test_former_spelling_is_a_command_of_today(former: str, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert (*now.split(),) in ALL
    assert command_line._current([*former.split(), "--help"]) == [*now.split(), "--help"]
    assert capsys.readouterr().err == f"plantlog: `{former}` is `plantlog {now}` now\n"


@pytest.mark.parametrize("path", ALL, ids=lambda path: " ".join(path) or "plantlog")
def test_help_has_no_word_that_is_taken_for_markup(path: tuple[str, ...]) -> None:
    texts = [ALL[path].help or "", *(getattr(option, "help", None) or "" for option in ALL[path].params)]
    assert [text for text in texts if Text.from_markup(text).plain != text] == []


def test_every_command_is_documented() -> None:
    named = {path[0] for words in docs.plantlog() if (path := resolved(words)[0])}
    named |= {command.split()[0] for left, _ in docs.command_rows() for command in left}
    assert set(ROOT.commands) == named


def test_every_mentioned_file_exists() -> None:
    files = set(docs.files())
    assert len(files) > 30, "the documentation is read wrongly"
    assert [str(file) for file in sorted(files - MADE) if not file.exists()] == []


def test_every_file_that_code_mentions_exists() -> None:
    """In docstrings, comments and the headers of SQL, from any folder on."""
    rooms = ("core", "dashboards", "history", "ingest", "lab", "ops", "schema", "simulator")
    sources = [path for room in rooms for path in (CHECKOUT / room).rglob("*.*") if path.suffix in (".py", ".sql")]
    files = [f"/{path}" for path in sources]
    named = {(path, name) for path in sources for name in _CODE_FILE.findall(path.read_text(encoding="utf-8"))}
    assert len(named) > 40
    assert sorted((str(path), name) for path, name in named if not any(f.endswith(f"/{name}") for f in files)) == []


def test_everything_of_the_schema_that_code_mentions_exists() -> None:
    """In docstrings of Python: ``plant.NAME``."""
    schema = "\n".join(path.read_text(encoding="utf-8") for path in (CHECKOUT / "schema").glob("[!m]*/**/*.sql"))
    named = {
        (path, name)
        for room in ("core", "dashboards", "history", "ingest", "lab", "ops", "simulator")
        for path in (CHECKOUT / room).rglob("*.py")
        for name in re.findall(r"``plant\.(?!toml)(\w+)[`(]", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert sorted((str(path), name) for path, name in named if f"plant.{name}" not in schema) == []


def test_every_folder_of_a_room_has_a_line() -> None:
    text = (CHECKOUT / "docs/contributing.md").read_text(encoding="utf-8")
    table = text.partition("## Where things are")[2].partition("\n## ")[0]
    rooms = ("schema", "core", "ingest", "history", "ops", "dashboards", "lab")
    folders = {file.parent.relative_to(CHECKOUT) for room in rooms for file in (CHECKOUT / room).glob("[!_]*/[!_]*.*")}
    assert len(folders) > 40
    assert sorted(str(folder) for folder in folders if f"`{folder}/`" not in table) == []


def test_every_mentioned_module_exists() -> None:
    modules = [words[words.index("-m") + 1] for words in docs.lines() if words[0].endswith("python")]
    assert modules
    assert [module for module in modules if importlib.util.find_spec(module) is None] == []


def test_every_mentioned_ci_stage_exists() -> None:
    script = (CHECKOUT / ".ci" / "run").read_text()
    named = {stage for words in docs.lines() if words[0] == ".ci/run" for stage in words[1:]}
    assert "full" in named
    stages = re.split(r"[+ ]", " ".join(re.findall(r'^(?:gate|full)="(.*)"', script, re.MULTILINE)))
    assert named - {"full", *stages} == set()


def test_every_link_target_exists() -> None:
    assert docs.dead_links() == []


def test_no_page_is_too_long() -> None:
    pages = [page for page in docs.PAGES if len(page.read_text().splitlines()) > 600]
    assert pages == []


def test_every_page_is_in_the_readme() -> None:
    readme = (CHECKOUT / "README.md").read_text()
    assert [page.name for page in docs.PAGES[1:] if f"(docs/{page.name})" not in readme] == []


def test_readme_stays_short() -> None:
    assert (CHECKOUT / "README.md").stat().st_size <= 10_240


def test_each_row_of_what_was_tried_names_its_test() -> None:
    section = (CHECKOUT / "README.md").read_text().partition("## Tried on\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 10, "the README is read wrongly"
    assert [row for row in rows if "::" not in row and "| by hand |" not in row] == []
    tests = re.findall(r"`(test_\w+\.py)::(test_\w+)`", section)
    files = {name: [*(CHECKOUT / "tests").rglob(name)] for name, _ in tests}
    assert [
        (name, test) for name, test in tests if not any(f"def {test}(" in path.read_text() for path in files[name])
    ] == []


@pytest.mark.parametrize("block", docs.blocks("toml"), ids=str)
def test_every_configuration_example_is_valid(block: docs.Block, tmp_path: Path) -> None:
    file = tmp_path / "plant.toml"
    file.write_text(docs.completed(block.text, tmp_path))
    load(file)


def test_queries_are_in_code_blocks() -> None:
    assert [code for code in docs.spans() if re.match(r"(SELECT|CALL)\b", code)] == []
    assert len(docs.blocks("sql")) > 10, "the documentation is read wrongly"


def test_every_queried_channel_exists_in_the_example() -> None:
    files = (EXAMPLE.parent / "tags").glob("*.csv")
    rows = [row for file in files for row in csv.DictReader(file.read_text().splitlines())]
    named = {name for block in docs.blocks("sql") for name in re.findall(r"name = '([^']+)'", block.text)}
    assert named
    assert named <= {row["name"] for row in rows}


def test_every_gap_reason_is_documented() -> None:
    assert set(docs.names(SQL, "Gaps")) - {"gap", "gap_channel", "member_gap", "coverage", "quarantine"} == set(
        GAP_REASONS
    )


def test_every_reason_of_gaps_and_coverage_is_documented() -> None:
    question = questions()["gaps_and_coverage"].portion
    named = set(re.findall(r"(?:SELECT \w+\.channel_id,|THEN) '(\w+)'", question))
    assert len(named) == 4, "the question is read wrongly"
    assert [reason for reason in named if f"`{reason}`," not in SQL.read_text()] == []


def test_every_event_type_is_documented() -> None:
    named = set(docs.names(SQL, "Events"))
    schema = "".join(file.read_text() for file in (CHECKOUT / "schema").rglob("*.sql"))
    assert set(EVENT_TYPES) - WRITER_ALONE <= named
    assert [name for name in named - set(EVENT_TYPES) if f"'{name}'" not in schema] == []


def test_every_question_is_documented() -> None:
    assert set(docs.names(QUESTIONS, "Questions")) == set(questions())


def test_every_job_is_documented() -> None:
    page = CHECKOUT / "docs" / "operations.md"
    assert set(docs.names(page, "Maintenance")) == {job.name for job in jobs()}


def test_every_mentioned_metric_and_alert_exists() -> None:
    known = "".join((CHECKOUT / file).read_text() for file in ("core/metrics.py", "ops/prometheus/rules/plantlog.yml"))
    named = {code for code in docs.spans() if re.fullmatch(r"plantlog_\w+_\w+|Plantlog[A-Z]\w+", code)}
    assert named
    assert [name for name in named if name not in known] == []
