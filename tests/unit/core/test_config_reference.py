"""The pages of options and tag lists and the sample configuration are what the model says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from core.config import reference
from core.config.base import fields_of
from core.config.load import load
from core.config.model import NotifyOptions, Plant, PlantOptions, RetentionOptions
from tests.docs import completed

RENEW = "run `.venv/bin/python -m core.config.reference`"
SAMPLE = reference.SAMPLE.read_text()
# Every option, none commented out; those of TLS need an address with TLS.
ALL_SET = re.sub(r"^#(?=\w+ = |\[)", "", SAMPLE, flags=re.MULTILINE).replace('"tcp://', '"tls://')


IDENTITIES = (r"^(username|password_file) = .*\n", r"^user_(certificate|key)_file = .*\n")  # a user has one


def read(text: str, folder: Path) -> Plant:
    file = folder / "plant.toml"
    file.write_text(completed(text, folder))
    return load(file)


def test_generated_reference_files_are_up_to_date() -> None:
    for file in reference.PAGES:
        page = file.read_text()
        assert "<!-- generated: " in page
        assert reference.page(page) == page, RENEW
    assert reference.sample() == SAMPLE, RENEW


def test_every_option_has_a_description() -> None:
    tables: list[type[Any]] = [*reference.tables().values(), PlantOptions, NotifyOptions]
    silent = [
        f"{table.__name__}.{name}"
        for table in (*tables, *reference.SOURCES.values(), *reference.TAGS.values())
        for name in fields_of(table)
        if name not in reference.meanings(table) and name != "kind"
    ]
    assert silent == []


def test_sample_configuration_contains_only_defaults(tmp_path: Path) -> None:
    plant = read(SAMPLE, tmp_path)
    assert plant.notify is None
    for name in fields_of(Plant).keys() - {"name", "sources", "retention", "notify"}:
        options = getattr(plant, name)
        assert options == type(options)()
    assert plant.retention == {"default": RetentionOptions()}
    for source in plant.sources:
        assert not_default(source) <= {"name", "kind", "address", "tags", "token_file"}


@pytest.mark.parametrize("other", IDENTITIES)
def test_sample_configuration_has_every_option_and_is_valid(other: str, tmp_path: Path) -> None:
    plant = read(re.sub(other, "", ALL_SET, flags=re.MULTILINE), tmp_path)
    content = tomllib.loads(ALL_SET)
    tables: dict[str, Any] = {"plant": PlantOptions, "notify": NotifyOptions, **reference.tables()}
    for name, table in tables.items():
        first, _, second = name.partition(".")
        assert (content[first][second] if second else content[first]).keys() == fields_of(table).keys()
    for source in content["source"]:
        assert source.keys() == fields_of(reference.SOURCES[source["kind"]]).keys()
    for options in (plant.notify, plant.viewer, plant.storage, plant.backup, plant.archive, *plant.sources):
        named = {"name", "kind", "address", "tags", "token_file"}
        assert not_default(options) <= named | reference.EXAMPLES.keys()


def not_default(options: Any) -> set[str]:
    return {name for name, field in fields_of(type(options)).items() if getattr(options, name) != field.default}
