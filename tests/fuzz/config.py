"""Configuration: any plant.toml and any tag lists are a Plant that the collectors can work with, or a ConfigError.

- ConfigError names for every problem one of the files (and only a line that it has), the field, what was found and what
  is legal, in one printable line of bounded length.
- A Plant has sources and channels of different names; each Modbus tag fits a read within the protocol's limits, each
  template can be filled in.

Input: plant.toml and up to four files 1.csv to 4.csv, with a record separator (0x1E) between them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from core.config import token_file
from core.config.load import load
from core.config.model import Plant
from core.config.sources import ModbusSource, OpcuaSource, PushSource
from core.errors import ConfigError, Problem
from ingest.modbus.decode import Decoder
from ingest.modbus.plan import MAX_BITS, plan
from ingest.opcua.subscription.tags import Tags
from ingest.push.line_protocol import Series
from ingest.push.mapping import NoChannelName, Template

MAX_LEN = 4096
WORDS = tuple(
    word.encode()
    for word in (
        *("[plant]", "[[source]]", "[[source.tag]]", "[spool]", "[writer]", "[health]", "[push]"),
        *('kind = "modbus"', 'kind = "opcua"', 'kind = "push"', '"tcp://h:502"', '"opc.tcp://h:4840"', '"1.csv"'),
        *(
            "name = ",
            "address = ",
            "tags = ",
            "token_file = ",
            "channel = ",
            "unknown = ",
            '"create"',
            '"{tag.a}/{field}"',
        ),
        *(
            "unit_id = ",
            "max_registers = ",
            "bridge = ",
            "interval = ",
            '"5s"',
            '"1 MiB"',
            "0x",
            "inf",
            "nan",
            "1979-05-27",
        ),
        *(
            "name,address,type",
            "word_order",
            "bit",
            "length",
            "scale",
            "divisor",
            "holding:",
            "float64",
            "string",
            "bool",
        ),
        *("DCBA", "CDAB", "\x1e", '"""', "'''", "\\u0000", ".", "a.a.a.a", "\r", "\n", "ns=2;s="),
        *("instances", "2.csv", "{a}", "{a*20+1}", "{{"),
    )
)

_SEPARATOR = b"\x1e"
_LISTS = 4
_LONGEST = 4000  # characters of a problem in words: names of files and fields are as long as they are
_MEMORY = Path("/dev/shm")


def check(data: bytes) -> None:
    """Raises AssertionError where the contract does not hold for ``data``."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as parent:
        folder = Path(parent)
        contents = data.split(_SEPARATOR)[: 1 + _LISTS]
        files = ["plant.toml", *(f"{number}.csv" for number in range(1, 1 + _LISTS))]
        for file, content in zip(files, contents, strict=False):
            (folder / file).write_bytes(content)
        for name in ("token", "shop.token"):
            token_file.write(folder / name, f"{name}-of-a-gateway")
        try:
            plant = load(folder / "plant.toml")
        except ConfigError as error:
            assert error.problems
            for problem in error.problems:
                _in_words(problem, folder)
        else:
            _at_work(plant)


def _in_words(problem: Problem, folder: Path) -> None:
    assert problem.file.startswith(f"{folder}/") or problem.field == "tags", "a file that nobody named"
    assert problem.field
    assert problem.found
    assert problem.legal
    if problem.line is not None:
        lines = Path(problem.file).read_bytes().replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n") + 1
        assert 1 <= problem.line <= lines, problem
    output = str(problem)
    assert output.isprintable(), output
    assert len(output) <= _LONGEST, len(output)


def _at_work(plant: Plant) -> None:
    names = [source.name for source in plant.sources]
    channels = [tag.name for source in plant.sources for tag in source.tags]
    assert names
    assert len(set(names)) == len(names)
    assert len(set(channels)) == len(channels)
    for source in plant.sources:
        if isinstance(source, ModbusSource):
            _polled(source)
        elif isinstance(source, OpcuaSource):
            assert len(Tags(source, {tag.name: i for i, tag in enumerate(source.tags)})) == len(source.tags)
        elif isinstance(source, PushSource):
            series = Series("m", {"host": "h"})
            try:
                assert Template(source.channel).name(series, "f")
            except NoChannelName as why:
                assert "is missing" in str(why)


def _polled(source: ModbusSource) -> None:
    seen: list[int] = []
    for read in plan(source.tags, range(len(source.tags)), source.bridge, source.max_registers):
        bits = read.table in ("coil", "discrete")
        assert 1 <= read.count <= (MAX_BITS if bits else source.max_registers)
        assert read.start + read.count <= 65_536
        decoder = Decoder(read, source.tags)
        raw = np.zeros(read.count, np.uint16)
        assert len(decoder.numbers(raw)) + len(decoder.texts(raw)) == len(read.tags)
        seen += read.tags
    assert sorted(seen) == list(range(len(source.tags)))


def seeds() -> dict[str, bytes]:
    """The golden configurations, legal and not, and the example."""
    tests = Path(__file__).parents[1]
    folders = [*sorted((tests / "unit" / "golden" / "config").iterdir()), tests.parent / "ops" / "example"]
    return {folder.name: _seed(folder) for folder in folders}


def _seed(folder: Path) -> bytes:
    toml = (folder / "plant.toml").read_bytes()
    lists = sorted(folder.rglob("*.csv"))[:_LISTS]
    short = [b"\n".join(file.read_bytes().split(b"\n")[:10]) for file in lists]
    contents = [toml.replace(b"edge.token", b"token"), *short]
    for number, file in enumerate(lists, 1):
        for name in (str(file.relative_to(folder)), file.name):  # as plant.toml and a tag list name it
            contents = [content.replace(name.encode(), f"{number}.csv".encode()) for content in contents]
    return _SEPARATOR.join(contents)
