"""What README.md says can be run: commands of plantlog, files and modules, SQL."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from ops.paths import CHECKOUT

README = CHECKOUT / "README.md"

_FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_ROW = re.compile(r"^\| (`\./plantlog .*?) \| (.*) \|$", re.MULTILINE)
_STATEMENT = re.compile(r"(?:SELECT|CALL|INSERT|UPDATE|DELETE|WITH)\b")


def blocks(language: str) -> list[str]:
    """The fenced blocks of a language."""
    return [content for name, content in _FENCE.findall(README.read_text()) if name == language]


def spans() -> list[str]:
    """The code within sentences."""
    return [" ".join(code.split()) for code in _CODE.findall(_FENCE.sub("", README.read_text()))]


def table() -> list[tuple[list[str], list[str]]]:
    """The rows of the tables of commands: commands without ``./plantlog``, and the code in what is said of them."""
    return [
        ([code.removeprefix("./plantlog").strip() for code in _CODE.findall(left)], _CODE.findall(right))
        for left, right in _ROW.findall(README.read_text())
    ]


def lines() -> list[list[str]]:
    """Every command line, in words: of fenced blocks, and those of plantlog within sentences."""
    found = [words for content in blocks("sh") for words in _commands(content)]
    plain = [words for content in blocks("") for line in content.splitlines() for words in _commands(line, "./")]
    said = [_words(code) for code in spans() if re.match(r"(\./plantlog|docker compose|\.venv/bin/python) ", code)]
    return [words for words in (*found, *plain, *said) if words]


def plantlog() -> list[list[str]]:
    """The arguments of every ``./plantlog`` that stands somewhere, each once, also behind ``docker compose exec``."""
    found: list[list[str]] = []
    for words in lines():
        if words[0] == "./plantlog":
            arguments = words[1:]
        elif words[:3] == ["docker", "compose", "exec"]:
            arguments = words[words.index("plantlog") + 1 :]
        else:
            continue
        if arguments not in found:
            found.append(arguments)
    return found


def statements() -> list[str]:
    """Every SQL statement: of fenced blocks and within sentences, without those in a command line."""
    text = re.sub(r"--.*", "", "\n".join(blocks("sql")))
    fenced = [statement.strip() for statement in text.split(";")]
    return [*(one for one in fenced if one), *(code.rstrip(";") for code in spans() if _STATEMENT.match(code))]


def files() -> Iterator[Path]:
    """The files and folders of the checkout that are named as code."""
    folders = "|".join(sorted(path.name for path in CHECKOUT.iterdir() if path.is_dir() and path.name[0].isalpha()))
    named = re.compile(rf"(?<![\w./-])((?:{folders})/[\w./-]*[\w/])")
    text = README.read_text()
    for code in (*_CODE.findall(text), *(content for _, content in _FENCE.findall(text))):
        for match in named.findall(code):
            yield CHECKOUT / match


def _commands(content: str, begins: str = "") -> Iterator[list[str]]:
    """The command lines of a shell script; a quoted text may go over several lines."""
    waiting = ""
    for line in content.splitlines():
        waiting = f"{waiting}\n{line}" if waiting else line
        try:
            words = _words(waiting)
        except ValueError:  # a quote is open
            continue
        waiting = ""
        if words and words[0].startswith(begins):
            yield words


def _words(text: str) -> list[str]:
    return shlex.split(text, comments=True)
