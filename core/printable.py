"""Texts of devices, gateways and people, as a terminal may show them."""

from __future__ import annotations

import re

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # of ECMA-48, but for tab and line feed


def printable(text: str) -> str:
    """``text`` with control characters as in ``\\x1b[31m``: sequences such as CSI and OSC do nothing to a terminal."""
    return _CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", text)
