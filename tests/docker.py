"""A Docker engine for tests: the machine's own where one answers, else one that is started for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.paths import CHECKOUT, user_cache
from tests.waiting import until_sync

_LONGEST = 1500  # s: base image, three builds
FILES = ("-f", "docker-compose.yml", "-f", "compose.debian.yml")


def tool(name: str, package: str) -> str:
    """A program of the system's; one that is missing fails the test that needs it."""
    program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
    assert program is not None, f"{name} is missing: apt-get install {package}"
    return program


class Docker:
    """``docker`` and ``docker compose`` against one engine."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = {**os.environ, **environment, "PLANTLOG_BUILD_NETWORK": "host"}

    def run(self, *command: str | Path, text: str | None = None) -> str:
        """A command in the checkout; its output. Fails the test with what it said."""
        run = subprocess.run(
            command,
            cwd=CHECKOUT,
            env=self.environment,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=_LONGEST,
        )
        assert run.returncode == 0, f"{' '.join(map(str, command))}\n{run.stdout}{run.stderr}"
        return run.stdout

    def compose(self, *arguments: str, files: tuple[str, ...] = FILES) -> str:
        """``docker compose``, by default with Debian's packages for images."""
        return self.run("docker", "compose", *files, *arguments)

    def described(self, *arguments: str, files: tuple[str, ...] = FILES) -> dict[str, Any]:
        """``docker compose config``: the files as Compose understands them."""
        body: dict[str, Any] = json.loads(self.compose(*arguments, "config", "--format", "json", files=files))
        return body

    def answers(self) -> bool:
        """Return whether an engine answers."""
        info = subprocess.run(["docker", "info"], env=self.environment, capture_output=True, check=False)
        return info.returncode == 0


def client() -> Docker:
    """Compose without an engine: enough for ``config``."""
    tool("docker", "docker.io")
    script = CHECKOUT / "ops/containers/image/compose.sh"
    run = subprocess.run([script], capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stdout + run.stderr
    folder = run.stdout.strip()
    return Docker({"DOCKER_CONFIG": folder} if folder else {})


@contextmanager
def engine(folder: Path) -> Iterator[Docker]:
    """An engine that answers inside the block."""
    docker = client()
    if docker.answers():
        yield docker
        return
    docker.environment["DOCKER_HOST"] = f"unix://{folder / 'docker.sock'}"
    log = folder / "dockerd.log"
    with log.open("w") as log_file:
        daemon = subprocess.Popen(
            [
                *(tool("dockerd", "docker.io"), "--host", docker.environment["DOCKER_HOST"]),
                *("--data-root", user_cache() / "docker", "--exec-root", folder / "exec", "--pidfile", folder / "pid"),
            ],
            stdout=log_file,
            stderr=subprocess.STDOUT,
        )
    try:
        until_sync(lambda: docker.answers() or daemon.poll() is not None, show=log.read_text)
        assert daemon.poll() is None, f"no Docker engine can run on this machine:\n{log.read_text()}"
        yield docker
    finally:
        daemon.terminate()
        daemon.wait(60)
