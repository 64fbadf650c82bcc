"""Statements of SQL by their tokens, as DuckDB divides them: what a comment hides, and what ends one."""

from __future__ import annotations

import re

import duckdb

_NAMED = re.compile(  # the name of a table or view that a statement makes, or gives to one
    r"(?:CREATE (?:\w+ ){0,4}?(?:TABLE|VIEW) (?:IF NOT EXISTS )?|ALTER .* RENAME TO )"
    r"(?:\S+ \. )*(?:\"([^\"]+)\"|(\w+))",
    re.IGNORECASE | re.DOTALL,
)


def named(statement: str) -> str | None:
    """The name of a table or view that a statement makes, or renames one to; None: it does neither."""
    match = _NAMED.match(" ".join(token for _, token in _tokens(statement)))
    return match and (match[1] or match[2])


def body(statement: str) -> str:
    """A statement without the semicolon behind it. Comments stay."""
    begin, last = _tokens(statement)[-1]
    return statement.encode()[:begin].decode() if last == ";" else statement


def _tokens(statement: str) -> list[tuple[int, str]]:
    """Where tokens begin (byte), and what they are, without comments."""
    encoded = statement.encode()
    tokens = duckdb.tokenize(statement)
    ends = [begin for begin, _ in tokens[1:]] + [len(encoded)]
    return [
        (begin, encoded[begin:end].decode().strip())
        for (begin, kind), end in zip(tokens, ends, strict=True)
        if kind != duckdb.token_type.comment
    ]
