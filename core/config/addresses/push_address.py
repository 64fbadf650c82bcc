"""Addresses of pushed channels: names that a source's ``channel`` template gives fields."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_PLAIN = re.compile(r"[A-Za-z0-9_.-]+")


def encoded(text: str) -> str:
    """``text`` with characters other than ASCII letters, digits and _ . - percent-encoded."""
    return text if _PLAIN.fullmatch(text) else quote(text, safe="").replace("~", "%7E")


def matching(address: str) -> str:
    """The form of an address that a template produces. An address in another form matches no field."""
    return "/".join(encoded(unquote(part)) for part in address.split("/"))
