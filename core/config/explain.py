"""Turn Pydantic's errors into Problems: what was found, and what is legal."""

from __future__ import annotations

import codecs
import csv
import difflib
import hashlib
import io
import types
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeAlias, Union, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from core.config.addresses import modbus_address
from core.config.base import fields_of
from core.config.quantities import Parsed
from core.errors import Problem
from core.files import fault

FieldFault: TypeAlias = tuple[str, str, str]  # field, found, legal

_PATH_MAX = 4096  # characters, on Linux
# What a pattern means, for those who don't read them.
_PATTERNS = {
    "location": "an absolute path as in /mnt/archive, or s3://BUCKET/PATH",
    "repository": "an absolute path as in /mnt/backup, sftp://USER@HOST[:PORT]/PATH, or s3://BUCKET/PATH",
    "s3_endpoint": "HOST or HOST:PORT, as in s3.eu-central-1.amazonaws.com",
    "s3_region": "a region, as in eu-central-1",
    "name": "at most 63 lower-case letters, digits, underscores and hyphens, as in boiler-house",
    "cluster": "the address of Dask's scheduler as in tls://scheduler:8786",
    "channel": "letters, digits and . _ % -, separated by slashes, as in north/boiler1/level, at most 255 characters",
    "template": "a channel's name with {measurement}, {field}, {tag.NAME} in it: {tag.host}/{measurement}.{field}",
    "host": "an address or host name of this machine, as in 127.0.0.1",
    "opc.tcp": "an address as in opc.tcp://host:4840",
    "modbus": modbus_address.LEGAL,
    "webhook": "an address as in https://host/path",
    "url": "an address as in https://host:9110",
    "smtp": "a mail server's HOST:PORT, as in mail.example.org:587",
    "index": "the indexes of an element from 0, one for each dimension, as in 3 or 1,2",
    "member": (
        "a member of a structure, as in Speed, Motor.Speed, Motors[2].Speed or [2].Speed; "
        "the index at the end is in the column index"
    ),
    "text": "a string without NUL characters",
    "no_data": "values as in 65535, 0x8000 or nan, or ranges as in 32760..32767, separated by semicolons",
    "register": "coil:N, discrete:N, input:N or holding:N, N from 0",
}
_LISTS = {
    "addresses": "a list of addresses as in opc.tcp://host:4840",
    "names": "a list of host names and addresses",
}

UNKNOWN_OPTION = "an unknown option"
_REPLACED = {  # class and option: by what
    ("ViewerOptions", "token_file"): "users log in with a password: `plantlog user add NAME --role engineer`",
}
_UNKNOWN_OPTION_ERRORS = ("extra_forbidden", "unexpected_keyword_argument")
_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    Path: "a file's path in quotes",
    tuple: "a list of strings in quotes",
}


def csv_fault(text: str, error: csv.Error) -> tuple[int, str, str, str]:
    """Line, column, found and legal of the first row that is not CSV. A quote that is not closed takes up the rest."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    first_line = 1  # of the row
    with suppress(csv.Error):
        for _ in reader:
            first_line = reader.line_num + 1
    if str(error) == "unexpected end of data":
        return first_line, "row", "a quote that is not closed", "a CSV row, whose quotes are closed"
    row = f", in the row that begins in line {first_line}" if first_line < reader.line_num else ""
    return reader.line_num, "row", f"{error}{row}", "a CSV row"


def read_text(
    path: Path,
    field: str,
    legal: str,
    problems: list[Problem],
    digests: dict[str, str] | None = None,
    named: Callable[[str, str], Problem] | None = None,
) -> str | None:
    """The text of a file; adds its SHA-256 to ``digests``. None, with a problem added, if it cannot be read.

    ``named``: the problem of what names the file, by (found, legal): a file that is not there is not its own fault.
    """
    try:
        content = path.read_bytes()
        if digests is not None:
            digests[str(path)] = hashlib.sha256(content).hexdigest()
        # Not by utf-8-sig: places in its errors are without the byte order mark, or with it.
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        line, field, found = _not_utf8(content, field)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        line, found = None, fault(error)
    problems.append(Problem(str(path), line, field, found, legal) if line or named is None else named(found, legal))
    return None


def _not_utf8(content: bytes, field: str) -> tuple[int | None, str, str]:
    """Line, field, and the probable encoding of a text that is not UTF-8."""
    for mark, name in ((codecs.BOM_UTF16_LE, "UTF-16"), (codecs.BOM_UTF16_BE, "UTF-16")):
        if content.startswith(mark):
            return None, field, f"a text in {name}, which some spreadsheet programs call Unicode"
    marked = content.startswith(codecs.BOM_UTF8)
    for number, line in enumerate(content.split(b"\n"), 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            byte = line[error.start]
            description = f"byte 0x{byte:02x}, which is not UTF-8"
            if byte >= 0xA0:
                description += f"; as Latin-1 (ISO 8859-1) it is {chr(byte)!r}"
            return number, field, description + (", after a UTF-8 byte order mark" if marked else "")
    return None, field, "bytes that are not UTF-8"


def shown(value: Any) -> str:
    """A value formatted for a one-line message; long ones are shortened, but for paths."""
    if isinstance(value, Path) and len(str(value)) <= _PATH_MAX:
        return repr(str(value))
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4300 digits
        return "a number of thousands of digits"
    except RecursionError:
        return "tables nested too deep"
    return shortened(text)


def shortened(text: str) -> str:
    """Shorten a text to 80 characters."""
    return text if len(text) <= 80 else text[:77] + "..."


def invalid_value(error: ErrorDetails) -> str:
    """The value that ``error`` is about."""
    if error["type"] in _UNKNOWN_OPTION_ERRORS:
        return UNKNOWN_OPTION
    return "nothing" if error["type"] == "missing" else shown(error["input"])


def did_you_mean(name: str, legal_values: Iterable[str]) -> str:
    """The legal names, and the closest match."""
    names = sorted(legal_values)
    close = difflib.get_close_matches(name, names, 1)
    choices = f"one of {', '.join(names)}"
    return f"{choices}; did you mean {close[0]}?" if close else choices


def legal_values(model: type[Any], error: ErrorDetails) -> str:
    """Legal values of the field that ``error`` is about."""
    name = str(error["loc"][0]) if error["loc"] else ""
    if error["type"] in _UNKNOWN_OPTION_ERRORS:
        choices = did_you_mean(name, fields_of(model))
        return f"{choices}; {instead}" if (instead := _REPLACED.get((model.__name__, name))) else choices
    field = fields_of(model).get(name)
    return error["msg"] if field is None else field_legal(name, field)


def field_legal(name: str, field: FieldInfo) -> str:
    """Legal values of a field, from its type and limits."""
    metadata = list(field.metadata)
    annotation: Any = field.annotation
    optional = get_origin(annotation) in (Union, types.UnionType)
    if optional:
        annotation = next(part for part in get_args(annotation) if part is not types.NoneType)
    if hasattr(annotation, "__metadata__"):
        metadata += annotation.__metadata__
        annotation = annotation.__origin__
    if get_origin(annotation) is Literal:
        return "one of " + ", ".join(map(str, get_args(annotation)))
    if name in _LISTS:
        return _LISTS[name]
    if get_origin(annotation) is tuple and get_origin(get_args(annotation)[0]) is Literal:
        return "a list of " + ", ".join(map(str, get_args(get_args(annotation)[0])))
    for item in metadata:
        if isinstance(parsed := getattr(item, "func", None), Parsed):
            return parsed.legal
        for constraint in (item, *getattr(item, "metadata", ())):
            pattern = getattr(constraint, "pattern", None)
            if pattern is not None:
                return _pattern(name, pattern)
    kind = _KINDS.get(get_origin(annotation) or annotation, "a string in quotes")
    return kind + _limits(metadata)


_OWN_PATTERNS = (
    *("cluster", "host", "index", "location", "member", "no_data", "repository", "s3_endpoint", "s3_region"),
    *("smtp", "url", "webhook"),
)


def _pattern(name: str, pattern: str) -> str:
    if name in _OWN_PATTERNS:
        return _PATTERNS[name]
    if "measurement" in pattern:
        return _PATTERNS["template"]
    if name == "address" and not pattern.startswith(r"^[\p{L}"):
        return _PATTERNS["register" if "holding" in pattern else "opc.tcp" if "opc" in pattern else "modbus"]
    return _PATTERNS["text" if r"\x00" in pattern else "channel" if "/" in pattern else "name"]


def _limits(metadata: Iterable[Any]) -> str:
    flat = [part for item in metadata for part in (item, *getattr(item, "metadata", ()))]
    low = next((item.ge for item in flat if isinstance(item, Ge)), None)
    high = next((item.le for item in flat if isinstance(item, Le)), None)
    if low is not None and high is not None:
        return f" from {low} to {high}"
    return "" if low is None else f" from {low} up"
