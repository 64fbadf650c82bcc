"""Push: every line of a body is accepted, or named with its number and its reason; no body is inflated beyond bounds.

- Each line that is not blank and no comment is one point or one bad line, never both, never neither. (Where there are
  quotes, a text may go over lines: then only what is around the body is held against this.)
- Good lines before and behind a body are read as they are alone, whatever the body is; without quotes the same holds
  for each of its lines. What was read, written again, is read again the same.
- Each field becomes a sample, a text, a count, or a bad line with the field's name, and each channel has a legal name.
- gzip is inflated as Python's own module does, or refused, the same in any pieces, and never beyond the limit.

Input: what kind of body, precision and template (or size of the pieces); the body.
"""

from __future__ import annotations

import gzip
import io
import re
import zlib
from collections.abc import Sequence
from typing import Any

from core.batch import EventBatch, SampleBatch
from ingest.push.body import BodyRefused, GzipReader
from ingest.push.line_protocol import PRECISIONS, BadLine, Parsed, Point, Precision, Value, parse
from ingest.push.mapping import CountRule, Resolved, Template, digest_of, names, rows
from ingest.spool.format import decode, encode

MAX_LEN = 2048

WORDS = (
    b"=",
    b",",
    b" ",
    b"\n",
    b"\r\n",
    b"\\ ",
    b'\\"',
    b'"',
    b"#",
    b"1e9",
    b"2i",
    b"3u",
    b"true",
    b" 1790000000000000000",
)

_ARRIVAL = 1_790_000_000_123_456
_TEMPLATES = tuple(
    Template(text) for text in ("{measurement}.{field}", "{tag.host}/{measurement}", "a/{field}", "one", "{tag.a}/x")
)
_COUNTS = CountRule(("m", "alarms.*", "*.n"))
_CHANNEL = re.compile(r"[A-Za-z0-9_.%-]+(/[A-Za-z0-9_.%-]+)*")
_LIMIT = 4096  # bytes, of an inflated body
_MEMBERS = 100
_LONGEST = 1200  # characters of what is wrong with a line: a name and a value of 40 each, escaped

Fact = tuple[str, dict[str, str], list[tuple[str, Value]], int | None]


def check(data: bytes) -> None:
    """Raises AssertionError where the contract does not hold for ``data``."""
    if len(data) < 2:
        return
    if data[0] & 1:
        _inflated(data[2:], data[1])
    else:
        _lines(data[2:], PRECISIONS[data[1] % 4], _TEMPLATES[(data[1] // 4) % len(_TEMPLATES)])


def _lines(body: bytes, precision: Precision, template: Template) -> None:
    parsed = parse(body, precision)
    _numbered(parsed, body)
    _between_good_ones(parsed, body, precision)
    if b'"' not in body:
        _line_by_line(parsed, body, precision)
    _written_again(parsed)
    _mapped(parsed, template)


def _numbered(parsed: Parsed, body: bytes) -> None:
    numbers = [p.line for p in parsed.points] + [b.line for b in parsed.bad]
    assert len(set(numbers)) == len(numbers)
    assert all(1 <= number <= body.count(b"\n") + 1 for number in numbers)
    assert [p.line for p in parsed.points] == sorted(p.line for p in parsed.points)
    assert [b.line for b in parsed.bad] == sorted(b.line for b in parsed.bad)
    for bad in parsed.bad:
        assert bad.problem
        assert len(bad.problem) < _LONGEST
        assert str(bad).isprintable(), "an answer, and a log, would show more than a line"


def _facts(points: Sequence[Point]) -> list[Fact]:
    return [(p.series.measurement, p.series.tags, p.fields, p.time) for p in points]


def _between_good_ones(parsed: Parsed, body: bytes, precision: Precision) -> None:
    before, behind = b"before,a=b f=1 1000", b"behind f=2i,g=t 2000"
    around = parse(before + b"\n" + body + b"\n" + behind, precision)
    (first,), (last,) = _facts(parse(before, precision).points), _facts(parse(behind, precision).points)
    assert _facts(around.points) == [first, *_facts(parsed.points), last]
    assert [p.line for p in around.points[1:-1]] == [p.line + 1 for p in parsed.points]
    assert around.points[-1].line == body.count(b"\n") + 3
    assert around.bad == [BadLine(b.line + 1, b.problem) for b in parsed.bad]


def _line_by_line(parsed: Parsed, body: bytes, precision: Precision) -> None:
    lines = body.split(b"\n")
    alone = [parse(line, precision) for line in lines]
    for line, one in zip(lines, alone, strict=True):
        content = line.strip(b" \t").removesuffix(b"\r")
        nothing = not content or content.startswith(b"#")
        assert len(one.points) + len(one.bad) == (0 if nothing and not one.bad else 1), line
    assert _facts(parsed.points) == [fact for parsed_alone in alone for fact in _facts(parsed_alone.points)]
    assert parsed.bad == [BadLine(i, b.problem) for i, one in enumerate(alone, 1) for b in one.bad]


def _written_again(parsed: Parsed) -> None:
    """Only what has a written form: a name may end in a backslash in a broken line, and in no other."""
    whole = [p for p in parsed.points if not any(_unwritable(name) for name in _names(p))]
    again = parse("\n".join(_written(p) for p in whole).encode(), "us")
    assert again.bad == []
    assert _facts(again.points) == _facts(whole)
    kinds = [[type(value) for _, value in p.fields] for p in whole]
    assert [[type(value) for _, value in p.fields] for p in again.points] == kinds


def _names(point: Point) -> list[str]:
    series = point.series
    return [series.measurement, *series.tags, *series.tags.values(), *(name for name, _ in point.fields)]


def _unwritable(name: str) -> bool:
    return name.endswith("\\") or "\n" in name or "\\ " in name or "\\," in name or "\\=" in name


def _written(point: Point) -> str:
    head = _escaped(point.series.measurement, ", ")
    head += "".join(f",{_escaped(name, ',= ')}={_escaped(tag, ',= ')}" for name, tag in point.series.tags.items())
    fields = ",".join(f"{_escaped(name, ',= ')}={_value(value)}" for name, value in point.fields)
    return f"{head} {fields}" + ("" if point.time is None else f" {point.time}")


def _escaped(name: str, special: str) -> str:
    return "".join("\\" + c if c in special else c for c in name)


def _value(value: Value) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, bool | float):
        return repr(value)
    return f"{value}i" if value < 2**63 else f"{value}u"


def _mapped(parsed: Parsed, template: Template) -> None:
    named = names(parsed.points, template, _COUNTS)
    assert all(_CHANNEL.fullmatch(name) and len(name) <= 255 for name in named.of.values())
    places: dict[Any, Resolved] = dict(named.unnamed)
    for number, (key, name) in enumerate(named.of.items()):
        places[key] = (sorted(named.kinds).index(name) + 1, "it is refused", None)[
            0 if number % 5 < 3 else number % 5 - 2
        ]
    found = rows(parsed.points, places, _ARRIVAL, named.counts)
    fields = sum(len(point.fields) for point in parsed.points)
    assert len(found) + len(found.bad) + found.waiting == fields
    assert all(bad.problem for bad in found.bad)
    times = found.times()
    assert len(times) == len(found) + len(found.misplaced)
    if found.value:
        batch = SampleBatch(1, _ARRIVAL, found.samples())
        assert encode(decode(encode(batch))) == encode(batch)
    if found.counts:
        counted = found.counts.batch(1, _ARRIVAL, digest_of(b"", "ns", 0))
        assert set(counted.types) <= set(named.counts.values())
        assert encode(decode(encode(counted))) == encode(counted)
    if found.texts or found.misplaced:
        events = EventBatch(1, _ARRIVAL, (*found.texts, *found.misplaced))
        assert decode(encode(events)) == events


def _inflated(packed: bytes, size: int) -> None:
    whole = _inflate([packed])
    size = size or 1
    assert whole == _inflate([packed[at : at + size] for at in range(0, len(packed), size)])
    theirs = _gunzip(packed)
    if isinstance(whole, bytes):
        assert whole == theirs
    elif theirs is not None:
        padded = packed.endswith(b"\0")  # Python's module allows zeros behind a member
        assert padded or whole == 413 or packed.count(b"\x1f\x8b") > _MEMBERS, "gzip was refused"
        assert whole != 413 or len(theirs) > _LIMIT


def _inflate(pieces: Sequence[bytes]) -> bytes | int:
    """Inflated body, or the status of the refusal."""
    inflate = GzipReader(_LIMIT)
    parts: list[bytes] = []
    try:
        for piece in pieces:
            part = inflate.feed(piece)
            parts.append(part)
            assert sum(map(len, parts)) <= _LIMIT
        inflate.finish()
    except BodyRefused as refused:
        return refused.status
    return b"".join(parts)


def _gunzip(packed: bytes) -> bytes | None:
    """At most a byte more than the limit; None: it is no gzip."""
    if not packed:  # which Python's module takes for a file with nothing in it
        return None
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = b""
            while len(content) <= _LIMIT and (part := file.read(_LIMIT + 1 - len(content))):
                content += part
            return content
    except (OSError, EOFError, zlib.error):
        return None


def seeds() -> dict[str, bytes]:
    """Bodies as gateways send them, good and bad, and as they pack them."""
    lines = {
        "telegraf": b"cpu,cpu=cpu-total,host=edge1 usage_idle=97.5,usage_user=1.25 1790000000000000000\n"
        b"mem,host=edge1 active=1234567u,available_percent=61.2 1790000000000000000\n",
        "everything": b"# a comment\r\nboiler,host=b1,a=north\\ side pressure=12.5,cycles=7i,pumps=2u,running=t,"
        b'mode="auto \\"x\\"" 1790000000123456789\r\n\n  \t\nlevel value=-1.5e3\n',
        "text-of-lines": b'm f="one\ntwo\nthree" 1000\nm f=x\nm f=1',
        "open-quote": b'm f="open\nm f="shut",g=1 5\nm f=2 6\n',
        "bad-lines": b"m f=\nm\nm f=1,f=2\nm,a=1,a=2 f=1\nm f=1e400\nm f=1 now\nm f=nan\n,a=b f=1\n",
        "not-utf-8": b"m f=1 1\nm f=\xff 2\nm,h=\xc2\xb5 f=3 3\n",
        "escapes": b'm\\,x\\ y,a\\=b=c\\,d f\\ g=1\nm\\x f\\x="\\n" 1\n',
        "counts": b"alarms,h=a high=3i,low=0u,x=1.5 1000\nalarms high=-1i\nx n=2i,m=2i\n",
        "twice": b"m,a=1 f=1,g=2\nm,a=1 f=3\n",
    }
    found = {}
    for number, (name, body) in enumerate(lines.items()):
        found[name] = bytes((0, number * 5 % 20)) + body
        found[f"{name}-packed"] = bytes((1, number)) + _packed(body)
    found["bomb"] = bytes((1, 0)) + _packed(bytes(1_000_000))
    found["at-the-limit"] = bytes((1, 9)) + _packed(bytes(_LIMIT))
    found["members"] = bytes((1, 3)) + _packed(b"m f=1\n") + _packed(b"m f=2\n")
    found["too-many-members"] = bytes((1, 0)) + _packed(b"") * (_MEMBERS + 1)
    found["cut"] = bytes((1, 0)) + _packed(b"m f=1\n")[:-5]
    return found


def _packed(body: bytes) -> bytes:
    return gzip.compress(body, mtime=0)
