"""Which channel a line's field is: the source's ``channel`` template, filled in."""

from __future__ import annotations

import re
from urllib.parse import quote

from ingest.push.line_protocol import Series

_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
_LONGEST = 255  # as of every channel's name


class Unnamed(Exception):  # noqa: N818  (a line that gives no name; caught where lines are mapped)
    """Why a field of a line gives no channel's name."""


class Template:
    """``"{tag.host}/{measurement}.{field}"``: what a channel's name cannot hold is percent-encoded."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._names = _PLACEHOLDER.split(text)  # literal, placeholder, literal, ...

    def name(self, series: Series, field: str) -> str:
        """The channel's name. Raises Unnamed."""
        parts = self._names.copy()
        for place in range(1, len(parts), 2):
            parts[place] = encoded(self._filled(parts[place], series, field))
        name = "".join(parts)
        if len(name) > _LONGEST:
            raise Unnamed(f"the channel's name would be {len(name)} characters long, at most {_LONGEST} are legal")
        return name

    def _filled(self, placeholder: str, series: Series, field: str) -> str:
        if placeholder == "measurement":
            return series.measurement
        if placeholder == "field":
            return field
        tag = placeholder.removeprefix("tag.")
        if tag not in series.tags:
            raise Unnamed(f"the tag {tag!r} is missing, which the template {self._text!r} needs")
        return series.tags[tag]


def encoded(text: str) -> str:
    """``text`` with all that a channel's name cannot hold percent-encoded."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe="").replace("~", "%7E")
