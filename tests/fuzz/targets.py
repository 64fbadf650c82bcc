"""The targets by name, and their files."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

NAMES = ("modbus", "opcua", "push", "config", "spool")

_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Target:
    """One target, imported."""

    name: str
    max_len: int  # bytes of an input; longer ones only cost time
    words: tuple[bytes, ...]  # what the mutations put in: the language of the input
    check: Callable[[bytes], None]
    seeds: Callable[[], dict[str, bytes]]


def target(name: str) -> Target:
    """Import the target ``name``, one of NAMES."""
    module = importlib.import_module(f"tests.fuzz.{name}")
    return Target(name, module.MAX_LEN, module.WORDS, module.check, module.seeds)


def found_of(name: str) -> Path:
    """The folder of the inputs that it failed on once; there may be none."""
    return _HERE / "found" / name


@cache
def inputs(name: str) -> dict[str, bytes]:
    """Every kept input of a target, by name: its seeds, and what it failed on once."""
    folder = found_of(name)
    found = sorted(folder.iterdir()) if folder.is_dir() else ()
    return {**target(name).seeds(), **{f"found-{file.name}": file.read_bytes() for file in found}}
