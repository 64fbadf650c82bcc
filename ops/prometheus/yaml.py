"""As much of YAML as is needed to write configuration that people read: block style, long texts quoted.

https://yaml.org/spec/1.2.2/: a JSON string is a double-quoted YAML scalar, so that quoting is JSON's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Node: TypeAlias = "str | int | float | bool | Mapping[str, Node] | Sequence[Node]"

# A text that no YAML parser takes for something else (a number, a date, true, an anchor) without quotes.
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "null", "y", "n"})
# Keys may also look like the name of a recorded series.
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def dump(node: Mapping[str, Node], comment: str) -> str:
    """A document, with a comment of one or more lines above it."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "\n".join(_block(node)) + "\n"


def _block(node: Node) -> list[str]:
    """The lines of a node that is not on its parent's line."""
    if isinstance(node, Mapping) and node:
        return [line for key, value in node.items() for line in _entry(f"{_key(key)}:", value)]
    if isinstance(node, Sequence) and not isinstance(node, str) and node:
        return [line for value in node for line in _item(value)]
    return [_scalar(node)]


def _entry(head: str, value: Node) -> list[str]:
    lines = _block(value)
    if _is_tree(value):
        return [head, *(f"  {line}" for line in lines)]
    return [f"{head} {lines[0]}"]


def _item(value: Node) -> list[str]:
    first, *more = _block(value)
    return [f"- {first}", *(f"  {line}" for line in more)]


def _is_tree(node: Node) -> bool:
    return isinstance(node, (Mapping, Sequence)) and not isinstance(node, str) and bool(node)


def _key(key: str) -> str:
    return key if _PLAIN_KEY.fullmatch(key) and key.lower() not in _WORDS else _quoted(key)


def _scalar(node: Node) -> str:
    if isinstance(node, str) and _PLAIN.fullmatch(node) and node.lower() not in _WORDS:
        return node
    return _quoted(node) if isinstance(node, str) else json.dumps(node)


def _quoted(text: str) -> str:
    # Raw control characters are not YAML, and some are line ends to it.
    return json.dumps(text, ensure_ascii=not text.isprintable())
