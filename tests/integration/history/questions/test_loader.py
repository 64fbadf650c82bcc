"""The files of the questions: their headers, and that their examples can be asked."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

import pytest

from schema.question_files import FOLDER, questions, read
from tests.command import run as plantlog
from tests.integration.history.questions.recording import Recording

_EXAMPLE = re.compile(r"^Example: plantlog (.+)$", re.MULTILINE)
_CHANNELS = ("boilerhouse/boiler1/fuel", "boilerhouse/pressure_sp", "area/mode", "tankfarm/level")


@pytest.mark.parametrize("name", sorted(questions()))
async def test_the_example_of_a_question_can_be_asked(recorded: Recording, name: str) -> None:
    for channel in _CHANNELS:
        await recorded.samples(channel, [0], [1.0])
    header = questions()[name].header
    assert "\nCost: " in header
    [example] = _EXAMPLE.findall(header)
    done = await asyncio.to_thread(plantlog, recorded.state.root, *shlex.split(example))
    assert done.code == 0, done.err


async def test_defaults_are_values_of_their_types_and_columns_shown_first_exist(recorded: Recording) -> None:
    for question in questions().values():
        for parameter in question.parameters:
            if parameter.default is not None:
                value = await recorded.fetch(f"SELECT CAST($1::text AS {parameter.type}) AS it", parameter.default)
                assert value[0]["it"] is not None
        assert all(re.search(rf"\b{column}\b", question.portion) for column in question.summary_columns)


@pytest.mark.parametrize(
    ("old", "new"),
    [("-- stuck_sensors: ", "-- "), ("-- Parameters\n", ""), ("-- Portions: unit\n", ""), (";\n", "\n")],
)
def test_question_file_without_its_parts_is_refused(tmp_path: Path, old: str, new: str) -> None:
    file = tmp_path / "stuck_sensors.sql"
    text = (FOLDER / file.name).read_text()
    file.write_text(text)
    assert read(file).name == "stuck_sensors"
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(ValueError, match=r"stuck_sensors\.sql must begin with '-- stuck_sensors: purpose'"):
        read(file)
