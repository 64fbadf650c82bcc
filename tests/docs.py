"""The documentation as tests read it: README.md and docs/*.md.

The language of a fenced block says how it is tested:

    sh               a script, run beside one started appliance (tests/e2e/test_demo.py)
    sh continues     the same, behind the scripts before it on its page, back to the last ``sh``
    sh fails         the same; its last command ends with an error
    sh no_run        what starts, ends or measures an appliance, or needs another machine: its words are checked
    text             output, as an example: times and figures differ from run to run
    sql              run as the reader
    sql owner        run as the owner
    sql duckdb       run by DuckDB, on an archive (tests/integration/history/archive/test_readers.py)
    python           the same, by Python
    toml             a legal configuration; what a part of one lacks is added
    none             pictures, and commands of docs/performance.md, which are checked as those of sh no_run are
"""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from core.config import token_file
from core.paths import CHECKOUT
from tests import certificates

PAGES = (CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("*.md")))
LANGUAGES = {
    *("sh", "sh continues", "sh fails", "sh no_run", "text", "python", "toml", ""),
    *("sql", "sql owner", "sql duckdb", "sql clickhouse"),
}

_FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`\n]+(?:\n[^`\n]+)?)`")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)#?([^)\s]*)\)")
_FILE = re.compile(r"(?<![\w./-])((?:dashboards|docs|ingest|ops|schema|simulator|tests)/[\w./-]*[\w/])")
_ROW = re.compile(r"^\| (`\./plantlog .*?) \| (.*) \|$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str  # with the words behind it
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def statements(self) -> list[str]:
        """The statements of a block of SQL, without its comments."""
        parts = re.sub(r"--.*", "", self.text).split(";")
        return [part.strip() for part in parts if part.strip()]


def scripts() -> list[Block]:
    """The scripts that can be run beside an appliance, each with those that it continues before it."""
    runnable: list[Block] = []
    for block in blocks("sh", "sh continues", "sh fails"):
        before = runnable[-1].text if block.language == "sh continues" else ""
        runnable.append(replace(block, text=before + block.text))
    return runnable


@cache
def blocks(*languages: str) -> list[Block]:
    """The blocks of these languages; without one: all."""
    selected = []
    for page in PAGES:
        text = page.read_text()
        for match in _FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            block = Block(_name(page), line, match[2].strip(), textwrap.dedent(match[3]))
            if not languages or block.language in languages:
                selected.append(block)
    return selected


def prose(page: Path) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", page.read_text())


def spans(page: Path | None = None) -> list[str]:
    """The code within sentences, of one page or of all."""
    return [
        " ".join(code.split()) for document in ([page] if page else PAGES) for code in _CODE.findall(prose(document))
    ]


def command_rows() -> list[tuple[list[str], list[str]]]:
    """The rows of tables of commands: commands without ``./plantlog``, and the code in what is said of them."""
    rows = [row for page in PAGES for row in _ROW.findall(page.read_text())]
    return [
        ([code.removeprefix("./plantlog").strip() for code in _CODE.findall(left)], _CODE.findall(right))
        for left, right in rows
    ]


def names(page: Path, heading: str) -> list[str]:
    """The code in the first cells of the tables of one section."""
    begin = re.search(rf"^(#+) {re.escape(heading)}$", page.read_text(), re.MULTILINE)
    assert begin is not None, heading
    rest = page.read_text()[begin.end() :]
    end = re.search(rf"^#{{1,{len(begin[1])}}} ", rest, re.MULTILINE)
    section = rest[: end.start()] if end else rest
    return [code for cell in re.findall(r"^\| (`[^|]*?) \|", section, re.MULTILINE) for code in _CODE.findall(cell)]


def lines() -> list[list[str]]:
    """Every command, in words: of blocks, and those within sentences."""
    fenced = [block.text for block in blocks("sh", "sh continues", "sh fails", "sh no_run")]
    plain = [line for block in blocks("") for line in block.text.splitlines() if line.startswith("./")]
    inline = [code for code in spans() if re.match(r"(\./plantlog|docker compose|\.venv/bin/python|python) ", code)]
    return [words for text in (*fenced, *plain, *inline) for words in simple_commands(text)]


def plantlog() -> list[list[str]]:
    """The arguments of every ``./plantlog`` that stands somewhere, each once, also behind ``docker compose exec``."""
    calls: list[list[str]] = []
    for words in lines():
        if words[0] == "./plantlog":
            arguments = words[1:]
        elif words[:3] == ["docker", "compose", "exec"]:
            arguments = words[words.index("plantlog") + 1 :]
        else:
            continue
        if arguments not in calls:
            calls.append(arguments)
    return calls


def simple_commands(text: str) -> Iterator[list[str]]:
    """The words of each command of a script, without comments, assignments before it and redirections behind it."""
    lexer = shlex.shlex(re.sub(r"(?m)(^|\s)#.*$", "", text), posix=True, punctuation_chars="&|;<>\n")
    lexer.whitespace = " \t"
    lexer.whitespace_split = True
    lexer.commenters = ""
    words: list[str] = []
    redirected = False
    for word in [*lexer, ";"]:
        if word and set(word) <= set("&|;\n"):
            if words:
                yield words
            words, redirected = [], False
        elif word and set(word) <= set("<>"):
            redirected = True
        elif not redirected and (words or not re.match(r"\w+=", word)):
            words.append(word)


def completed(text: str, folder: Path) -> str:
    """A configuration with what it lacks; the files that it names are made in ``folder``."""
    content = tomllib.loads(text)
    if "plant" not in content:
        text = '[plant]\nname = "p"\n' + text
    if "source" not in content:
        text += '\n[[source]]\nname = "s"\nkind = "modbus"\naddress = "tcp://h:502"\ntags = "s.csv"\n'
    for source in tomllib.loads(text)["source"]:
        if "tags" in source:
            address = {"modbus": "holding:0", "opcua": "ns=2;s=a"}.get(source["kind"], "a.b")
            (folder / source["tags"]).write_text(f"name,address\n{source['name']}/a,{address}\n")
    for path in re.findall(r'^\w+_(?:file|certificate) = "(.+)"', text, re.MULTILINE):
        (folder / path).parent.mkdir(exist_ok=True)
        token_file.write(folder / path, f"token in {path}")  # its hash is also one, and a passphrase
    tls = tomllib.loads(text).get("tls", {})
    for source in (*tomllib.loads(text)["source"], tls):
        if source is tls or str(source.get("address")).startswith("tls:"):  # whose files are read
            made, key = certificates.make(folder / "made")
            files = {
                "server_certificate": made,
                "client_certificate_file": certificates.pem(made),
                "client_key_file": key,
                "certificate_file": certificates.pem(made),
                "key_file": key,
            }
            for option in files.keys() & source.keys():
                (folder / source[option]).write_bytes(files[option].read_bytes())
    return text


def files() -> Iterator[Path]:
    """The files and folders of the checkout that are named as code; NAME.sql stands for any."""
    for code in (*spans(), *(block.text for block in blocks())):
        for match in _FILE.findall(code):
            if not re.search("[A-Z]{4}", match):
                yield CHECKOUT / match


def links(page: Path) -> list[str]:
    """Files that a page links to."""
    return [target for target, _ in _LINK.findall(prose(page)) if target]


def dead_links() -> list[str]:
    """Links to files that are not there, and to headings that their page does not have."""
    dead = []
    for page in PAGES:
        for target, anchor in _LINK.findall(prose(page)):
            file = page.parent / target if target else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                dead.append(f"{_name(page)}: {target}#{anchor}")
    return dead


def _anchors(page: Path) -> set[str]:
    """Anchors that GitHub makes of headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(prose(page))}


def _name(page: Path) -> str:
    return str(page.relative_to(CHECKOUT))
