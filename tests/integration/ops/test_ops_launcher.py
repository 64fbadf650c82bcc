"""The launcher script, without building an environment: what it says where Python is too old or away."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from core.paths import CHECKOUT

_LAUNCHER = CHECKOUT / "plantlog"
_LOCKS = ("requirements.lock", "requirements-first.lock")
_TOOLS = ("bash", "readlink", "dirname", "cmp", "flock", "touch", "cp", "rm", "grep", "mkdir", "rmdir", "find")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout without a virtual environment, and a PATH with the tools and no Python."""
    checkout = tmp_path / "a checkout"
    checkout.mkdir()
    shutil.copy(_LAUNCHER, checkout)
    for lock in _LOCKS:
        (checkout / lock).touch()
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in _TOOLS:
        found = shutil.which(tool)
        assert found is not None
        (tools / tool).symlink_to(found)
    return checkout


def run(checkout: Path) -> subprocess.CompletedProcess[str]:
    path = str(checkout.parent / "bin")
    command = [f"{path}/bash", str(checkout / "plantlog"), "config", "check"]
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True, check=False)


def python(checkout: Path, name: str, code: str) -> None:
    path = checkout.parent / "bin" / name
    path.write_text(f"#!/bin/bash\n{code}\n")
    path.chmod(0o755)


def test_missing_python_is_reported(checkout: Path) -> None:
    result = run(checkout)
    assert result.returncode == 1
    assert "Python 3.11 or newer with its venv module is required" in result.stderr
    assert not (checkout / ".venv").exists()


def test_too_old_python_is_reported(checkout: Path) -> None:
    python(checkout, "python3", "exit 1")  # what `sys.exit(sys.version_info < (3, 11))` gives
    result = run(checkout)
    assert result.returncode == 1
    assert "is required" in result.stderr


def test_newer_python_later_on_the_path_is_found(checkout: Path) -> None:
    python(checkout, "python3", "exit 1")
    python(
        checkout,
        "python3.12",
        'case $1 in -c | -P) exit 0;; --version) echo Python 3.12.0;; *) echo "$@"; exit 3;; esac',
    )
    output = run(checkout)
    assert "with Python 3.12.0" in output.stderr
    assert output.stdout == f"-m venv {checkout}/.venv\n"


def test_interrupted_installation_is_made_again(checkout: Path) -> None:
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    for lock in _LOCKS:
        shutil.copy(checkout / lock, venv)
    (venv / "installing").touch()
    python(
        checkout, "python3", 'case $1 in -c | -P) exit 0;; --version) echo Python 3.11.9;; *) echo "$@"; exit 3;; esac'
    )
    assert run(checkout).stdout == f"-m venv {venv}\n"
    assert [path.name for path in venv.iterdir()] == ["installing"]


def test_environment_of_the_same_lock_is_reused(checkout: Path) -> None:
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    for lock in _LOCKS:
        shutil.copy(checkout / lock, venv)
    (venv / "bin" / "python").write_text('#!/bin/bash\necho "$PYTHONPATH" "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    assert run(checkout).stdout == f"{checkout} -P -m ops config check\n"


@pytest.mark.parametrize(
    ("configuration", "status", "installers"),
    [
        ("global.cert='/etc/ssl/ca.crt'", 0, ["uv"]),
        ("", 1, ["uv", "pip"]),
        ("global.index-url='https://registry.plant/simple'", 0, ["pip"]),
    ],
)
def test_uv_installs_where_pip_has_no_registry_of_its_own(
    checkout: Path, configuration: str, status: int, installers: list[str]
) -> None:
    venv, log = checkout / ".venv", checkout.parent / "installers"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(checkout / "requirements-first.lock", venv)
    programs = {
        "python": f'case "$*" in *"pip "*" config list") echo "{configuration}";;'
        f' *"pip "*" install --no-warn-conflicts "*) echo pip >> "{log}";; esac',
        "uv": f'echo uv >> "{log}"; exit {status}',
    }
    for name, code in programs.items():
        (venv / "bin" / name).write_text(f"#!/bin/bash\n{code}\n")
        (venv / "bin" / name).chmod(0o755)
    assert run(checkout).returncode == 0
    assert log.read_text().split() == installers
    assert (venv / "requirements.lock").exists()
    assert not (venv / "installing").exists()


def test_wheels_of_a_bundle_are_all_that_is_asked(checkout: Path) -> None:
    venv, log = checkout / ".venv", checkout.parent / "asked"
    (venv / "bin").mkdir(parents=True)
    shutil.copy(checkout / "requirements-first.lock", venv)
    programs = {
        "python": 'case "$*" in *"core.bundle"*) /bin/mkdir "$4";; *"pip "*" config list") echo index;; esac',
        "uv": f'echo "$@" >> "{log}"; [ -d "{venv}/wheels" ]',
    }
    for name, code in programs.items():
        (venv / "bin" / name).write_text(f"#!/bin/bash\n{code}\n")
        (venv / "bin" / name).chmod(0o755)
    assert run(checkout).returncode == 0
    assert f"--no-index --find-links {venv}/wheels -r {checkout}/requirements.lock" in log.read_text()
    assert not (venv / "wheels").exists()


def test_bundle_that_is_refused_installs_nothing(checkout: Path) -> None:
    venv = checkout / ".venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").write_text(
        '#!/bin/bash\ncase "$*" in *core.bundle*) echo "plantlog: damaged" >&2; exit 1;; *" install "*) exit 3;; esac\n'
    )
    (venv / "bin" / "python").chmod(0o755)
    result = run(checkout)
    assert (result.returncode, result.stderr) == (1, "plantlog: damaged\n")
    assert {path.name for path in venv.iterdir()} == {"bin"}


def test_bundle_that_is_refused_at_first_makes_no_environment(checkout: Path) -> None:
    python(checkout, "python3", 'case $1 in -c) exit 0;; *) echo "plantlog: damaged" >&2; exit 1;; esac')
    result = run(checkout)
    assert (result.returncode, result.stderr) == (1, "plantlog: damaged\n")
    assert not (checkout / ".venv").exists()


def test_concurrent_start_waits_for_the_installation(checkout: Path) -> None:
    venv, hold = checkout / ".venv", checkout.parent / "hold"
    (venv / "bin").mkdir(parents=True)
    os.mkfifo(hold)
    shutil.copy(checkout / "requirements-first.lock", venv)
    (venv / "bin" / "python").write_text(f'#!/bin/bash\n[ "$3" != --quiet ] || read -r < "{hold}"\necho "$@"\n')
    (venv / "bin" / "python").chmod(0o755)
    python(checkout, "python3", 'case $1 in -c) exit 0;; *) echo "$@"; exit 3;; esac')
    other = checkout.parent / "other"
    other.mkdir()
    for file in ("plantlog", *_LOCKS):
        shutil.copy(checkout / file, other)
    (other / ".venv").symlink_to(venv)
    path = str(checkout.parent / "bin")

    def started(folder: Path) -> subprocess.Popen[str]:
        command = [f"{path}/bash", str(folder / "plantlog"), "config", "check"]
        return subprocess.Popen(command, env={"PATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    with started(checkout) as first, hold.open("w") as gate:  # open: the first has come to its pip install
        with started(other) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(1)
            gate.close()
            assert second.communicate() == ("-P -m ops config check\n", "")
        assert first.communicate()[0] == "-P -m ops config check\n"
