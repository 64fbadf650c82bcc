"""Names of channels for those of a file: as they are, behind a prefix, or by a list of new names."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import OperationError
from core.files import file_errors
from history.imports.fields import BadField, bad_input, channel_name

_LEGAL = "two fields, the name in the imported file and that of the channel, such as TI101,mill/temperature"


@dataclass(frozen=True, slots=True)
class ChannelNames:
    """``prefix``: of all names but the new ones. ``renamed``: name in the file → line in ``file``, name of the
    channel."""

    prefix: str = ""
    renamed: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    file: Path | None = None
    used: set[str] = field(default_factory=set)  # those of ``renamed`` that occurred

    def of(self, text: str) -> str:
        """The name of a channel. Raises BadField."""
        if (new := self.renamed.get(text.strip())) is not None:
            self.used.add(text.strip())
            return new[1]
        name = channel_name(text)
        if self.prefix:
            try:
                name = channel_name(self.prefix + text.strip())
            except BadField as bad:
                raise BadField(0, text, f"{bad.legal}, with the prefix {self.prefix}") from None
        if renamed := [old for old, (_, new_name) in self.renamed.items() if new_name == name]:
            raise BadField(0, text, f"another name than {name}, which {renamed[0]} gets by --rename")
        return name

    def describe(self) -> list[tuple[str, str]]:
        """Names in lines for people."""
        lines = [("prefix", self.prefix)] if self.prefix else []
        if self.renamed:
            lines.append(("renamed", ", ".join(f"{old} = {new}" for old, (_, new) in self.renamed.items())))
        return lines

    def require_used(self) -> None:
        """Raise OperationError for a new name of what is in no file."""
        for old, (line, _) in self.renamed.items():
            if old not in self.used:
                assert self.file is not None
                raise bad_input(self.file, line, "name", old, "a name that the imported files have")


class ChannelIndices(dict[str, int]):
    """Text in a file → index of its channel in ``names``, which grows. Raises BadField, also for two texts of one
    channel."""

    def __init__(self, names: list[str], channel_names: ChannelNames) -> None:
        super().__init__()
        self._names = names
        self._channel_names = channel_names
        self._known: dict[str, tuple[int, str]] = {}  # name of a channel → its index, text in the file

    def __missing__(self, text: str) -> int:
        name = self._channel_names.of(text)
        index, first = self._known.setdefault(name, (len(self._names), text.strip()))
        if first != text.strip():
            raise BadField(0, text, f"another name than {first!r}, of which the channel is {name}, too: see --rename")
        if index == len(self._names):
            self._names.append(name)
        self[text] = index
        return index


def load_names(prefix: str, file: Path | None) -> ChannelNames:
    """Names by a prefix and a CSV file of new names. Raises OperationError."""
    if prefix:
        try:
            channel_name(f"{prefix}x")
        except BadField as bad:
            raise OperationError(f"--prefix {prefix!r}: legal: the begin of {bad.legal}") from None
    renamed: dict[str, tuple[int, str]] = {}
    if file is None:
        return ChannelNames(prefix)
    lines: dict[str, int] = {}  # by the name of the channel
    try:
        with file_errors(file), file.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.reader(text, strict=True)
            for row in reader:
                if not row:
                    continue
                line = reader.line_num
                if len(row) != 2:
                    raise bad_input(file, line, "line", f"{len(row)} fields", _LEGAL)
                old, new = row[0].strip(), row[1].strip()
                try:
                    name = channel_name(new)
                except BadField as bad:
                    raise bad_input(file, line, "channel", bad.found, bad.legal) from None
                if name != new:
                    raise bad_input(file, line, "channel", new, f"the name of a channel, such as {name}")
                if not old or old in renamed:
                    first = f"another name than in line {renamed[old][0]}" if old else "the name in the imported file"
                    raise bad_input(file, line, "name", old, first)
                if name in lines:
                    raise bad_input(file, line, "channel", name, f"another channel than in line {lines[name]}")
                renamed[old], lines[name] = (line, name), line
    except (csv.Error, UnicodeError) as error:
        raise bad_input(file, None, "text", str(error), f"a CSV file in UTF-8: {_LEGAL}") from None
    if not renamed:
        raise bad_input(file, 1, "line", "the end of the file", _LEGAL)
    return ChannelNames(prefix, renamed, file)
