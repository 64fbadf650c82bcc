"""Prometheus beside an appliance, by the native recipe."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ops.paths import CHECKOUT
from ops.ports import free_ports
from tests.e2e.appliance import Appliance


@contextmanager
def watching(appliance: Appliance, folder: Path) -> Iterator[str]:
    """The address of a Prometheus with our configuration, in a hurry: what takes minutes takes seconds."""
    program = shutil.which("prometheus")
    assert program is not None, "prometheus is missing: apt-get install prometheus"
    recipe = CHECKOUT / "ops" / "prometheus"
    shutil.copytree(recipe, folder, ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    rules = folder / "rules" / "plantlog.yml"
    rules.write_text(re.sub(r'for: "\d+[mh]"', 'for: "2s"', rules.read_text()))
    config = (recipe / "prometheus.yml").read_text()
    (folder / "prometheus.yml").write_text(config.replace("interval: 15s", "interval: 1s"))
    (folder / "targets" / "native.json").write_text(appliance.plantlog("targets"))
    port = free_ports(1)
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [
                *(program, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)
