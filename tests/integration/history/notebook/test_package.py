"""The package ``plantlog_archive``: it installs alone, and its notebook runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from core.paths import CHECKOUT
from ops.packaging import wheel
from tests import peer_builds
from tests.integration.history.archive_site import Site
from tests.integration.history.sealed_plant import DAY, public_key

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_NEEDED = {*wheel.REQUIRED, "cffi", "pycparser"}  # cryptography needs the last two
_NOTEBOOK = CHECKOUT / "docs" / "notebook.ipynb"
_READ = """
import sys
import plantlog_archive
archive, key, day = sys.argv[1:]
options = {"start": f"{day}T05:00", "end": f"{day}T08:00"}
samples = plantlog_archive.samples(archive, ["unit/*"], **options, verify=True, key=key)
curves = plantlog_archive.series(archive, ["unit/pressure"], **options, step="1m")
gaps = plantlog_archive.gaps(archive, ["unit/pressure"], **options)
[mean] = plantlog_archive.aggregates(archive, "unit/pressure", end=f"{day}T05:01", start=f"{day}T05:00")["value"]
assert 40.2 < mean.as_py() < 40.4, mean
[value] = plantlog_archive.interpolated(archive, "unit/pressure", times=[f"{day}T05:00:01"])["value"]
assert value.as_py() == 40.01, value
print(samples.num_rows, curves["n"].to_pylist(), gaps["reason"].to_pylist())
try:
    plantlog_archive.samples(archive, verify=True, key="nothing")
except plantlog_archive.ArchiveError as error:
    print(error)
rows = plantlog_archive.ask(archive, "gaps_and_coverage", since=f"{day}T05:00", until=f"{day}T08:00", key=key)
print(sorted(rows["channel"].to_pylist()), rows.schema.metadata)
from plantlog_archive.history.sql.sources.processes import Processes
processes = Processes(2)
print(processes.submit(max, 3, 4).result())
processes.shutdown()
for location, question in (("stuck_sensors", None), (key, "stuck_sensors")):
    try:
        plantlog_archive.ask(location, question, since="1h")
    except plantlog_archive.ArchiveError as error:
        print(error)
from plantlog_archive import *
others = {"asyncpg", "pydantic", "rich", "polars", "pandas", "matplotlib", "core", "history", "schema"}
print(sorted(others & {*sys.modules}))
"""
# Executes the notebook in argv[1] with the parameters in argv[2], and writes it to argv[3]. Kernel and client talk by
# files of a folder with a short path, as ports may be taken, and paths of sockets have at most 107 bytes.
_FONTS = "Matplotlib is building the font cache"  # which it says where that takes more than five seconds
_EXECUTE = """
import json, sys
import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
[parameters] = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
parameters.source = "\\n".join(f"{name} = {value!r}" for name, value in json.loads(sys.argv[2]).items())
manager = AsyncKernelManager(kernel_name="python3", transport="ipc")
NotebookClient(notebook, km=manager, timeout=None, startup_timeout=600).execute()
nbformat.write(notebook, sys.argv[3])
"""


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The wheel."""
    wheel.make(tmp_path / "wheels")
    [path] = (tmp_path / "wheels").iterdir()
    return path


def run(*words: object, folder: Path | None = None, **environment: str) -> str:
    """Output of a command, without this checkout's modules."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    command = [*map(str, words)]
    done = subprocess.run(
        command, cwd=folder, env={**variables, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def unpack(path: Path, python: str, folder: Path) -> None:
    """Install the wheel below a folder, without what it needs."""
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, "--target", folder, path)


async def test_package_installs_alone(site: Site, made: Path, tmp_path: Path) -> None:
    await site.archive()
    key = public_key(site.plant, tmp_path / "plant.pem")
    pinned = re.findall(r"^((\S+?)==.*(?:\n .*)*)", (CHECKOUT / "requirements.lock").read_text(), re.MULTILINE)
    lock = "\n".join(text for text, name in pinned if name in _NEEDED)
    assert lock.count("==") == len(_NEEDED)
    peer_builds.install(tmp_path / "alone", lock)
    python = str(tmp_path / "alone" / "bin" / "python")
    uv = Path(sys.executable).with_name("uv")
    run(uv, "pip", "install", "--quiet", "--no-deps", "--python", python, made)
    run(uv, "pip", "check", "--python", python)  # nothing that it needs is missing
    read = run(python, "-P", "-c", _READ, site.folder, key, DAY, folder=tmp_path)
    counts, error, answered, computed, *without, others = read.splitlines()
    assert counts == "240 [60, 60, 60, 60] ['disconnected']"
    assert error.startswith("key: ")
    assert answered == "['other/flow', 'unit/odd', 'unit/pressure'] {b'notes': b''}"
    assert computed == "4", "processes start"
    assert without == [
        "a question without the location of an archive needs plantlog itself, and not only its package of archives",
        "a file of plants needs plantlog itself, and not only its package of archives",
    ]
    assert others == "[]", "it needs neither the database's driver nor what is optional"


async def test_notebook_runs(site: Site, made: Path, tmp_path: Path) -> None:
    await site.archive()
    python = peer_builds.notebook_python()
    unpack(made, python, tmp_path / "package")
    parameters: dict[str, Any] = {
        **{"ARCHIVE": str(site.folder), "KEY": str(public_key(site.plant, tmp_path / "plant.pem"))},
        **{"CHANNELS": ["unit/pressure", "other/flow"], "DAY": f"{DAY}T05:00", "NEXT": f"{DAY}T08:00"},
    }
    executed = tmp_path / "executed.ipynb"
    with TemporaryDirectory() as short:
        folders = dict.fromkeys(("JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_CONFIG_DIR"), short)
        words = (python, "-c", _EXECUTE, _NOTEBOOK, json.dumps(parameters), executed)
        run(*words, folder=tmp_path, PYTHONPATH=str(tmp_path / "package"), **folders)
    cells = [cell for cell in json.loads(executed.read_text())["cells"] if cell["cell_type"] == "code"]
    outputs = [output for cell in cells for output in cell["outputs"]]
    outputs = [output for output in outputs if _FONTS not in "".join(output.get("text", ""))]
    texts = ["".join(output["data"]["text/plain"]) for output in outputs]
    assert texts[0] == "'480 samples, as sealed'"
    assert "'disconnected'" in texts[2]
    assert "'percentile'" in texts[4] and "'good'" in texts[4]
    assert "41.19" in texts[5]
    assert all(text in texts[6] for text in ("'gap begins'", "'disconnected'", "'valve opened'", "reference: "))
    pictures = [output["data"] for output in outputs if "image/png" in output["data"]]
    assert len(pictures) == 2, texts
