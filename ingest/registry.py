"""The ids of sources and channels, on disk, so that collectors start while the database is away."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ingest.errors import OperationError


@dataclass(frozen=True, slots=True)
class Registry:
    """Names as in the configuration → ids as in ``plant.source`` and ``plant.channel``."""

    sources: Mapping[str, int]
    channels: Mapping[str, int]

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        partial = path.with_suffix(".partial")
        with partial.open("w") as file:
            json.dump({"sources": dict(self.sources), "channels": dict(self.channels)}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Registry:
        """Read it. Raises OperationError where there is none."""
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            raise OperationError(f"{path} is missing: `plantlog up` registers the plant and writes it") from None
        return cls(content["sources"], content["channels"])
