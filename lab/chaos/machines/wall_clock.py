"""The wall clock of one machine, which can be set while the others keep theirs."""

from __future__ import annotations

import subprocess
from pathlib import Path

from core.errors import OperationError

_SOURCE = Path(__file__).with_suffix(".c")


class WallClock:
    """The clock of the processes that have :attr:`environment`. Files are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._difference = folder / "clock"
        library = folder / "clock.so"
        self._difference.write_bytes(bytes(8))
        command: list[str | Path] = [
            "gcc",
            "-O2",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-shared",
            "-fPIC",
            "-o",
            library,
            _SOURCE,
            "-ldl",
        ]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise OperationError("--machines requires a compiler: apt-get install gcc libc6-dev") from None
        if run.returncode:
            raise OperationError(f"gcc exited with {run.returncode}: {run.stderr}")
        self.environment = {"LD_PRELOAD": str(library), "PLANTLOG_CLOCK": str(self._difference)}

    def set(self, seconds: float) -> None:
        """Let it differ from the true time."""
        with self._difference.open("r+b", buffering=0) as file:
            file.write(int(seconds * 1e6).to_bytes(8, "little", signed=True))
