"""The ids of sources and channels, on disk, so that collectors start while the database is away."""

from __future__ import annotations

import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ingest.errors import OperationError


@dataclass(frozen=True, slots=True)
class Registry:
    """Names as in the configuration → ids as in ``plant.source`` and ``plant.channel``.

    A file has lines of JSON, so that a process reads no channels but its own: all that is not by channel, and then the
    channels of each source in a line.
    """

    sources: Mapping[str, int]
    channels: Mapping[str, Mapping[str, int]]  # source → channel → id
    created: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # push source → channel that it made → id
    created_texts: Sequence[int] = ()  # those of them whose kind is text

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        head = {"sources": self.sources, "created": self.created, "created_texts": self.created_texts}
        lines = (json.dumps(self.channels.get(source, {})) for source in self.sources)
        write_whole(path, "\n".join([json.dumps(head), *lines, ""]))

    @classmethod
    def load(cls, path: Path, of: Container[str] | None = None) -> Registry:
        """Read it, with the channels of sources ``of`` alone; None: all. Raises OperationError where there is none."""
        try:
            with path.open() as file:
                head = json.loads(file.readline())
                lines = zip(head["sources"], file, strict=False)
                channels = {source: json.loads(line) for source, line in lines if of is None or source in of}
        except FileNotFoundError:
            raise OperationError(f"{path} is missing: `plantlog up` registers the plant and writes it") from None
        if "channels" in head:  # of a version before this one, which did not say whose they are
            channels[""] = head["channels"]
        return cls(head["sources"], channels, head.get("created", {}), tuple(head.get("created_texts", ())))

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Name and id of every channel, created ones too."""
        for named in (*self.channels.values(), *self.created.values()):
            yield from named.items()


def write_whole(path: Path, text: str) -> None:
    """Make ``text`` durable at ``path``: all of it, or what was there before."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
