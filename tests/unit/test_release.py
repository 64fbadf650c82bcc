"""Contents of a release: its version, licences and changes."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

from typer.testing import CliRunner

from core.paths import CHECKOUT
from ops.cli.app import application

with (CHECKOUT / "pyproject.toml").open("rb") as _file:
    PROJECT = tomllib.load(_file)["project"]


def _text(name: str) -> str:
    return Path(CHECKOUT / name).read_text(encoding="utf-8")


def test_version_is_printed() -> None:
    text = CliRunner().invoke(application([]), ["--version"])
    assert (text.exit_code, text.output) == (0, f"plantlog {PROJECT['version']}\n")


def test_changelog_begins_with_this_version() -> None:
    sections = re.findall(r"^## (.+)$", _text("CHANGELOG.md"), re.MULTILINE)
    assert sections[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(PROJECT['version'])}\] - \d{{4}}-\d\d-\d\d", sections[1])
    kinds = set(re.findall(r"^### (.+)$", _text("CHANGELOG.md"), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_notice_names_every_installed_package() -> None:
    assert PROJECT["license"] == "Apache-2.0"
    assert "Apache License\n                           Version 2.0, January 2004" in _text("LICENSE")
    made = runpy.run_path(str(CHECKOUT / ".ci" / "notice.py"))["notice"]()
    assert _text("NOTICE") == made, "run `.venv/bin/python .ci/notice.py > NOTICE`"
