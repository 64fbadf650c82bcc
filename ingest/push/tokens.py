"""Tokens of all gateways, as hashes in files whose changes are applied while requests are served."""

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
    """The token file of a source. While it has a fault, ``hashes`` are those before."""

    path: Path
    content: bytes | None = None  # at the last check; None: it could not be read
    parsed: bytes | None = None  # content of which ``hashes`` and ``fault`` are
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
        """Read the token file of each source. :meth:`faults` has the faults."""
        async with self._lock:
            before = self._files
            self._files = {
                name: before[name] if name in before and before[name].path == path else _File(path)
                for name, path in paths.items()
            }
            self._apply(await self._read(), at_once=True)

    async def refresh(self) -> None:
        """Apply the files that have changed, once two reads agree."""
        async with self._lock:
            self._apply(await self._read(), at_once=False)

    def source_of(self, token: bytes) -> str | None:
        """The source of a token; None: no source has it.

        The duration depends on the digest alone. As nobody can choose the digest of a guess, it reveals nothing about
        valid tokens.
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
            name: {token.short: self._used_at.get(token.digest, 0) for token in file.hashes}
            for name, file in self._files.items()
        }

    async def _read(self) -> dict[str, bytes | str]:
        """Content of each file, or the error if it can't be read."""
        return await asyncio.to_thread(_contents, [(name, file.path) for name, file in self._files.items()])

    def _apply(self, contents: Mapping[str, bytes | str], *, at_once: bool) -> None:
        """Apply the contents of files. ``at_once``: also contents that may be half written."""
        new: dict[str, tuple[TokenHash, ...]] = {}
        for name, content in contents.items():
            file = self._files[name]
            settled = at_once or content == file.content
            file.content = content if isinstance(content, bytes) else None
            if isinstance(content, str):
                self._report(name, content)
            elif settled and (content != file.parsed or file.fault):
                file.parsed, tokens = content, parse(content, name)
                if tokens.fault is None:
                    new[name] = tokens.hashes
                else:
                    self._report(name, "found {}; legal: {}".format(*tokens.fault))
        while (clash := self._clash(new)) is not None:
            name, token, other = clash
            del new[name]
            self._report(name, f"found token {token.short} of source {other}; legal: a token that no other source has")
        for name, hashes in new.items():
            file = self._files[name]
            if hashes != file.hashes:
                log.info("source %s: valid tokens: %s", name, ", ".join(token.short for token in hashes))
            file.hashes, file.fault = hashes, ""
        self._sources = {token.digest: name for name, file in self._files.items() for token in file.hashes}
        self._used_at = {digest: at for digest, at in self._used_at.items() if digest in self._sources}

    def _clash(self, new: Mapping[str, tuple[TokenHash, ...]]) -> tuple[str, TokenHash, str] | None:
        """A source with a new token of another source, that token, and the other source."""
        owners = {token.digest: name for name, file in self._files.items() if name not in new for token in file.hashes}
        for name, hashes in new.items():
            for token in hashes:
                if owners.setdefault(token.digest, name) != name:
                    return name, token, owners[token.digest]
        return None

    def _report(self, name: str, fault: str) -> None:
        file = self._files[name]
        effect = "the former tokens stay valid" if file.hashes else "no token is valid"
        text = f"{file.path}: {fault}; {effect}"
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
