"""The ids of sources and channels on disk, so that collectors can start without the database."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import OperationError
from core.files import write_atomically


@dataclass(frozen=True, slots=True)
class Registry:
    """Names as in the configuration → ids as in ``plant.source`` and ``plant.channel``.

    A file has lines of JSON, so that a process reads no channels but its own: first all fields but the channels, then
    the channels of each source in a line.
    """

    sources: Mapping[str, int]
    channels: Mapping[str, Mapping[str, int]]  # source → channel → id
    created: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # push source → channel that it created → id
    created_texts: Sequence[int] = ()  # ids of created channels whose kind is text
    last_ids: Sequence[int] = (0, 0)  # highest ids that the database has assigned: of sources, of channels

    def save(self, path: Path) -> None:
        """Write the file atomically."""
        head = {
            "sources": self.sources,
            "created": self.created,
            "created_texts": self.created_texts,
            "last_ids": self.last_ids,
        }
        lines = (json.dumps(self.channels.get(source, {})) for source in self.sources)
        write_atomically(path, "\n".join([json.dumps(head), *lines, ""]))

    @classmethod
    def load(cls, path: Path, of: Container[str] | None = None) -> Registry:
        """Read the file with the channels of sources ``of``; None: all. Raises OperationError if it is missing."""
        try:
            with path.open() as file:
                head = json.loads(file.readline())
                lines = zip(head["sources"], file, strict=False)
                channels = {source: json.loads(line) for source, line in lines if of is None or source in of}
        except FileNotFoundError:
            raise OperationError(f"{path} is missing: run `plantlog up`") from None
        texts, last_ids = head.get("created_texts", ()), head.get("last_ids", (0, 0))
        return cls(head["sources"], channels, head.get("created", {}), tuple(texts), tuple(last_ids))

    def ids_of(self, source: str, channels: Sequence[str]) -> tuple[int, dict[str, int]]:
        """A source's id, and those of its channels by name. Raises OperationError where one is not registered."""
        ids = self.channels.get(source, {})
        missing = [name for name in channels if name not in ids]
        if source not in self.sources or missing:
            unregistered = f"source {source}" if source not in self.sources else f"channel {missing[0]}"
            raise OperationError(f"{unregistered} is not registered: run `plantlog up`")
        return self.sources[source], {name: ids[name] for name in channels}

    def pairs(self) -> Iterator[tuple[str, int]]:
        """Name and id of every channel, also of created ones."""
        for named in (*self.channels.values(), *self.created.values()):
            yield from named.items()
