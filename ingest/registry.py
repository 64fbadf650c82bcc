"""The ids of sources and channels, on disk, so that collectors start while the database is away."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ingest.errors import OperationError


@dataclass(frozen=True, slots=True)
class Registry:
    """Names as in the configuration → ids as in ``plant.source`` and ``plant.channel``."""

    sources: Mapping[str, int]
    channels: Mapping[str, int]
    created: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # push source → channel that it made → id
    created_texts: Sequence[int] = ()  # those of them whose kind is text

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        write_whole(path, json.dumps(asdict(self)))

    @classmethod
    def load(cls, path: Path) -> Registry:
        """Read it. Raises OperationError where there is none."""
        try:
            content = json.loads(path.read_text())
        except FileNotFoundError:
            raise OperationError(f"{path} is missing: `plantlog up` registers the plant and writes it") from None
        texts = tuple(content.get("created_texts", ()))
        return cls(content["sources"], content["channels"], content.get("created", {}), texts)


def write_whole(path: Path, text: str) -> None:
    """Make ``text`` durable at ``path``: all of it, or what was there before."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
