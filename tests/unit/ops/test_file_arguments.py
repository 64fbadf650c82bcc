"""A path of a command that leads to no file, or to another one, is named, with what is expected."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import OperationError
from core.files import file_errors
from core.paths import State
from history.imports.parquet_file import is_parquet
from history.seals.keys import trust_anchors
from history.standalone import UnverifiableError, verify_file
from tests.command import run

_RESTORE = ("admin", "restore", "--repository", "FOLDER", "--passphrase-file")
_PASSWORD = ("user", "add", "anna", "--role", "engineer", "--password-file")


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, Path]:
    """A folder, no file, an empty file and a binary one."""
    named = {name: tmp_path / name for name in ("folder", "missing", "empty", "binary")}
    named["folder"].mkdir()
    named["empty"].touch()
    named["binary"].write_bytes(bytes(range(256)))
    return named


@pytest.mark.parametrize(
    "words",
    [
        ("config", "check"),
        ("up", "--config"),
        ("source", "discover", "plc", "--config"),
        ("source", "import-tags", "--address", "tcp://192.0.2.20:502"),
        ("source", "certificate", "import"),
        ("source", "certificate", "add"),
        ("source", "token", "add", "gateway", "--config"),
        _RESTORE,
        _PASSWORD,
    ],
    ids=" ".join,
)
def test_path_of_a_command(words: tuple[str, ...], paths: dict[str, Path], tmp_path: Path) -> None:
    for name, path in paths.items():
        result = run(tmp_path / "state", *(paths["folder"] if word == "FOLDER" else word for word in words), path)
        output = " ".join((result.out + result.err).split())
        assert (result.code, "Errno" in output) == (1, False), result
        if (words, name) != (_PASSWORD, "empty"):  # an empty password
            assert str(path) in output, result
        if name in ("folder", "missing"):
            found = "a folder" if name == "folder" else "no such file"
            assert f"found {found}; legal: " in output, result


def test_repository_whose_name_is_too_long(tmp_path: Path) -> None:
    (tmp_path / "passphrase").write_text("0123456789abcdef")
    repository = tmp_path / ("x" * 256)
    words = (*_RESTORE[:3], repository, _RESTORE[4], tmp_path / "passphrase")
    result = run(tmp_path / "state", *map(str, words))
    message = f"plantlog: [backup] repository {repository} can't be read: File name too long\n"
    assert (result.code, result.err) == (1, message)
    assert not (tmp_path / "state").exists()


def test_path_of_evidence_or_history(paths: dict[str, Path], tmp_path: Path) -> None:
    for name, found in (("folder", "a folder"), ("missing", "no such file")):
        with pytest.raises(OperationError, match=f"{name}: found {found}; legal: a public key"):
            trust_anchors(State(tmp_path), paths[name])
        with pytest.raises(OperationError, match=f"{name}: found {found}; legal: a file: CSV, Parquet"):
            is_parquet(paths[name])
        with pytest.raises(UnverifiableError, match=f"{name}: found {found}; legal: a Parquet file"):
            verify_file(str(paths[name]), None)


def test_file_that_may_not_be_read() -> None:
    """Root may read any."""
    match = "x: found a file that this account may not read; legal: a text"
    with pytest.raises(OperationError, match=match), file_errors(Path("x"), "a text"):
        raise PermissionError(13, "Permission denied", "x")
