"""Channel names from the source's ``channel`` template."""

from __future__ import annotations

import re

from core.config.push_address import encoded
from ingest.push.line_protocol import Series

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_LONGEST = 255  # as of every channel's name


class NoChannelName(Exception):  # noqa: N818  (a line that gives no name; caught where lines are mapped)
    """A field has no valid channel name."""


class Template:
    """``"{tag.host}/{measurement}.{field}"``; characters not allowed in channel names are percent-encoded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names = _PLACEHOLDER.split(text)  # literal, placeholder, literal, ...

    def name(self, series: Series, field: str) -> str:
        """The name of the channel. Raises NoChannelName."""
        parts = self._names.copy()
        for place in range(1, len(parts), 2):
            parts[place] = encoded(self._filled(parts[place], series, field))
        name = "".join(parts)
        if len(name) > _LONGEST:
            raise NoChannelName(f"the channel name is {len(name)} characters long; at most {_LONGEST} are legal")
        return name

    def _filled(self, placeholder: str, series: Series, field: str) -> str:
        if placeholder == "measurement":
            return series.measurement
        if placeholder == "field":
            return field
        tag = placeholder.removeprefix("tag.")
        if tag not in series.tags:
            raise NoChannelName(f"tag {tag!r} of the template {self._text!r} is missing")
        return series.tags[tag]
