"""The Debian package on a booted machine: installed, started at boot, upgraded under load, not downgraded, removed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.paths import CHECKOUT, plantlog_version
from core.timestamps import now_us
from tests.booted import STATE, Machine, machine
from tests.chaos.test_service import until_collecting

SECOND = 1_000_000  # µs
_BUILD_SECONDS = 1500  # where nfpm is built
_LONGEST = 3400  # s: of lintian, on a machine that is busy
_NEWER = "999.0.0"
_AS_ROOT = ("env", "-u", "PLANTLOG_STATE")  # nothing says where anything is


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This version as a package."""
    python = Path(f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}")
    if not python.exists() or shutil.which("dpkg") is None or shutil.which("go") is None:
        pytest.skip(f"a package of Debian requires dpkg, {python}, and Go to build nfpm")
    folder = tmp_path_factory.mktemp("packages")
    command = [sys.executable, "-P", "-m", "ops.packaging", str(folder)]
    run = subprocess.run(
        command, cwd=CHECKOUT, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout + run.stderr
    (path,) = folder.glob("*.deb")
    assert len([*folder.glob("*.rpm")]) == 1
    return path


@pytest.fixture
def newer(package: Path, tmp_path: Path) -> Path:
    """Package with a higher version, whose code differs in all but the simulator."""
    tree, path = tmp_path / "tree", tmp_path / "newer" / "plantlog.deb"
    path.parent.mkdir()
    subprocess.run(["dpkg-deb", "--raw-extract", str(package), str(tree)], check=True)
    version = plantlog_version()
    for file in ("DEBIAN/control", "usr/lib/plantlog/pyproject.toml"):
        text = (tree / file).read_text()
        assert version in text
        (tree / file).write_text(text.replace(version, _NEWER, 1))
    for folder in ("core", "dashboards", "history", "ingest", "ops", "schema"):
        with (tree / "usr/lib/plantlog" / folder / "__init__.py").open("a") as code:
            code.write("# newer\n")
    with (tree / "etc/plantlog/plant.toml").open("a") as conffile:
        conffile.write("# newer\n")
    subprocess.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(path)], check=True)
    shutil.rmtree(tree)
    return path


@pytest.fixture
def booted(package: Path, newer: Path, tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path, package.parent, newer.parent) as one:
        yield one


def dpkg(booted: Machine, *arguments: str, code: int = 0) -> str:
    return booted.run("env", "LC_ALL=C", "dpkg", *arguments, code=code)


def processes(booted: Machine) -> dict[str, int]:
    """Name → pid."""
    status = json.loads(booted.run(*_AS_ROOT, "plantlog", "status", "--json"))
    return {process["name"]: process["pid"] for process in status["processes"]}


def silent_losses(booted: Machine, from_us: int, to_us: int) -> dict[str, int]:
    """The comparison of the table with the simulator's ground truth."""
    until_collecting(booted)  # later than ``to_us``
    between = ("--from", str(from_us), "--to", str(to_us), "--json")
    return dict(json.loads(booted.run(*_AS_ROOT, "plantlog", "lab", "simulator", "compare", *between)))


@pytest.mark.timeout(3600)
def test_package_from_its_installation_to_its_purge(booted: Machine, package: Path, newer: Path) -> None:
    assert "plant.toml" in dpkg(booted, "--install", str(package))
    assert booted.run("stat", "--format=%U %G %a", str(STATE), "/etc/plantlog").splitlines() == [
        "plantlog plantlog 700",
        "root plantlog 750",
    ]
    assert "one or more tables [[source]]" in booted.run(*_AS_ROOT, "plantlog", "config", "check", code=1)

    booted.run("cp", "-rT", "/usr/lib/plantlog/ops/example", "/etc/plantlog")
    booted.run(*_AS_ROOT, "plantlog", "up", "--simulator")
    booted.run(*_AS_ROOT, "plantlog", "admin", "service", "install")
    units = (f"{folder}/systemd/system/plantlog.service" for folder in ("/etc", "/usr/lib"))
    booted.run("cmp", *units)  # of this plant, the package's does as well
    until_collecting(booted)
    booted.reboot()
    until_collecting(booted)
    assert booted.run("find", str(STATE), "!", "-user", "plantlog") == ""

    start, before, main = now_us(), processes(booted), booted.show("MainPID")
    plant = booted.run("sha256sum", "/etc/plantlog/plant.toml")
    dpkg(booted, "--force-confdef", "--install", str(newer))  # else dpkg asks: both have changed plant.toml
    until_collecting(booted)
    result = silent_losses(booted, start, now_us())
    assert {result[name] for name in ("duplicated", "invented", "altered", "missing_silent")} == {0}, result
    assert result["published"] > 0
    assert booted.show("MainPID") == main
    after = processes(booted)
    restarted = {name for name, pid in before.items() if after[name] != pid}
    assert {"collector-opcua", "collector-modbus", "writer"} <= restarted
    assert "postgres" not in restarted
    assert _NEWER in booted.run(*_AS_ROOT, "plantlog", "--version")
    assert booted.run("sha256sum", "/etc/plantlog/plant.toml") == plant
    assert "# newer" in booted.run("cat", "/etc/plantlog/plant.toml.dpkg-dist")
    assert booted.run("find", str(STATE), "!", "-user", "plantlog") == ""

    refusal = dpkg(booted, "--install", str(package), code=1)
    assert f"plantlog {_NEWER}-1 has upgraded the database" in refusal
    assert "downgrades are not supported" in refusal
    assert dpkg(booted, "--status", "plantlog").count("install ok installed\n") == 1
    assert _NEWER in booted.run(*_AS_ROOT, "plantlog", "--version")
    until_collecting(booted)

    dpkg(booted, "--remove", "plantlog")
    assert booted.show("ActiveState") == "inactive"
    assert (booted.state / "registry.json").exists()
    assert booted.run("sha256sum", "/etc/plantlog/plant.toml") == plant
    booted.run("test", "-e", "/usr/lib/plantlog", code=1)
    assert "downgrades are not supported" in dpkg(booted, "--install", str(package), code=1)

    dpkg(booted, "--install", str(newer))
    booted.run(*_AS_ROOT, "plantlog", "down", "--wipe", "--yes")
    assert [*booted.state.iterdir()] == []
    (booted.state / "samples").write_text("more")
    dpkg(booted, "--purge", "plantlog")
    booted.run("test", "-e", "/etc/plantlog/plant.toml", code=1)
    assert [*booted.state.iterdir()] == []


@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("lintian") is None, reason="without lintian")
def test_package_has_no_errors(package: Path) -> None:
    run = subprocess.run(
        ["lintian", "--fail-on", "error", str(package)], capture_output=True, text=True, check=False, timeout=_LONGEST
    )
    assert run.returncode == 0, run.stdout + run.stderr
