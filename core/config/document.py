"""A TOML file of the configuration, the lines of its options, and its problems."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import SchemaValidator

from core.config import contradictions, files, token_file
from core.config.base import fields_of
from core.config.explain import UNKNOWN_OPTION, invalid_value, legal_values, read_text, shortened, shown
from core.config.locate import Key, line_of, locate, unfinished_line
from core.config.model import TABLES
from core.errors import Problem

T = TypeVar("T")
_SECRETS = (
    *("client_key_file", "key_file", "passphrase_file", "password_file", "smtp_password_file", "token_file"),
    *("user_key_file", "webhook_secret_file"),
)


class Document:
    """A TOML file, with the problems so far in it and in the files that it names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.digests: dict[str, str] = {}
        self.problems: list[Problem] = []
        self._tables: dict[str, Any] = {}
        self._lines: dict[Key, int] = {}
        self._token_sources: dict[bytes, str] = {}  # by digest

    def content(self) -> dict[str, Any] | None:
        """The tables; None: it can't be read, and a problem says why."""
        text = read_text(self.path, "file", "a TOML file in UTF-8", self.problems, self.digests)
        if text is None:
            return None
        text = text.replace("\r\n", "\n")  # as TOML reads it
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            number = re.search(r"line (\d+)", str(error))
            line = int(number[1]) if number else unfinished_line(text)
            self.problems.append(Problem(str(self.path), line, "syntax", *_toml_error(error)))
        except ValueError as error:  # a number of thousands of digits
            self.problems.append(Problem(str(self.path), None, "syntax", str(error), "TOML 1.0"))
        except RecursionError:
            self.problems.append(Problem(str(self.path), None, "syntax", "values nested too deep", "TOML 1.0"))
        else:
            self._tables, self._lines = content, locate(text)
            return content
        return None

    def line(self, key: Key) -> int | None:
        """The line of a table or option."""
        return line_of(self._lines, key)

    def problem(self, key: Key, value: str, allowed: str) -> None:
        """Add the problem that a table or option has ``value``, which is not ``allowed``."""
        self.problems.append(self.problem_at(key, value, allowed))

    def problem_at(self, key: Key, value: str, allowed: str) -> Problem:
        """The problem that :meth:`problem` adds."""
        return Problem(str(self.path), self.line(key), ".".join(map(shortened, self._names(key))), value, allowed)

    def _names(self, key: Key) -> Iterator[str]:
        """The parts of a key as people name them: one of several tables by its name, otherwise by its number."""
        table: Any = self._tables
        for part in key:
            if isinstance(part, str):
                table = table.get(part) if isinstance(table, dict) else None
                yield part
            else:
                table = table[part]
                name = table.get("name")
                yield name if isinstance(name, str) else str(part + 1)

    def table(self, key: Key, table: Any, model: type[T]) -> T | None:
        """The options of a table; None: a problem says what is wrong with it. The files that it names are checked."""
        if not isinstance(table, dict):
            self.problem(key, shown(table), f"a table [{'.'.join(map(str, key))}]")
            return None
        values = dict(table)
        for option in files_of(model):
            if isinstance(table.get(option), str):
                values[option] = self.existing_file(table[option], (*key, option))
        options = self.validated(key, values, model)
        for option, value, allowed in contradictions.in_options(options):
            self.problem((*key, option), value, allowed)
        return options

    def validated(self, key: Key, values: dict[str, Any], model: type[T]) -> T | None:
        """The options of a table or row, whose files are checked; None: problems say what is wrong with them."""
        validator: SchemaValidator = model.__pydantic_validator__  # type: ignore[attr-defined]
        empty = object.__new__(model)  # to be filled: a strict dataclass takes a dict for nothing else
        try:
            # strict: TOML has types, so "9101" is not a number
            filled: T = validator.validate_python(values, strict=True, context={"written": True}, self_instance=empty)
            return filled
        except ValidationError as error:
            for detail in error.errors():
                option: Key = (*key, *detail["loc"][:1])
                if invalid_value(detail) == UNKNOWN_OPTION and (other := _tables_with(option[-1])):
                    self.problem(option, f"an option of {other}", f"one of {', '.join(sorted(fields_of(model)))}")
                else:
                    self.problem(option, invalid_value(detail), legal_values(model, detail))
            return None

    def existing_file(self, name: str, key: Key) -> Path:
        """The file that an option names; a problem says what is wrong with it."""
        file = self.path.parent / name
        try:
            exists = file.is_file()
        except (OSError, ValueError):  # a name that is too long, a folder that we may not look into; a NUL
            exists = False
        if not exists:
            remedy = ""
            if (key[0], key[-1]) == ("source", "token_file"):
                remedy = f"; {token_file.command('add', shortened(list(self._names(key))[1]), self.path)} makes it"
            self.problem(key, shown(file), f"an existing file{remedy}")
        elif key[-1] in _SECRETS:
            self._secret(file, key)
        return file

    def _secret(self, file: Path, key: Key) -> None:
        """Check the permissions of a secret file, and its content if we can read it."""
        mode = files.loose_permissions(file)
        if mode is not None:
            self.problem(key, f"{shown(file)} with permissions {mode}", f"0600: run chmod 600 {file}")
        with suppress(OSError):
            content = token_file.read(file)
            if (key[0], key[-1]) == ("source", "token_file"):
                self._token_hashes(file, content, key)
            elif key[-1] == "passphrase_file" and (fault := token_file.token_fault(content.strip())):
                self.problem(key, f"{shown(file)} with {fault}", token_file.TOKEN_LEGAL)

    def _token_hashes(self, file: Path, content: bytes, key: Key) -> None:
        """Check the tokens of a gateway."""
        source = shortened(list(self._names(key))[1])
        tokens = token_file.parse(content, source, self.path)
        if tokens.fault is not None:
            description, legal = tokens.fault
            self.problem(key, f"{shown(file)} with {description}", legal)
        for token in tokens.hashes:
            if (other := self._token_sources.setdefault(token.digest, source)) != source:
                value = f"{shown(file)} with token {token.short} of source {other}"
                self.problem(key, value, "a token that no other source has")


def _toml_error(error: tomllib.TOMLDecodeError) -> tuple[str, str]:
    """Describe a TOML error: what was found, and what is legal."""
    text = str(error)
    if twice := re.match(r"Cannot declare \((.*?),?\) twice", text):
        name = ".".join(part.strip(" '\"") for part in twice[1].split(","))
        return f"a second table [{name}]", f"one table [{name}], or tables [[{name}]] where there may be several"
    return f"a mistake: {text[0].lower()}{text[1:]}", "TOML 1.0"


def files_of(table: type[Any]) -> Iterator[str]:
    """The options that name a file."""
    return (name for name, field in fields_of(table).items() if field.annotation in (Path, Path | None))


def _tables_with(option: Any) -> str:
    """The tables that have an option."""
    return " and ".join(f"[{name}]" for name, model in TABLES.items() if option in fields_of(model))
