"""The real Telegraf, with the configurations of ops/telegraf."""

from __future__ import annotations

import functools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from core.paths import CHECKOUT

FOLDER = CHECKOUT / "ops" / "telegraf"
_BUILD_SECONDS = 1500  # on a machine with two cores it takes some four minutes, once


@functools.cache
def program() -> str:
    """Path of Telegraf, which is built if need be."""
    run = subprocess.run([FOLDER / "build.sh"], capture_output=True, text=True, check=False, timeout=_BUILD_SECONDS)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.strip()


class Telegraf:
    """A Telegraf that can be killed and started again."""

    def __init__(self, folder: Path, config: str, secrets: Mapping[str, str], environment: Mapping[str, str]) -> None:
        """``config``: the file's name in ops/telegraf; it runs in a hurry."""
        self._log = folder / "telegraf.log"
        text = (FOLDER / config).read_text()
        text = re.sub(r'\binterval = "\d+s"', 'interval = "1s"', text)
        text = re.sub(r'\bflush_interval = "\d+s"', 'flush_interval = "200ms"', text)
        # Else it rounds times to the interval, and two readings that are late on a busy machine have the same one.
        text = text.replace("[agent]\n", '[agent]\n  precision = "1ms"\n')
        self._config = folder / config
        self._config.write_text(text)
        kept = folder / "secrets"
        kept.mkdir(mode=0o700)
        for name, secret in secrets.items():
            (kept / name).write_text(secret)
        self._environment = {**os.environ, "PLANTLOG_SECRETS": str(kept), **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run it in the background."""
        with self._log.open("a") as log:
            self._process = subprocess.Popen(
                [program(), "--config", self._config, "--unprotected"],
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def output(self) -> str:
        """Its log."""
        return self._log.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run it inside the block."""
        self.start()
        try:
            yield
        finally:
            self.kill()
