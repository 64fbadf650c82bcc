"""The tokens of all gateways, by their hashes, which are read from files again while requests are served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.config.token_file import TokenHash, digest_of, parse, read
from core.timestamps import now_us

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _File:
    """The token file of a source. ``hashes`` stay what they were while it has a fault."""

    path: Path
    content: bytes | None = None  # when it was read last; None: it could not be read
    taken: bytes | None = None  # what ``hashes`` and ``fault`` are of
    hashes: tuple[TokenHash, ...] = ()
    fault: str = ""


class Tokens:
    """Tokens and the sources that they belong to."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}  # by source
        self._sources: dict[bytes, str] = {}  # by digest
        self._used_at: dict[bytes, int] = {}  # µs, by digest
        self._lock = asyncio.Lock()

    async def configure(self, paths: Mapping[str, Path]) -> None:
        """Read the token file of each source. What is wrong with one is in :meth:`faults`."""
        async with self._lock:
            before = self._files
            self._files = {
                name: before[name] if name in before and before[name].path == path else _File(path)
                for name, path in paths.items()
            }
            self._take(await self._read(), at_once=True)

    async def refresh(self) -> None:
        """Take over the files that have changed, once they have settled."""
        async with self._lock:
            self._take(await self._read(), at_once=False)

    def source_of(self, token: bytes) -> str | None:
        """The source of a token; None: no source has it.

        How long this takes depends on the digest alone. As nobody can choose what digest a guess has, it says nothing
        about a token that is valid.
        """
        digest = digest_of(token)
        source = self._sources.get(digest)
        if source is not None:
            self._used_at[digest] = now_us()
        return source

    def faults(self) -> dict[str, str]:
        """Faults of the token files, by source."""
        return {name: file.fault for name, file in self._files.items() if file.fault}

    def used(self) -> dict[str, dict[str, int]]:
        """Time when each valid token was used last since the start, µs, by source and the first digits; 0: not yet."""
        return {
            name: {one.short: self._used_at.get(one.digest, 0) for one in file.hashes}
            for name, file in self._files.items()
        }

    async def _read(self) -> dict[str, bytes | str]:
        """The content of each file, or why it can't be read."""
        return await asyncio.to_thread(_contents, [(name, file.path) for name, file in self._files.items()])

    def _take(self, contents: Mapping[str, bytes | str], *, at_once: bool) -> None:
        """``at_once``: also what may be half written."""
        new: dict[str, tuple[TokenHash, ...]] = {}
        for name, content in contents.items():
            file = self._files[name]
            settled = at_once or content == file.content
            file.content = content if isinstance(content, bytes) else None
            if isinstance(content, str):
                self._say(name, content)
            elif settled and (content != file.taken or file.fault):
                file.taken, tokens = content, parse(content, name)
                if tokens.fault is None:
                    new[name] = tokens.hashes
                else:
                    self._say(name, "found {}; legal: {}".format(*tokens.fault))
        while (clash := self._clash(new)) is not None:
            name, one, other = clash
            del new[name]
            self._say(name, f"found token {one.short} of source {other}; legal: a token that no other source has")
        for name, hashes in new.items():
            file = self._files[name]
            if hashes != file.hashes:
                log.info("source %s: valid tokens: %s", name, ", ".join(one.short for one in hashes))
            file.hashes, file.fault = hashes, ""
        self._sources = {one.digest: name for name, file in self._files.items() for one in file.hashes}
        self._used_at = {digest: at for digest, at in self._used_at.items() if digest in self._sources}

    def _clash(self, new: Mapping[str, tuple[TokenHash, ...]]) -> tuple[str, TokenHash, str] | None:
        """A source whose new tokens have one of another source, that token, and the other source."""
        owners = {one.digest: name for name, file in self._files.items() if name not in new for one in file.hashes}
        for name, hashes in new.items():
            for one in hashes:
                if owners.setdefault(one.digest, name) != name:
                    return name, one, owners[one.digest]
        return None

    def _say(self, name: str, fault: str) -> None:
        file = self._files[name]
        kept = "the former tokens stay valid" if file.hashes else "no token is valid"
        text = f"{file.path}: {fault}; {kept}"
        if text != file.fault:
            log.error("source %s: %s", name, text)
            file.fault = text


def _contents(files: Iterable[tuple[str, Path]]) -> dict[str, bytes | str]:
    contents: dict[str, bytes | str] = {}
    for name, path in files:
        try:
            contents[name] = read(path)
        except OSError as error:
            contents[name] = f"cannot be read: {error.strerror}"
    return contents
