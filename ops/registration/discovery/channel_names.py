"""Names of channels from the browse names of a server, and its other texts for people."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Iterable
from typing import TypeVar

from core.config.sources import CHANNEL_NAME_LENGTH

K = TypeVar("K", bound=Hashable)


def legal_name(text: str) -> str:
    """Replace characters not allowed in channel names by underscores; letters of every script are allowed."""
    kept = [
        c if c in "_.%-" or unicodedata.category(c)[0] in "LMN" else " " for c in unicodedata.normalize("NFC", text)
    ]
    return re.sub(r" +", "_", "".join(kept)) or "_"


def plain(text: str) -> str:
    """A text on one line. Control characters, and bytes that are not UTF-8, become replacement characters."""
    return "".join("\ufffd" if unicodedata.category(c) in ("Cc", "Cs") else c for c in " ".join(text.split()))


def unique_names(paths: Iterable[tuple[K, str, str]]) -> dict[K, str]:
    """Names by key, of (key, path, address). Duplicates get numbers, except the first by address."""
    names: dict[K, str] = {}
    shared: dict[str, list[tuple[str, K]]] = {}
    for key, path, address in paths:
        shared.setdefault(path[-CHANNEL_NAME_LENGTH:].lstrip("/"), []).append((address, key))
    used = set(shared)
    for name, sharing in shared.items():
        for rank, (_, key) in enumerate(sorted(sharing, key=lambda address_and_key: address_and_key[0])):
            number, chosen = rank + 1, name
            while rank and chosen in used:
                suffix = f"_{number}"
                chosen, number = name[: CHANNEL_NAME_LENGTH - len(suffix)] + suffix, number + 1
            used.add(chosen)
            names[key] = chosen
    return names
