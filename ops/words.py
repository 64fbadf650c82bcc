"""Counts in words."""

from __future__ import annotations


def count(n: int, noun: str) -> str:
    """``1 source``, ``2 sources``, ``20,000 channels``; a noun of several words is counted by its first."""
    head, space, rest = noun.partition(" ")
    ending = "" if n == 1 else "es" if head.endswith("ch") else "s"
    return f"{n:,} {head}{ending}{space}{rest}"
