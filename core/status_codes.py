"""StatusCodes (OPC 10000-4, 7.39): their severity, and those of words and numbers with which others express quality."""

from __future__ import annotations

import re

BAD, UNCERTAIN = 0x8000_0000, 0x4000_0000  # the severities of StatusCodes, besides 0: Good
WORDS = {"good": 0, "ok": 0, "bad": BAD, "uncertain": UNCERTAIN, "questionable": UNCERTAIN}
_CODE = re.compile(r".*\((0x[0-9a-f]{1,8})\)", re.DOTALL)


def status_of(text: str) -> int | None:
    """The StatusCode of a word, of a number, or of a text with one at the end: ``OK (0x0)``; None: unknown.

    The lowest 16 bits of a StatusCode are flags: a small number is a quality of OPC DA, in which 0 is Bad, or of
    another system.
    """
    text = text.strip().lower()
    if text in WORDS:
        return WORDS[text]
    if code := _CODE.fullmatch(text):
        text = code[1]
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if number == 0 or 0x10000 <= number < 2**32 else None
