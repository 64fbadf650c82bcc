"""Contents of plantlog's packages, as far as it shows without making them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from core.bundle import LOCKS
from core.config.load import load
from core.paths import CHECKOUT, EXAMPLE, State
from ops.appliance.up import UpOptions, deployment_for
from ops.deployment import Deployment, chosen_config
from ops.packaging.build import CODE, FILES, package_version
from ops.packaging.manual import LIBRARY, page
from ops.service.unit import Service


def test_versions_sort_as_those_of_python_do() -> None:
    versions = ("1.1.0.dev1", "1.1.0a1", "1.1.0b2", "1.1.0rc1.dev1", "1.1.0rc1", "1.1.0", "1.1.0.post1", "1.1.1")
    mapped = [package_version(version) for version in versions]
    assert mapped[0] == "1.1.0~~dev1"
    assert mapped[4:7] == ["1.1.0~rc1", "1.1.0", "1.1.0+post1"]
    lines = "\n".join(reversed(mapped))
    output = subprocess.run(["sort", "--version-sort"], input=lines, capture_output=True, text=True, check=True)
    assert output.stdout.split() == mapped


def test_package_has_all_code_but_the_tests() -> None:
    assert set(CODE) == {path.parent.name for path in CHECKOUT.glob("*/__init__.py")} - {"tests"}


def test_package_has_the_lock_files_that_a_bundle_is_compared_with() -> None:
    assert {*LOCKS} <= {*FILES}


def test_unit_does_not_depend_on_where_it_is_made() -> None:
    state, config = Path("/var/lib/plantlog"), Path("/etc/plantlog/plant.toml")
    unit = Service("plantlog", "plantlog", state, config, load(EXAMPLE), checkout=LIBRARY).render()
    assert "ExecStart=/usr/lib/plantlog/plantlog admin service run" in unit
    assert {"ProtectHome=yes", "PrivateTmp=yes", "CapabilityBoundingSet="} <= {*unit.splitlines()}
    assert str(CHECKOUT) not in unit


def test_manual_has_every_command() -> None:
    lines = page("1.2.3").splitlines()
    assert lines[0] == '.TH PLANTLOG 1 "" "plantlog 1.2.3" "User Commands"'
    sections = [line.replace("\\-", "-") for line in lines if line.startswith(".SS ")]
    for path in ("plantlog up [OPTIONS]", "plantlog admin service install [OPTIONS]", "plantlog evidence verify"):
        assert any(section.startswith(f".SS {path}") for section in sections), path
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".SS", ".TP", ".B", ".I"}, "a line of the help is taken for a request"
    assert r".B \-\-replace\-plant" in lines
    assert any(line.endswith("[default: /usr/lib/plantlog]") for line in lines)  # not the checkout


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_shell_gets_its_completion(shell: str) -> None:
    def output(**environment: str) -> str:
        command = [sys.executable, "-P", "-m", "ops"]
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), **environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert "plantlog" in output(_PLANTLOG_COMPLETE=f"source_{shell}")
    if shell == "bash":
        words = {"COMP_WORDS": "plantlog admin s", "COMP_CWORD": "2"}
        assert output(_PLANTLOG_COMPLETE="complete_bash", **words).split() == ["service", "spool"]


def test_plant_of_the_package_lacks_its_sources_only() -> None:
    text = (CHECKOUT / "ops" / "packaging" / "plant.toml").read_text()
    assert tomllib.loads(text) == {"plant": {"name": "plant"}}
    filled = text.replace("\n# [[", "\n[[").replace("\n# name", "\nname").replace("\n# kind", "\nkind")
    assert tomllib.loads(filled)["source"] == [{"name": "press", "kind": "opcua"}]


def test_first_configuration_is_that_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, last = State(tmp_path), tmp_path / "last.toml"
    monkeypatch.delenv("PLANTLOG_CONFIG", raising=False)
    assert chosen_config(None, state) == EXAMPLE
    monkeypatch.setenv("PLANTLOG_CONFIG", "/etc/plantlog/plant.toml")
    assert chosen_config(None, state) == Path("/etc/plantlog/plant.toml")
    assert deployment_for(state, UpOptions()) == Deployment(Path("/etc/plantlog/plant.toml"), simulator=False)
    (tmp_path / "run").mkdir()
    Deployment(last, simulator=False).save(state)
    assert chosen_config(None, state) == deployment_for(state, UpOptions()).config == last
    assert chosen_config(tmp_path / "named.toml", state) == tmp_path / "named.toml"
